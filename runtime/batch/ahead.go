package batch

import (
	"context"
	"slices"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/schedule"
)

// This file has calls that begin before the tokens of the call before them are known: the device computes while the
// host reads and hands out tokens. A runner foresees the next call where every row is that of a running stream and the
// device draws all tokens (schedule.Scheduler.Ahead says when). The executor gives it to the engine together with the
// call that runs, and the engine submits both. Row i of the next call reads the token of row i on the device.

// Pipelined is implemented by executors that can begin a call before the tokens of the call before it are known.
type Pipelined interface {
	// Pipelines reports whether ExecuteAhead begins calls. If not, it is Execute.
	Pipelines() bool
	// ExecuteAhead is Execute with a hint: next is the call that is likely to follow, and row i of it will be fed the
	// token that row i of call gives. The executor may begin next. Then an Execute of it with these tokens returns
	// sooner, with the same outputs. If another call is executed instead, the units that next writes hold anything.
	ExecuteAhead(ctx context.Context, call *schedule.Call, rows []Row, next *Foreseen) ([]Output, error)
}

// Foreseen is a call that is likely to follow.
type Foreseen struct {
	Call *schedule.Call // Tokens has a place for each row and is not known yet
	Rows []Row
}

// Pipelines reports whether the engine takes hints. A deterministic executor draws on the host, and is not pipelined.
func (x *raggedExecutor) Pipelines() bool {
	p, ok := x.instance.(engine.PipelinedEntries)
	return ok && p.PipelinesEntries() && x.draws && x.fixed == 0
}

// ExecuteAhead runs a call and lets the engine begin the next one.
func (x *raggedExecutor) ExecuteAhead(ctx context.Context, call *schedule.Call, rows []Row,
	next *Foreseen) ([]Output, error) {
	if err := x.check(call, rows); err != nil {
		return nil, err
	}
	if !x.mayBegin(call, rows, next) {
		return x.Execute(ctx, call, rows)
	}
	if len(call.Copies) > 0 {
		if err := x.copy(ctx, call.Copies); err != nil {
			return nil, err
		}
	}
	inputs := x.drawingInputs(call, rows)
	hint := &engine.Next{Inputs: x.drawingInputs(next.Call, next.Rows), Fed: len(rows)}
	given, err := x.instance.(engine.PipelinedEntries).CallPipelined(ctx, drawEntry, inputs, hint)
	if err != nil {
		return nil, err
	}
	return x.outputs(drawEntry, rows, given), nil
}

// drawingInputs returns the inputs of the entry that draws, for a call.
func (x *raggedExecutor) drawingInputs(call *schedule.Call, rows []Row) []eval.Value {
	return append(x.tables(call, len(rows)), drawInputs(rows, bucket(len(rows), x.options.Rows))...)
}

// mayBegin reports whether next may begin before call has ended. Both have one row of each of the same sequences, the
// device draws all tokens, and next overwrites nothing that it reads: if it is dropped, that is still there.
func (x *raggedExecutor) mayBegin(call *schedule.Call, rows []Row, next *Foreseen) bool {
	n := len(call.Tokens)
	if !x.Pipelines() || len(next.Call.Copies) > 0 || len(rows) != n || len(next.Call.Entries) != n ||
		x.check(next.Call, next.Rows) != nil || x.entryFor(rows) != drawEntry || x.entryFor(next.Rows) != drawEntry {
		return false
	}
	for i, e := range next.Call.Entries {
		before := call.Entries[i]
		inPlace := slices.ContainsFunc(e.Writes, func(s cache.State) bool { return s.Slot == e.Reads })
		if before.ID != e.ID || before.Rows != 1 || e.Rows != 1 || e.First != i || inPlace {
			return false
		}
	}
	return true
}

// pipelines reports whether calls of the executor can begin ahead.
func (r *Runner) pipelines() bool {
	p, ok := r.exec.(Pipelined)
	return ok && p.Pipelines()
}

// foresee returns the call that is likely to follow the present one. It returns nil where none is known, where
// something waits for the present call to end, and where a row asks for more than a token.
func (r *Runner) foresee(call *schedule.Call, rows []Row) *Foreseen {
	if !r.pipelines() || len(rows) != len(call.Entries) || r.busy() {
		return nil
	}
	if !areTokens(rows) || slices.ContainsFunc(rows, func(r Row) bool { return r.Hidden }) {
		return nil
	}
	next := make([]Row, len(rows))
	for i, row := range rows {
		draw := *row.Draw
		draw.Seed++
		next[i] = Row{Draw: &draw}
	}
	if ahead := r.sched.Ahead(); ahead != nil {
		return &Foreseen{Call: ahead, Rows: next}
	}
	return nil
}

// areTokens reports whether rows ask for drawn tokens and for nothing else but hidden states.
func areTokens(rows []Row) bool {
	return !slices.ContainsFunc(rows, func(r Row) bool {
		return r.Draw == nil || r.Logits || r.Logprobs || r.Adjust != nil
	})
}

// execute runs a call, and may begin the one that is foreseen. A panic in it becomes its error.
func (r *Runner) execute(ctx context.Context, call *schedule.Call, rows []Row) (out []Output, err error) {
	defer fault.Recover("a call of many sequences", &err)
	if r.foreseen != nil {
		return r.exec.(Pipelined).ExecuteAhead(ctx, call, rows, r.foreseen)
	}
	return r.exec.Execute(ctx, call, rows)
}

// busy reports whether something waits for the present call to end.
func (r *Runner) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing || len(r.arrived)+len(r.left)+len(r.work) > 0
}
