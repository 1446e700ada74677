package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/session"
)

// prefixRows is the number of positions of a node in the prefix tree. Executors with a KV cache in blocks use the
// size of a block; this one has no blocks.
const prefixRows = 32

// oneByOne runs the entries of a call one after the other, each in a session of its own. A sequence has one slot,
// which is its session. A snapshot copies a slot to another.
type oneByOne struct {
	model    *session.Model
	limits   Limits
	bytes    int64              // of the state of one session
	sessions []*session.Session // by slot; nil: not used yet, or closed after an error
}

// NewOneByOne returns an executor that can run any language model. stateBytes is the size of a session's state,
// sequences the largest number of entries of a call, and why the reason why the program does not run in one pass for
// all sequences. The executor owns the model and closes it.
func NewOneByOne(model *session.Model, stateBytes int64, sequences int, why string) (Executor, error) {
	x := &oneByOne{model: model, bytes: max(stateBytes, 1)}
	first, err := model.NewSession()
	if err != nil {
		return nil, err
	}
	x.sessions = []*session.Session{first}
	x.limits = Limits{Rows: model.MaxChunk + sequences, Sequences: sequences, Positions: model.MaxSeqLen,
		Vocab: model.Vocab, OneByOne: true, Why: why, NoLogits: model.Form != session.Logits,
		NoSeed: model.Form == session.AuthorsSampler, NoCopies: !first.Stateful()}
	return x, nil
}

func (x *oneByOne) Layout() cache.Layout {
	return cache.Layout{BlockRows: prefixRows, SlotBytes: x.bytes}
}
func (x *oneByOne) Units() cache.Demand { return make(cache.Demand, x.Layout().Pools()) }
func (x *oneByOne) Limits() Limits      { return x.limits }

func (x *oneByOne) Close() error {
	var errs []error
	for _, s := range x.sessions {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	x.sessions = nil
	return errors.Join(append(errs, x.model.Close())...)
}

// session returns the session of a slot.
func (x *oneByOne) session(slot int32) (*session.Session, error) {
	if n := int(slot) + 1; n > len(x.sessions) {
		x.sessions = append(x.sessions, make([]*session.Session, n-len(x.sessions))...)
	}
	if x.sessions[slot] == nil {
		s, err := x.model.NewSession()
		if err != nil {
			return nil, err
		}
		x.sessions[slot] = s
	}
	return x.sessions[slot], nil
}

func (x *oneByOne) Execute(ctx context.Context, call *schedule.Call, rows []Row) ([]Output, error) {
	var out []Output
	for _, e := range call.Entries {
		tokens := make([]int, e.Rows)
		for i, t := range call.Tokens[e.First : e.First+e.Rows] {
			tokens[i] = int(t)
		}
		wanted := rows[len(out) : len(out)+e.Wanted]
		given, err := x.entry(ctx, e, tokens, wanted, len(call.Entries) == 1)
		if err != nil {
			return nil, err
		}
		out = append(out, given...)
	}
	return out, nil
}

// entry runs the rows of one sequence. alone says that the call has no other entry.
func (x *oneByOne) entry(ctx context.Context, e schedule.Entry, tokens []int, rows []Row,
	alone bool) ([]Output, error) {
	if len(e.Writes) == 0 {
		return nil, fmt.Errorf("sequence %d has no slot for its state", e.ID)
	}
	last := e.Writes[len(e.Writes)-1].Slot
	s, err := x.at(e, last)
	if err != nil {
		return nil, err
	}
	var out []Output
	end := e.Start + e.Rows
	for pos := e.Start; pos < end; {
		to := end
		if first := end - len(rows) + 1 + len(out); len(rows) > 0 && pos < first {
			to = first
		}
		for _, w := range e.Writes {
			if w.Pos > pos {
				to = min(to, w.Pos)
			}
		}
		var row *Row
		if i := to - (end - len(rows)) - 1; i >= 0 {
			row = &rows[i]
		}
		step, err := x.feed(ctx, s, tokens[pos-e.Start:to-e.Start], row, alone)
		if err != nil {
			return nil, x.failed(last, err)
		}
		if row != nil {
			out = append(out, x.output(step, *row))
		}
		pos = to
		if err := x.keep(e, s, pos); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// at returns the session of a slot, in the state that an entry begins with.
func (x *oneByOne) at(e schedule.Entry, slot int32) (*session.Session, error) {
	s, err := x.session(slot)
	switch {
	case err != nil:
		return nil, err
	case e.Reads < 0:
		if s.Position() == 0 && !s.Abandoned() {
			return s, nil
		}
		return s, x.failed(slot, s.Reset())
	case e.Reads != slot:
		if err := x.copy(e.Reads, slot); err != nil {
			return nil, err
		}
		s = x.sessions[slot]
	}
	if s.Position() != e.Start {
		return nil, fmt.Errorf("sequence %d goes on at position %d; its slot %d has %d", e.ID,
			e.Start, slot, s.Position())
	}
	return s, nil
}

// keep copies the state at a position to the slots that the entry names for it.
func (x *oneByOne) keep(e schedule.Entry, s *session.Session, pos int) error {
	for _, w := range e.Writes[:len(e.Writes)-1] {
		if w.Pos != pos {
			continue
		}
		if err := x.copy(e.Writes[len(e.Writes)-1].Slot, w.Slot); err != nil {
			return err
		}
	}
	return nil
}

// copy copies the state of slot from to slot to.
func (x *oneByOne) copy(from, to int32) error {
	source, err := x.session(from)
	if err != nil {
		return err
	}
	target, err := x.session(to)
	if err != nil {
		return err
	}
	snapshot, err := source.Snapshot()
	if err != nil {
		return x.failed(from, err)
	}
	return x.failed(to, target.Restore(snapshot))
}

// failed closes the session of a slot after an error that is not that of a context, since the state of the engine's
// instance is not known then. The next use of the slot makes a new session.
func (x *oneByOne) failed(slot int32, err error) error {
	var abandoned *engine.AbandonedError
	if err == nil || errors.As(err, &abandoned) || errors.Is(err, context.Canceled) {
		return err
	}
	s := x.sessions[slot]
	x.sessions[slot] = nil
	s.Close() //nolint:errcheck // the first error is returned
	return err
}

// feed runs tokens and returns the step of the last one. If row is not nil, it has the draw's parameters.
func (x *oneByOne) feed(ctx context.Context, s *session.Session, tokens []int, row *Row,
	alone bool) (session.Step, error) {
	p := session.Greedy
	if row == nil || row.Draw == nil || x.model.Form == session.Logits {
		return s.Prefill(ctx, tokens, p) // the token is drawn from its logits afterwards
	}
	d := *row.Draw
	p = session.Sampling{Temperature: d.Temperature, TopK: d.TopK, TopP: d.TopP, Seed: d.Seed}
	if len(tokens) == 1 && alone {
		next := p
		next.Seed++
		return s.DecodePipelined(ctx, tokens[0], p, next)
	}
	return s.Prefill(ctx, tokens, p)
}

// output returns what row asks for from a step.
func (x *oneByOne) output(step session.Step, row Row) Output {
	out := Output{Token: int32(step.Token)}
	if row.Draw != nil && x.model.Form == session.Logits {
		out.Token = int32(row.Draw.choose(step.Logits))
	}
	if row.Logits {
		out.Logits = slices.Clone(step.Logits)
	}
	return out
}
