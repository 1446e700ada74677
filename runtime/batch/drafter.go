package batch

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/speculate"
)

// withDraft returns the module that package ragged transforms for many sequences: the main entry of m alone or, for a
// kind of draft, also the method that drafts, and hidden states as the second result of the main entry.
func withDraft(m *ir.Module, kind speculate.Kind) (*ir.Module, error) {
	if kind == speculate.None {
		return m.Only(m.Entry), nil
	}
	f := m.Named(speculate.Method)
	if f == nil || speculate.KindOf(f) != kind {
		return nil, fmt.Errorf("the program has no method %s of kind %s", speculate.Method, kind)
	}
	main, err := fuse.StripSampler(m.Only(m.Entry))
	if err != nil {
		return nil, err
	}
	main, ok := session.AllRows(main)
	if !ok {
		return nil, &NotRaggedError{fmt.Errorf(
			"%s gives logits of the last row, and they cannot be had of every row, as "+
				"drafts need them", m.Entry.Name)}
	}
	if main, err = speculate.Hidden(main); err != nil {
		return nil, err
	}
	all := *main
	all.More = []*ir.Func{f}
	all.Constants, all.Buffers, all.Derived, all.Init = m.Constants, m.Buffers, m.Derived, m.Init
	return speculate.Bind(&all, f.Name)
}

// DescribeDraft writes how the draft of a program works in calls of many sequences, or why it does not.
func DescribeDraft(
	w io.Writer, m *ir.Module, kind speculate.Kind, e engine.Engine, p eval.Precision, s ragged.Storage,
) error {
	how := "a step drafts a token for each of many sequences"
	model, err := (*ragged.Model)(nil), error(nil)
	if m, err = withDraft(m, kind); err == nil {
		model, err = sequences(m, e, p, s)
	}
	switch {
	case err != nil:
		how = fmt.Sprintf("it drafts for one sequence at a time: %v", err)
	case model.Draft.Single:
		how = "its rows are not independent: a step drafts a token for one sequence"
	}
	_, err = fmt.Fprintf(w, "  draft (%s): %s\n", kind, how)
	return err
}

// Drafts implements Drafter.
func (x *raggedExecutor) Drafts() speculate.Kind { return x.kind }

// HiddenSize implements Drafter.
func (x *raggedExecutor) HiddenSize() int {
	if x.model.Draft == nil {
		return 0
	}
	return x.model.Draft.Hidden
}

// giveHidden sets the hidden states of outputs. They are the last result of an entry of a program with a draft.
func (x *raggedExecutor) giveHidden(out []Output, results []eval.Value) {
	if x.kind == speculate.None {
		return
	}
	t := results[len(results)-1].Tensor
	width := x.model.Draft.Hidden
	for i := range out {
		out[i].Hidden = slices.Clone(t.F[i*width : (i+1)*width])
	}
}

// Draft implements Drafter. Each step drafts one token for every chain that is not complete.
func (x *raggedExecutor) Draft(ctx context.Context, call *schedule.Call, chains []Chain) ([][]int32, error) {
	if len(call.Copies) > 0 {
		if err := x.copy(ctx, call.Copies); err != nil {
			return nil, err
		}
		call.Copies = nil
	}
	all := make([]*chain, len(chains))
	if err := x.checkHidden(chains); err != nil {
		return nil, err
	}
	for i, c := range chains {
		e := call.Entries[c.Entry]
		all[i] = &chain{Chain: c, entry: e, token: call.Tokens[e.First]}
	}
	for {
		var live []*chain
		for _, c := range all {
			if len(c.drafts) < len(c.Draws) {
				live = append(live, c)
			}
		}
		if len(live) == 0 {
			break
		}
		rows := len(live)
		if x.model.Draft.Single {
			rows = 1
		}
		for part := range slices.Chunk(live, rows) {
			if err := x.step(ctx, part); err != nil {
				return nil, err
			}
		}
	}
	out := make([][]int32, len(all))
	for i, c := range all {
		out[i] = c.drafts
	}
	return out, nil
}

// checkHidden returns an error if a chain starts from a hidden state of another size than the draft's.
func (x *raggedExecutor) checkHidden(chains []Chain) error {
	for _, c := range chains {
		if len(c.Hidden) != x.model.Draft.Hidden {
			return fmt.Errorf("entry %d: a hidden state of %d numbers, the draft wants %d", c.Entry, len(c.Hidden),
				x.model.Draft.Hidden)
		}
	}
	return nil
}

// entryOfStep returns the entry of row i of a step of the draft, for a chain that starts with the first row of e.
func entryOfStep(e schedule.Entry, i int) schedule.Entry {
	return schedule.Entry{ID: e.ID, First: i, Rows: 1, Start: e.Start, Wanted: 1, Blocks: e.Blocks, Rings: e.Rings}
}

// chain is a chain of drafts in progress: the next step starts from token and Hidden.
type chain struct {
	Chain
	entry  schedule.Entry
	token  int32
	drafts []int32
}

// step drafts one token for each chain.
func (x *raggedExecutor) step(ctx context.Context, chains []*chain) error {
	f := x.module.Named(speculate.Method)
	width, call := x.model.Draft.Hidden, &schedule.Call{}
	n := bucket(len(chains), x.options.Sequences)
	hidden, seen := make([]float32, n*width), slices.Repeat([]int64{-1}, n)
	rows := make([]Row, len(chains))
	for i, c := range chains {
		e := entryOfStep(c.entry, i)
		if x.model.Draft.Own { // a draft with caches of its own is at the position of its first token
			e.Start += len(c.drafts)
		}
		copy(hidden[i*width:], c.Hidden)
		seen[i] = int64(e.Start) - 1
		rows[i].Draw = &c.Draws[len(c.drafts)]
		call.Tokens, call.Entries = append(call.Tokens, c.token), append(call.Entries, e)
	}
	inputs := x.tablesOf(f, call, n, n)
	for i, p := range f.Params {
		switch p.Param {
		case "hidden":
			inputs[i].Tensor = eval.Floats(ir.F32, []int{1, n, width}, hidden)
		case "seen":
			inputs[i].Tensor = eval.Ints(ir.I64, []int{n}, seen)
		}
	}
	entries, ok := x.instance.(engine.Entries)
	if !ok {
		return fmt.Errorf("this engine runs no method %s", f.Name)
	}
	if x.draws {
		inputs = append(inputs[:len(inputs)-drawParams], drawInputs(rows, n)...)
	}
	given, err := entries.Call(ctx, f.Name, inputs)
	if err != nil {
		return err
	}
	for i, c := range chains {
		if x.draws {
			c.token = int32(given[0].Tensor.I[i])
		} else {
			vocab := given[0].Tensor.Shape[1]
			c.token = int32(rows[i].Draw.choose(given[0].Tensor.F[i*vocab : (i+1)*vocab]))
		}
		c.drafts = append(c.drafts, c.token)
		c.Hidden = given[len(given)-1].Tensor.F[i*width : (i+1)*width]
	}
	return nil
}

// drawParams is the number of draw parameters of an entry that draws.
const drawParams = 5
