package batch

import (
	"context"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/schedule"
)

// If an engine chooses kernels by the number of rows (engine.RowsOfCalls), a deterministic executor gives all calls of
// its program the same number of rows: longer calls are cut into pieces, shorter ones are padded with rows that belong
// to no sequence. Then the same kernels compute every row, and these treat all rows of a call alike.

// fixedRows returns the number of rows that every call of the program needs; 0: any.
func fixedRows(e engine.Engine, o engine.Options) int {
	if r, ok := e.(engine.RowsOfCalls); ok && o.Deterministic {
		return r.DeterministicRows()
	}
	return 0
}

// inPieces cuts a call, without its copies, into calls of at most n rows, which have to run in this order. States
// between pieces lie in the last slot of their sequence.
func inPieces(call *schedule.Call, n int) []schedule.Call {
	var out []schedule.Call
	room := 0
	for _, e := range call.Entries {
		for done := 0; done < e.Rows; {
			if room == 0 {
				out, room = append(out, schedule.Call{}), n
			}
			c := &out[len(out)-1]
			count := min(room, e.Rows-done)
			part := partOf(e, done, done+count)
			part.First = len(c.Tokens)
			c.Tokens = append(c.Tokens, call.Tokens[e.First+done:e.First+done+count]...)
			c.Entries = append(c.Entries, part)
			done, room = done+count, room-count
		}
	}
	return out
}

// partOf returns rows [lo, hi) of an entry.
func partOf(e schedule.Entry, lo, hi int) schedule.Entry {
	part := e
	part.Start, part.Rows, part.Writes = e.Start+lo, hi-lo, nil
	part.Wanted = max(0, hi-max(lo, e.Rows-e.Wanted))
	if len(e.Writes) == 0 {
		return part
	}
	last := e.Writes[len(e.Writes)-1].Slot
	at := func(pos int) int32 { // returns the slot with the state after pos positions
		for _, w := range e.Writes {
			if w.Pos == pos {
				return w.Slot
			}
		}
		return last
	}
	if lo > 0 {
		part.Reads = at(part.Start)
	}
	end := part.Start + part.Rows
	for _, w := range e.Writes {
		if w.Pos > part.Start && w.Pos < end {
			part.Writes = append(part.Writes, w)
		}
	}
	part.Writes = append(part.Writes, cache.State{Pos: end, Slot: at(end)})
	return part
}

// inOrder runs the pieces of a call. Each takes its wanted rows from the front of rows.
func (x *raggedExecutor) inOrder(ctx context.Context, pieces []schedule.Call, rows []Row) ([]Output, error) {
	var out []Output
	for i := range pieces {
		wanted := 0
		for _, e := range pieces[i].Entries {
			wanted += e.Wanted
		}
		given, err := x.rows(ctx, &pieces[i], rows[:wanted])
		if err != nil {
			if cause := ctx.Err(); cause != nil && i > 0 {
				return nil, &engine.AbandonedError{Cause: cause} // earlier pieces have written state
			}
			return nil, err
		}
		out, rows = append(out, given...), rows[wanted:]
	}
	return out, nil
}
