package fuse

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
)

// Pass is a row of the table.
type Pass struct {
	// Name of the pass.
	Name string
	// Run changes the module.
	Run func(*ir.Module) error
}

// Table is every pass in the order in which they run. Patterns see what those before them have made.
var Table = []Pass{
	{"simplify", simplify},
	{"fold-constants", foldConstants},
	{"linear", raiseLinear},
	{"embedding", raiseEmbedding},
	{"top-k", raiseTopK},
	{"switch-mlp", raiseSwitchMLP}, // needs its top-k indices to be told from other integers
	{"delta-rule", raiseDeltaRule},
	{"sample", raiseSample},
	{"decay", raiseDecay},
	{"norm-scale", scaleNorms}, // after fold-constants, which makes the scale a constant
	{"conv", raiseConv},
	{"state", raiseState}, // after delta-rule
	{"attention", raiseAttention},
	{"glu", raiseGLU}, // after switch-mlp, which matches the gates of experts itself
	{"softcap", raiseSoftcap},
	{"last-token", sinkLastToken}, // after attention and switch-mlp, which it goes through
	{"projections", groupLinears}, // after glu: what is left shares nothing but its input
	{"hoist-weights", hoistWeights},
}

// Fuse gives a fused copy of m, which must be verified.
func Fuse(m *ir.Module) (*ir.Module, error) { return Trace(m, nil) }

// Trace is Fuse that verifies the module after every pass, not only after the last, and calls after with
// it, where that is set.
func Trace(m *ir.Module, after func(pass string, m *ir.Module) error) (*ir.Module, error) {
	m = clone(m)
	for i, p := range Table {
		err := p.Run(m)
		if err == nil {
			err = passes.Clean(m)
		}
		if err == nil && (after != nil || i == len(Table)-1) {
			dropDerived(m)
			err = ir.Verify(m)
		}
		if err != nil {
			return nil, fmt.Errorf("fuse: pass %s: %w", p.Name, err)
		}
		if after != nil {
			if err := after(p.Name, m); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
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
	used := map[*ir.Value]bool{}
	eachUse(m.Entry.Body, func(v *ir.Value, _ *ir.Op) { used[v] = true })
	var kept []*ir.Derived
	for _, d := range m.Derived {
		if used[d.Value] {
			kept = append(kept, d)
		}
	}
	if m.Derived = kept; len(kept) == 0 {
		m.Init = nil
	}
}

// eachUse calls f for every value that operations of r and its nested regions use, and for the regions'
// results, whose user is nil.
func eachUse(r *ir.Region, f func(v *ir.Value, user *ir.Op)) {
	for _, op := range r.Ops {
		op.EachArg(func(a *ir.Arg) {
			if a.Kind == ir.ValueArg {
				f(a.Value, op)
			}
		})
		for _, n := range op.Regions {
			eachUse(n, f)
		}
	}
	for _, v := range r.Results {
		f(v, nil)
	}
}

// useCounts counts the uses of every value.
func useCounts(m *ir.Module) map[*ir.Value]int {
	n := map[*ir.Value]int{}
	eachUse(m.Entry.Body, func(v *ir.Value, _ *ir.Op) { n[v]++ })
	return n
}
