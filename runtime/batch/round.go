package batch

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/schedule"
)

// This file makes a round of drafts one call of the engine: K steps of the draft method, each of which starts from the
// token and the hidden state of the step before, and then the program, which verifies the drafts. Nothing goes to the
// host between them. Where tokens are drawn on the device, a program with a draft has an entry for each K from 1 to
// mostOfRound, beside those of drawn.go.
//
// An entry takes the parameters of hiddenEntry, and then those of the draft. A parameter that has the same content in
// all steps is named draft.NAME; one of step i is named drafti.NAME (ofStep). Step i also has drafti.index i64[R]: for
// each row of the call, the row of the step whose draft goes there, or -1. The results are those of hiddenEntry, and
// then the drafts of each step, i64[N], for the N rows that a step has.

// mostOfRound is the largest number of drafts of a stream for which there is an entry. More are drafted step by step.
// Each entry is compiled with the program, and more than three drafts seldom pay.
const mostOfRound = 3

// roundEntry returns the name of the entry of a round of so many drafts.
func roundEntry(drafts int) string { return "round" + strconv.Itoa(drafts) }

// Rounder is a Drafter that can draft and execute a call at once.
type Rounder interface {
	Drafter
	// MostOfRound returns the largest number of drafts of one sequence that Round takes, or 0 if Round cannot be called.
	MostOfRound() int
	// Round drafts tokens for chains as Draft does. Then it executes the call with these drafts as Execute does. It
	// ignores what call.Tokens has in their places, and does not write them there. It returns the drafts of each chain,
	// and an output for each row. Rows may ask for a drawn token and a hidden state only.
	Round(ctx context.Context, call *schedule.Call, chains []Chain, rows []Row) ([][]int32, []Output, error)
}

// addRounds adds the entries to a ragged module with the entries of drawn.go, for rounds of up to most drafts. It
// returns the largest number of drafts of an entry, 0 if the program cannot have any.
func addRounds(m *ir.Module, of *ragged.Draft, most int) (int, error) {
	verify, draft := m.Named(hiddenEntry), m.Named(ragged.DraftEntry)
	if of == nil || of.Single || verify == nil || draft == nil {
		return 0, nil
	}
	// A round has rows of its own number in the draft and in the program.
	symbols := map[*ir.Symbol]*ir.Expr{}
	step := m.Only(draft).Substitute(func(s *ir.Symbol) *ir.Expr {
		if symbols[s] == nil {
			symbols[s] = ir.Sym(&ir.Symbol{Name: "draft_" + s.Name, Lo: s.Lo, Hi: s.Hi})
		}
		return symbols[s]
	})
	for drafts := 1; drafts <= most; drafts++ {
		f := m.Only(verify).Clone().Entry
		f.Name, f.Params = roundEntry(drafts), slices.Clone(f.Params)
		if err := ir.Build(func() { buildRound(m, f, step, drafts) }); err != nil {
			return 0, fmt.Errorf("a round of %d drafts: %w", drafts, err)
		}
		m.More = append(m.More, f)
	}
	return most, nil
}

// buildRound puts steps of the draft before the operations of f.
func buildRound(m *ir.Module, f *ir.Func, step *ir.Module, drafts int) {
	var ops []*ir.Op
	b := &ir.Builder{Module: m, Insert: func(op *ir.Op) { ops = append(ops, op) }}
	given := f.Params[slices.IndexFunc(f.Params, func(p *ir.Value) bool { return p.Param == "tokens" })]
	tokens, shared := given, map[string]*ir.Value{}
	var drawn, hidden *ir.Value
	var results []*ir.Value
	for i := range drafts {
		s := step.Clone().Entry
		with := map[*ir.Value]*ir.Value{}
		for _, p := range s.Params {
			name := "draft." + p.Param
			switch {
			case i > 0 && p.Param == "tokens":
				with[p] = b.Value("reshape", nil, drawn, []int64{1, -1})
			case i > 0 && p.Param == "hidden":
				width, _ := hidden.Type.Shape[1].Const()
				with[p] = b.Value("reshape", nil, hidden, []int64{1, -1, width})
			case ofStep(p.Param):
				with[p] = f.NewParam(stepParam(p.Param, i), p.Type)
			default:
				if shared[name] == nil {
					shared[name] = f.NewParam(name, p.Type)
				}
				with[p] = shared[name]
			}
		}
		ir.ReplaceUses(s.Body, with)
		ops = append(ops, s.Body.Ops...)
		drawn, hidden = s.Body.Results[0], s.Body.Results[len(s.Body.Results)-1]
		results = append(results, drawn)
		index := f.NewParam(stepParam("index", i), ir.TensorType(ir.I64, given.Type.Shape[1]))
		tokens = b.Value("fill_drafts", nil, tokens, drawn, index)
	}
	ir.ReplaceUses(f.Body, map[*ir.Value]*ir.Value{given: tokens})
	f.Body.Ops = append(ops, f.Body.Ops...)
	f.Body.Results = append(slices.Clone(f.Body.Results), results...)
	f.Outputs = nil
	for _, v := range f.Body.Results {
		f.Outputs = append(f.Outputs, v.Type)
	}
}

// ofStep reports whether a parameter of the draft has another content in each step.
func ofStep(param string) bool { return param == "input_pos" || param == "seen" || param == "key" }

