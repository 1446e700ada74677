package batch

import (
	"context"
	"slices"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
)

// This file begins the next call of a pool ahead, where its caller says with Feed.Next that the tokens which a call
// draws will be fed next. The table of each of its sequences then has one row more than was fed. If the caller does
// anything else with one of them than to feed that row, the pool first takes the rows back from all of them.

// begunCall is the call that a pool has planned after the last one.
type begunCall struct {
	Foreseen
	sequences []*Sequence // of its rows
}

// execute runs a call of feeds, and begins the next one where it is known.
func (p *Pool) execute(ctx context.Context, call *planned, feeds []Feed) ([]Output, error) {
	if next := p.foresee(call, feeds); next != nil {
		return p.exec.(Pipelined).ExecuteAhead(ctx, &call.Call, call.rows, next)
	}
	return p.exec.Execute(ctx, &call.Call, call.rows)
}

// foresee plans the call after one of feeds. It returns nil where Feed.Next does not say what that is, or memory has
// no room for it.
func (p *Pool) foresee(call *planned, feeds []Feed) *Foreseen {
	x, ok := p.exec.(Pipelined)
	unknown := func(f Feed) bool {
		return f.Next == nil || len(f.Tokens) != 1 || len(f.Rows) != 1 ||
			f.Sequence.Position()+2 > p.limits.Positions
	}
	if !ok || !x.Pipelines() || len(call.picks) != len(feeds) || slices.ContainsFunc(feeds, unknown) {
		return nil
	}
	extent, need := cache.Extent{Rows: 1, Exact: true}, make(cache.Demand, p.memory.Layout().Pools())
	call.ended = true
	for _, f := range feeds {
		f.Sequence.table.End()
		need.Add(f.Sequence.table.Demand(extent))
	}
	if !p.memory.Fits(need) || slices.ContainsFunc(feeds, func(f Feed) bool { return f.Sequence.table.Shares() }) {
		return nil
	}
	next := &begunCall{Foreseen: Foreseen{Call: &schedule.Call{Tokens: make([]int32, len(feeds))}}}
	for i, f := range feeds {
		f.Sequence.table.Begin(extent)
		next.Call.Entries = append(next.Call.Entries, f.Sequence.entry(i, 1, 1))
		next.Rows, next.sequences = append(next.Rows, *f.Next), append(next.sequences, f.Sequence)
	}
	p.ahead = next
	return &next.Foreseen
}

// resume returns the call that was begun, if it is the one of feeds, with their tokens. Else it takes that call back.
func (p *Pool) resume(feeds []Feed) *planned {
	a := p.ahead
	if a == nil {
		return nil
	}
	same := len(feeds) == len(a.sequences)
	for i := 0; same && i < len(feeds); i++ {
		same = feeds[i].Sequence == a.sequences[i] && len(feeds[i].Tokens) == 1 && len(feeds[i].Rows) == 1
	}
	if !same {
		p.retract()
		return nil
	}
	p.ahead = nil
	call := &planned{Call: *a.Call}
	for i, f := range feeds {
		call.Tokens[i] = f.Tokens[0]
		call.rows, call.picks = append(call.rows, f.Rows[0]), append(call.picks, i)
	}
	return call
}

// retract takes the call that was begun back, if there is one.
func (p *Pool) retract() {
	a := p.ahead
	if a == nil {
		return
	}
	p.ahead = nil
	for _, s := range a.sequences {
		s.table.End()
		if err := s.table.Rollback(1); err != nil {
			panic(err) // foresee has kept the state before the row
		}
		s.table.Settle()
	}
}
