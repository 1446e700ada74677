package lower

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// pair merges activation(gate) · up and its two products, of the same rows, into one operation. gate and up may be
// halves of one product.
func (g *graph) pair(op *ir.Op) {
	gate, up, n := g.halves(op.Input("gate"), op.Input("x"))
	if gate == nil || elements(op.Result()) != gate.rows*n || !gate.few && gate.library {
		return // two halves at full speed are faster than both in one kernel
	}
	var second *ir.Value
	if up != nil {
		second = up.w
	}
	name, b := ir.Attrs[ir.GLUAttrs](op).Activation, g.draft()
	if gate.few {
		norm, a, weight := g.normOf(gate), &ir.MatvecGLUAttrs{Activation: name}, (*ir.Value)(nil)
		a.Norm, a.Eps, weight = normAttr(norm)
		k, ok := MatVecGLU(b.Op("matvec_glu", a, g.rowsOf(b, gate.x, norm), gate.w, second, weight))
		if ok && ask(g.Target, "usable", k, 0,
			func() bool { return usable(g.Target, k.Tunings(g.Machine), k.Launch) }) {
			g.put(b, op)
		}
		return
	}
	a := &ir.MatmulGLUAttrs{Exact: gate.exact, Activation: name, Packed: gate.packed}
	k, rows, ok := MatMulGLU(b.Op("matmul_glu", a, g.prepare(b, gate, gate.exact, gate.packed), gate.w, second))
	launch := func(t kernels.Tile) (kernels.Launch, error) { return k.Launch(t, rows) }
	if ok && ask(g.Target, "usable", k, rows, func() bool {
		return usable(g.Target, k.Tiles(g.Machine, rows), launch)
	}) {
		g.put(b, op)
	}
}

// halves returns the products whose results two values are, each with n columns. second is nil where both are halves of
// one product.
func (g *graph) halves(gate, up *ir.Value) (first, second *product, n int) {
	l, ok := g.numbers(gate)
	u, ok2 := g.numbers(up)
	if !ok || !ok2 || l.Base.Def == nil || u.Base.Def == nil {
		return nil, nil, 0
	}
	p, q := g.productOf(l.Base), g.productOf(u.Base)
	if p == nil || q == nil || p.bias != nil || q.bias != nil {
		return nil, nil, 0
	}
	if l.Base == u.Base {
		n = p.form.rows / 2
		columns := func(l Layout) bool {
			_, _, stride, ok := strided.Rows(l.Shape, l.Strides)
			return len(l.Shape) > 0 && l.Shape[len(l.Shape)-1] == n && strided.Elements(l.Shape) == p.rows*n &&
				(p.rows == 1 || ok && stride == p.form.rows)
		}
		if p.form.rows != 2*n || !columns(l) || !columns(u) || l.Offset != 0 || u.Offset != n {
			return nil, nil, 0
		}
		return p, nil, n
	}
	whole := func(l Layout) bool { base, _ := g.Layout(l.Base); return l.Same(base) }
	if !whole(l) || !whole(u) || q.form != p.form || p.x != q.x {
		return nil, nil, 0
	}
	return p, q, p.form.rows
}

// ofHeads merges the gated norm of heads into the product that follows it, for one row.
func (g *graph) ofHeads(op *ir.Op) {
	if len(op.Results) != 1 {
		return
	}
	a, x, w := ir.Attrs[ir.MatvecAttrs](op), op.Input("x"), op.Operand("weights")[0].Value
	h := g.defined(x, "gated_norm")
	form, ok := weightOf(w)
	if h == nil || !ok || elements(x) != form.cols || a.Norm || op.Input("bias") != nil {
		return
	}
	of := ir.Attrs[ir.GatedNormAttrs](h)
	in, gate := h.Input("x"), h.Input("gate")
	l, ok := g.numbers(in)
	gl, ok2 := g.numbers(gate)
	if !ok || !ok2 || !l.IsDense() || !gl.IsDense() || elements(in) != elements(gate) || l.Offset%4 != 0 ||
		gl.Offset%4 != 0 {
		return // the kernel reads float4
	}
	head, activation := l.Shape[len(l.Shape)-1], of.Activation
	if done := g.activated(gl, activation); done != nil {
		gate, activation = done, ""
	}
	b := g.draft()
	n := &ir.MatvecHeadsAttrs{Head: head, Eps: of.Eps, Activation: activation, Cap: a.Cap}
	k, ok := MatVec(b.Op("matvec_heads", n, shapedAs(b, in, x), w, h.Input("norm"), gate, op.Input("extra")))
	if ok && usable(g.Target, k.Tunings(g.Machine), k.Launch) {
		g.put(b, op)
	}
}

// activated returns the copy of a gate that already has the activation applied, if the kernel of its product has made
// one; else nil.
func (g *graph) activated(gate Layout, activation string) *ir.Value {
	op := gate.Base.Def
	if op == nil || op.Def.Name != "matvec_conv" {
		return nil
	}
	a := ir.Attrs[ir.MatvecConvAttrs](op)
	if a.Activation != activation || op.Results[a.Of] != gate.Base || gate.Offset != a.First ||
		strided.Elements(gate.Shape) != a.Rows {
		return nil
	}
	return op.Results[len(op.Results)-1]
}

// ofSum merges a residual sum and its norms into the product of one row that follows, if that kernel streams its
// weights. A kernel between two products that stream is saved.
func (g *graph) ofSum(op *ir.Op) {
	switch a := op.Attrs.(type) {
	case *ir.MatvecAttrs:
		if a.Norm || len(op.Results) != 1 || op.Input("extra") != nil || op.Input("bias") != nil {
			return
		}
	case *ir.MatvecGLUAttrs:
		if a.Norm {
			return
		}
	}
	x := op.Input("x")
	s := g.defined(x, "add_norm")
	if s == nil || g.source(x) != s.Results[0] || s.Input("pre") == nil || elements(x) != width(x) || !g.only(x) {
		return
	}
	l, _ := g.numbers(s.Input("x"))
	r, _ := g.numbers(s.Input("residual"))
	if l.Offset%4 != 0 || r.Offset%4 != 0 {
		return
	}
	of, b := ir.Attrs[ir.AddNormAttrs](s), g.draft()
	a := &ir.MatvecSumAttrs{PreEps: of.PreEps, Eps: of.Eps, Kept: of.Kept}
	operands := []any{shapedAs(b, s.Input("x"), x), shapedAs(b, s.Input("residual"), x), s.Input("pre"),
		s.Input("scale"), s.Input("norm")}
	var n *ir.Op
	var runs bool
	if op.Def.Name == "matvec" {
		a.Cap = ir.Attrs[ir.MatvecAttrs](op).Cap
		n = b.Op("matvec_sum", a, append(operands, op.Operand("weights")[0].Value)...)
		k, ok := MatVec(n)
		runs = ok && usable(g.Target, k.Tunings(g.Machine), k.Launch)
	} else {
		a.Activation = ir.Attrs[ir.MatvecGLUAttrs](op).Activation
		n = b.Op("matvec_glu_sum", a, append(operands, op.Input("gate"), op.Input("up"))...)
		k, ok := MatVecGLU(n)
		runs = ok && usable(g.Target, k.Tunings(g.Machine), k.Launch)
	}
	if !runs {
		return
	}
	g.insert(b, op)
	if a.Kept {
		g.stand(op, s.Results[1], n.Results[1])
	}
	g.stand(op, op.Result(), n.Results[0])
	g.drop(op)
}
