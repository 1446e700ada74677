package lower

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// roundedBefore replaces the operation that makes the rows of a prepare, and nothing else's, by one that writes them as
// the prepare would: in bf16, and in its order. A kernel between the two is saved.
func (g *graph) roundedBefore(op *ir.Op) {
	a := ir.Attrs[ir.PrepareAttrs](op)
	l, ok := g.Layout(op.Input("x"))
	if a.Exact || a.Norm || !ok || l.Base.Def == nil || l.Base.Index != 0 ||
		l.Offset != 0 || !l.IsDense() || elements(l.Base) != elements(op.Result()) || !g.only(op.Input("x")) {
		return
	}
	if a.Packed > kernels.InLanes && width(l.Base) != width(op.Result()) {
		return // rows are packed as wide as they are in the product
	}
	old := l.Base.Def
	n := rounded(old, a.Packed)
	if n == nil || !g.writesRounded(n) {
		return
	}
	for i, v := range g.builder(old).Append(n).Results {
		g.use(old.Results[i], v)
	}
	g.stand(op, op.Result(), op.Input("x"))
	g.drop(op)
	if old.Writes() { // an operation without readers disappears by itself, unless it writes a buffer
		g.drop(old)
	}
}

// rounded returns an operation like op that writes its first result in bf16, in the form that packed says as that of a
// prepare. It returns nil where there is none.
func rounded(op *ir.Op, packed int) *ir.Op {
	n := op.Like()
	switch a := op.Attrs.(type) {
	case *ir.GatedNormAttrs:
		with := *a
		with.Prepared, with.Packed, n.Attrs = true, packed, &with
	case *ir.AddNormAttrs:
		with := *a
		with.Prepared, with.Packed, n.Attrs = true, packed, &with
	case *ir.MatmulGLUAttrs:
		with := *a
		if with.Prepared, with.ResultPacked, n.Attrs = true, packed, &with; a.Exact || packed > kernels.InLanes {
			return nil
		}
	case *ir.AttentionAttrs:
		with := *a
		if with.Prepared, with.Packed, n.Attrs = true, packed, &with; op.Def.Name != "rows_attention" || a.Tiles ||
			packed > kernels.InLanes {
			return nil
		}
	case *ir.AttentionStepAttrs:
		with := *a
		if with.Prepared, with.Packed, n.Attrs = true, packed, &with; op.Def.Name != "rows_attention_step" ||
			packed > kernels.InLanes {
			return nil
		}
	default:
		return nil
	}
	return n
}

// writesRounded reports whether the device has the kernel of an operation that rounded returns.
func (g *graph) writesRounded(n *ir.Op) bool {
	n = g.draft().Append(n.Like())
	switch a := n.Attrs.(type) {
	case *ir.AttentionAttrs:
		return g.attendsRows(n)
	case *ir.AttentionStepAttrs:
		return g.steps(n)
	case *ir.MatmulGLUAttrs:
		k, rows, ok := MatMulGLU(n)
		return ok && ask(g.Target, "usable", k, rows, func() bool {
			return usable(g.Target, k.Tiles(g.Machine, rows), func(t kernels.Tile) (kernels.Launch, error) {
				return k.Launch(t, rows)
			})
		})
	case *ir.AddNormAttrs:
		return g.roundsSum(n, a)
	case *ir.GatedNormAttrs:
		return g.roundsGated(n, a)
	}
	return false
}

// roundsGated reports whether the device has the kernel of a gated norm that writes bf16.
func (g *graph) roundsGated(n *ir.Op, a *ir.GatedNormAttrs) bool {
	x, ok := g.numbers(n.Input("x"))
	gate, ok2 := g.numbers(n.Input("gate"))
	activation, known := activationOf(a.Activation)
	if !ok || !ok2 || !known {
		return false
	}
	grid, gates, ok := GridsOf(x.View, gate.View)
	k := kernels.RMSNorm{N: grid.Width, Heads: grid.Rows, X: grid.Strides, Weight: typeOf(n.Input("norm")), Eps: a.Eps,
		Gated: true, Activation: activation, Gates: gates, Half: true, Packed: a.Packed}
	return ok && g.normalizes(k, grid.Tokens)
}

// roundsSum reports whether the device has the kernel of an add_norm that writes bf16.
func (g *graph) roundsSum(n *ir.Op, a *ir.AddNormAttrs) bool {
	x, ok := g.numbers(n.Input("x"))
	if !ok {
		return false
	}
	grid, ok := RowsOf(x.Shape, x.Strides, width(n.Input("x")))
	k := kernels.RMSNorm{N: grid.Width, Heads: grid.Rows, X: grid.Strides, Pre: typeOf(n.Input("pre")), PreEps: a.PreEps,
		Add: true, Scale: typeOf(n.Input("scale")), Sum: a.Kept, Weight: typeOf(n.Input("norm")), Eps: a.Eps, Half: true,
		Packed: a.Packed}
	return ok && g.normalizes(k, grid.Tokens)
}

// typeOf is the dtype in which kernels of norms read a weight; None where there is no weight.
func typeOf(weight *ir.Value) kernels.DType {
	if weight == nil {
		return kernels.None
	}
	return kernels.F32
}