// stepParam returns the name of a parameter of step i.
func stepParam(param string, i int) string { return fmt.Sprintf("draft%d.%s", i, param) }

// MostOfRound implements Rounder.
func (x *raggedExecutor) MostOfRound() int {
	if _, ok := x.instance.(engine.Entries); !ok || x.fixed > 0 {
		return 0
	}
	return x.rounds
}

// Round implements Rounder.
func (x *raggedExecutor) Round(ctx context.Context, call *schedule.Call, chains []Chain,
	rows []Row) ([][]int32, []Output, error) {
	if err := x.check(call, rows); err != nil {
		return nil, nil, err
	}
	if !areTokens(rows) {
		return nil, nil, fmt.Errorf("a round of drafts with a row that asks for more than a drawn token and a hidden state")
	}
	if len(call.Copies) > 0 {
		if err := x.copy(ctx, call.Copies); err != nil {
			return nil, nil, err
		}
	}
	if err := x.checkHidden(chains); err != nil {
		return nil, nil, err
	}
	steps := 0
	for _, c := range chains {
		steps = max(steps, len(c.Draws))
	}
	name := roundEntry(steps)
	f := x.module.Named(name)
	if f == nil {
		return nil, nil, fmt.Errorf("the program has no entry for a round of %d drafts", steps)
	}
	inputs := x.drawingInputs(call, rows)
	given, err := x.instance.(engine.Entries).Call(ctx, name, append(inputs, x.roundInputs(f.Params[len(inputs):], call,
		chains, steps)...))
	if err != nil {
		return nil, nil, err
	}
	found, first := make([][]int32, len(chains)), len(given)-steps
	for i, c := range chains {
		for k := range c.Draws {
			found[i] = append(found[i], int32(given[first+k].Tensor.I[i]))
		}
	}
	return found, x.outputs(hiddenEntry, rows, given[:first]), nil
}

// roundInputs returns the inputs of the steps of a round, for these parameters. Row i of a step is that of chain i, or
// of no sequence if the chain is complete.
func (x *raggedExecutor) roundInputs(params []*ir.Value, call *schedule.Call, chains []Chain,
	steps int) []eval.Value {
	n, width := bucket(len(chains), x.options.Sequences), x.model.Draft.Hidden
	of := map[string]*eval.Tensor{}
	longs := func(name string, shape ...int) []int64 {
		t := eval.Ints(ir.I64, shape, slices.Repeat([]int64{-1}, shape[0]))
		of[name] = t
		return t.I
	}
	hidden := make([]float32, n*width)
	of["draft.hidden"] = eval.Floats(ir.F32, []int{1, n, width}, hidden)
	first, draws := &schedule.Call{}, make([]Row, len(chains))
	for i, c := range chains {
		e := call.Entries[c.Entry]
		first.Entries = append(first.Entries, entryOfStep(e, i))
		first.Tokens = append(first.Tokens, call.Tokens[e.First])
		draws[i].Draw = &c.Draws[0]
		copy(hidden[i*width:], c.Hidden)
	}
	all := x.rowsFor(len(call.Tokens))
	for k := range steps {
		position, seen := longs(stepParam("input_pos", k), n), longs(stepParam("seen", k), n)
		key, index := longs(stepParam("key", k), n), longs(stepParam("index", k), all)
		for i, c := range chains {
			if k >= len(c.Draws) {
				continue
			}
			e := call.Entries[c.Entry]
			at := e.Start
			if x.model.Draft.Own { // a draft with caches of its own is at the position of its token
				at += k
			}
			position[i], seen[i], key[i] = int64(at), int64(at)-1, int64(int32(c.Draws[k].Seed))
			index[e.First+e.Rows-len(c.Draws)+k] = int64(i)
		}
	}
	draft := x.module.Named(ragged.DraftEntry)
	tables := append(x.tablesOf(draft, first, n, n)[:len(draft.Params)-drawParams], drawInputs(draws, n)...)
	for i, p := range draft.Params {
		if t := tables[i].Tensor; t != nil && of["draft."+p.Param] == nil {
			of["draft."+p.Param] = t
		}
	}
	out := make([]eval.Value, len(params))
	for i, p := range params {
		out[i].Tensor = of[p.Param]
	}
	return out
}

// rounder returns the executor, if it can draft and verify the chains of a call at once.
func (r *Runner) rounder(call *schedule.Call, chains []Chain) Rounder {
	x, ok := r.exec.(Rounder)
	if !ok || len(chains) == 0 {
		return nil
	}
	most := x.MostOfRound()
	for _, c := range chains {
		if len(c.Draws) > most {
			return nil
		}
	}
	for _, e := range call.Entries {
		if s := r.streams[e.ID]; e.Wanted > 0 && !s.asksForTokens() {
			return nil
		}
	}
	return x
}

// round drafts for a call and executes it at once, and writes the drafts into the call.
func (r *Runner) round(ctx context.Context, x Rounder, call *schedule.Call, chains []Chain,
	rows []Row) (outs []Output, err error) {
	defer fault.Recover("a round of drafts of many sequences", &err)
	found, outs, err := x.Round(ctx, call, chains, rows)
	if err != nil {
		return nil, err
	}
	return outs, r.drafted(call, chains, found)
}
