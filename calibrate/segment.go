package calibrate

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// segment is a part of a module's operations that a call runs in one go: an operation with weights, its site, and the
// operations after it up to the next site. The first segment has no site. A value that only its own segment uses is
// dropped when that ends; the others are kept in activations.
type segment struct {
	site  *ir.Op // nil in the first
	ops   []*ir.Op
	ends  [][]*ir.Value // for each operation of ops: the values that no later operation uses
	loads []*ir.Value   // values of earlier segments that ops use
	keeps []*ir.Value   // values of this segment that later ones use
	drops []*ir.Value   // values of earlier segments that no later one uses
	// buffers are those that the segment uses, and frees those of them that no later segment uses.
	buffers, frees []*ir.Buffer
}

// hasWeights reports whether the driver itself runs op, since op multiplies by a weight that may be quantized.
func hasWeights(op *ir.Op) bool {
	switch op.Def.Name {
	case "linear", "embedding", "switch_mlp", "switch_geglu":
		return true
	}
	return false
}

// segmentsOf divides the operations of a module. The results of the module are among what the last segment keeps.
func segmentsOf(m *ir.Module) []*segment {
	all := []*segment{{}}
	home, last := map[*ir.Value]int{}, map[*ir.Value]int{} // the segments that define a value and use it last
	lastBuffer := map[*ir.Buffer]int{}
	for _, op := range m.Entry.Body.Ops {
		if hasWeights(op) {
			all = append(all, &segment{site: op})
		}
		at := len(all) - 1
		g := all[at]
		if op != g.site {
			g.ops = append(g.ops, op)
		}
		op.EachArg(func(a *ir.Arg) {
			if a.Kind != ir.ValueArg || a.Value.Constant != nil {
				return
			}
			last[a.Value] = at
			if from, here := home[a.Value]; op != g.site && (!here || from < at) && !slices.Contains(g.loads, a.Value) {
				g.loads = append(g.loads, a.Value)
			}
		})
		for _, v := range op.Results {
			home[v] = at
		}
		for _, b := range op.Buffers() {
			lastBuffer[b] = at
			if !slices.Contains(g.buffers, b) {
				g.buffers = append(g.buffers, b)
			}
		}
	}
	for _, v := range m.Entry.Body.Results {
		last[v] = len(all)
	}
	for i, g := range all {
		g.bound(i, last)
		for _, b := range g.buffers {
			if lastBuffer[b] == i {
				g.frees = append(g.frees, b)
			}
		}
	}
	for _, v := range m.Entry.Params {
		if at, used := last[v]; used && at < len(all) {
			all[at].drops = append(all[at].drops, v)
		}
	}
	for i, g := range all {
		for _, v := range g.keeps {
			if at := last[v]; at < len(all) && at > i {
				all[at].drops = append(all[at].drops, v)
			}
		}
	}
	return all
}

// bound finds which values of segment number at end in it, and after which of its operations.
func (g *segment) bound(at int, last map[*ir.Value]int) {
	g.ends = make([][]*ir.Value, len(g.ops))
	inside := map[*ir.Value]int{} // the last operation of ops that uses a value which ends here
	var order []*ir.Value
	define := func(v *ir.Value, i int) {
		if _, ok := inside[v]; !ok {
			order = append(order, v)
		}
		inside[v] = i
	}
	if g.site != nil {
		for _, v := range g.site.Results {
			define(v, -1)
		}
	}
	for _, v := range g.loads {
		define(v, -1)
	}
	for i, op := range g.ops {
		op.EachArg(func(a *ir.Arg) {
			if _, ok := inside[a.Value]; a.Kind == ir.ValueArg && ok {
				inside[a.Value] = i
			}
		})
		for _, v := range op.Results {
			define(v, i)
		}
	}
	for _, v := range order {
		if last[v] > at && !slices.Contains(g.loads, v) {
			g.keeps = append(g.keeps, v)
		} else if i := inside[v]; i >= 0 {
			g.ends[i] = append(g.ends[i], v)
		}
	}
}

// weights returns the constants with the weights of the site.
func (g *segment) weights() (out []*ir.Constant) {
	if g.site == nil {
		return nil
	}
	g.site.EachArg(func(a *ir.Arg) {
		if a.Kind == ir.ValueArg && a.Value.Constant != nil && a.Value.Constant.Data != nil {
			out = append(out, a.Value.Constant)
		}
	})
	return out
}
