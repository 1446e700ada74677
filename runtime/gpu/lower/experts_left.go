package lower

import (
	"github.com/etc-ml/etc/ir"
)

// ofExperts finds the operations that are a part of a mixture of experts where the engine binds it: the sums of its result
// with what is added to it, and of those terms that are an expert of all tokens the gate, the product and the pair before
// it.
func (g *graph) ofExperts() map[*ir.Op]bool {
	out := map[*ir.Op]bool{}
	mixed := func(v *ir.Value) bool {
		if !g.only(v) {
			return false
		}
		for v.Def != nil && v.Def.Def.IsView() {
			v = v.Def.Input("x")
		}
		return v.Def != nil && (v.Def.Def.Name == "switch_mlp" || out[v.Def])
	}
	g.ops(func(op *ir.Op) {
		if op.Def.Name != "add" || !mixed(op.Input("a")) && !mixed(op.Input("b")) {
			return
		}
		out[op] = true
		for _, operand := range []string{"a", "b"} {
			gated := g.defined(op.Input(operand), "glu")
			if gated == nil || ir.Attrs[ir.GLUAttrs](gated).Activation != "sigmoid" || width(gated.Input("gate")) != 1 {
				continue
			}
			out[gated] = true
			down := g.defined(gated.Input("x"), "linear")
			if down == nil || elements(down.Result()) > fewRows*width(down.Result()) {
				continue
			}
			out[down] = true
			if pair := g.defined(down.Input("x"), "glu"); pair != nil {
				out[pair] = true
				for _, operand := range []string{"gate", "x"} {
					v := pair.Input(operand)
					for v.Def != nil && v.Def.Def.IsView() {
						v = v.Def.Input("x")
					}
					if v.Def != nil && len(v.Def.Results) == 1 {
						out[v.Def] = true
					}
				}
			}
		}
	})
	return out
}

// readByExperts reports whether a result of linears is read by such an operation.
func (g *graph) readByExperts(v *ir.Value, mixed map[*ir.Op]bool) bool {
	for _, op := range g.readers[v] {
		if op != nil && (mixed[op] && op.Def.Name == "glu" && width(op.Input("gate")) != 1 || op.Def.IsView() && g.readByExperts(op.Result(), mixed)) {
			return true
		}
	}
	return false
}
