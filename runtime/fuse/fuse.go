package fuse

import (
	"fmt"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/ragged"
)

// Table is every pass of the runtime that no device has a say in, in the order in which they run. The rows of a
// device follow it.
var Table = passes.Ordered(
	pass("simplify", simplify),
	pass("fold-constants", foldConstants),
	pass("decay", fuseDecay),
	pass("linear", fuseLinear,
		passes.Order{Pass: "decay", Because: "it would take the bias of a decay's step into the product before it"}),
	pass("embedding", fuseEmbedding),
	pass("top-k", fuseTopK),
	pass("switch-mlp", fuseSwitchMLP,
		passes.Order{Pass: "top-k", Because: "it takes the indices of a top-k, and no other integers, for a " +
			"choice of experts"},
		passes.Order{Pass: "linear", Because: "experts are told from other gathered products by their weights"}),
	pass("delta-rule", fuseDeltaRule),
	pass("sample", fuseSample),
	pass("norm-scale", scaleNorms,
		passes.Order{Pass: "fold-constants", Because: "folding makes the scale a constant"}),
	pass("conv", fuseConv),
	pass("state", fuseState,
		passes.Order{Pass: "delta-rule", Because: "it puts the state of a gated delta rule into its buffer"},
		passes.Order{Pass: "conv", Because: "it puts the last rows of a convolution into their buffer"}),
	pass("attention", fuseAttention),
	pass("glu", fuseGLU,
		passes.Order{Pass: "switch-mlp", Because: "which matches the gates of experts itself"}),
	pass("softcap", fuseSoftcap),
	passes.Row[Options]{Name: "long-calls", When: func(o Options) bool { return o.LongCalls != nil },
		Run: func(m *ir.Module, o Options) error { return lengthenCalls(m, *o.LongCalls) }, After: []passes.Order{
			{Pass: "attention", Because: "it knows rings by the attention that reads them"},
			{Pass: "state", Because: "recurrent state takes calls of any length"},
			{Pass: "conv", Because: "so does the state of a convolution"},
		}},
	passes.Row[Options]{Name: "ragged", When: func(o Options) bool { return o.Ragged != nil },
		Run: func(m *ir.Module, o Options) error { return ragged.Make(m, *o.Ragged) }, After: []passes.Order{
			{Pass: "attention", Because: "it knows caches by the attention that reads them"},
			{Pass: "state", Because: "it knows recurrent state by the operation that advances it"},
			{Pass: "sample", Because: "it leaves the sampler out"},
		}},
	pass("last-token", sinkLastToken,
		passes.Order{Pass: "ragged", Because: "it takes the wanted rows in the place of the last one"},
		passes.Order{Pass: "attention", Because: "the last row goes through attention"},
		passes.Order{Pass: "switch-mlp", Because: "the last row goes through a mixture of experts"}),
	pass("projections", groupLinears,
		passes.Order{Pass: "glu", Because: "linears that are left share nothing but their input"}),
	pass("hoist-weights", hoistWeights),
)

// Options are the options of this package's passes.
type Options struct {
	// Ragged has the pass ragged make the program one of calls of many sequences; nil leaves it one of one.
	Ragged *ragged.Options
	// LongCalls has the pass long-calls make a program of one sequence take longer calls than it declares; nil leaves
	// it as it is.
	LongCalls *LongCalls
}

// pass makes a row of the table.
func pass(name string, run func(*ir.Module) error, after ...passes.Order) passes.Row[Options] {
	return passes.Row[Options]{Name: name, Run: func(m *ir.Module, _ Options) error { return run(m) }, After: after}
}

// Fuse returns a fused copy of the main entry of m, which must be verified.
func Fuse(m *ir.Module) (*ir.Module, error) { return Run(m, passes.Control{}) }

// Trace is Fuse that verifies the module after every pass, not only after the last, and calls after with
// it, where that is set.
func Trace(m *ir.Module, after func(pass string, m *ir.Module) error) (*ir.Module, error) {
	return Run(m, passes.Control{After: after, Verify: true})
}

// Run returns a fused copy of the main entry of m, which must be verified, by the passes that c lets run. Its Tidy is
// not used: the copy is cleaned after every pass. It has all buffers of m.
func Run(m *ir.Module, c passes.Control) (*ir.Module, error) { return run(m, Options{}, c) }

// Lengthened is Run for calls that may be longer than the program declares; see [LongCalls]. It also returns the
// largest number of rows of a call, or 0 where that stays what it was.
func Lengthened(m *ir.Module, o LongCalls, c passes.Control) (longer *ir.Module, rows int, err error) {
	if longer, err = run(m, Options{LongCalls: &o}, c); err != nil {
		return nil, 0, err
	}
	if longer.Entry.Params[0] != m.Entry.Params[0] {
		rows = CallRows(longer)
	}
	return longer, rows, nil
}

func run(m *ir.Module, o Options, c passes.Control) (*ir.Module, error) {
	m = m.Only(m.Entry).Clone()
	c.Tidy = func(m *ir.Module) error {
		err := passes.Clean(m)
		dropDerived(m)
		return err
	}
	if err := Table.Run(m, o, c); err != nil {
		return nil, fmt.Errorf("fuse: %w", err)
	}
	return m, nil
}

// Entries fuses each entry of a module by itself and returns them in the order of [ir.Module.Entries]. The results
// share constants and buffers. Passes only read these, so entries are fused at the same time. They are fused one by one
// if c has After or Tidy, which may not be made for calls at the same time.
func Entries(m *ir.Module, c passes.Control) ([]*ir.Module, error) {
	entries := m.Entries()
	out, failed := make([]*ir.Module, len(entries)), make([]error, len(entries))
	var all fault.Group
	for i, f := range entries {
		fuse := func() { out[i], failed[i] = Run(m.Only(f), c) }
		if c.After != nil || c.Tidy != nil {
			fuse()
		} else {
			all.Go(fuse)
		}
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pattern looks at an operation and what computes its arguments. It builds what stands for the results
// and returns that, or false where it does not match; then it must have built nothing.
type pattern func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool)

// apply replaces, in order, every operation of that name that p matches; an empty name stands for all.
func apply(m *ir.Module, name string, p pattern) error {
	return ir.Build(func() {
		passes.Rewrite(m, m.Entry.Body, func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
			if name != "" && op.Def.Name != name {
				return nil, false
			}
			return p(b, op)
		})
	})
}

// dropDerived removes the derived constants that the entry does not use, and an init that derives nothing.
func dropDerived(m *ir.Module) {
	uses := ir.CountUses(m.Entry.Body)
	var kept []*ir.Derived
	for _, d := range m.Derived {
		if uses[d.Value] > 0 {
			kept = append(kept, d)
		}
	}
	if m.Derived = kept; len(kept) == 0 {
		m.Init = nil
	}
}
