package lower

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// shared is a shared expert, which every token uses: sigmoid(score) · down(activation(gate) · up), with the same
// activation as the other experts. If up is nil, gate has the rows of both.
type shared struct {
	gate, up, down *ir.Value // weights
	score          *ir.Value
}

// sharedBy returns the shared expert whose result v is. It returns nil where v is something else, or has another shape
// or weight format than the mixture.
func (m *mixture) sharedBy(g *graph, v *ir.Value) *shared {
	term := g.gatedRows(v)
	if term == nil || m.router == nil && !m.sorted {
		return nil
	}
	score, _ := g.Layout(term.Input("gate"))
	l := g.defined(term.Input("x"), "linear")
	if l == nil || strided.Elements(score.Shape) != m.tokens || !score.IsDense() || l.Input("bias") != nil {
		return nil
	}
	p := g.defined(l.Input("x"), "glu")
	if p == nil || !isLike(l.Input("weight"), m.down, m.down.rows) ||
		ir.Attrs[ir.GLUAttrs](p).Activation != m.activation {
		return nil
	}
	s := &shared{down: l.Input("weight"), score: term.Input("gate")}
	var x *ir.Value
	if s.gate, s.up, x = g.pairOf(p, m.gate.rows); s.gate == nil || g.source(x) != g.source(m.op.Input("x")) {
		return nil
	}
	rows := m.gate.rows
	if s.up == nil {
		rows *= 2
	}
	if !isLike(s.gate, m.gate, rows) || s.up != nil && !isLike(s.up, m.gate, rows) || !g.takesShared(m) {
		return nil
	}
	return s
}

// isLike reports whether w is a matrix of this number of rows, in the format and with the columns of those of a stack.
func isLike(w *ir.Value, stack weight, rows int) bool {
	f, ok := weightOf(w)
	return ok && f.Format == stack.Format && f.count == 1 && f.rows == rows && f.cols == stack.cols
}

// takesShared reports whether the kernels of a mixture take a shared expert, too.
func (g *graph) takesShared(m *mixture) bool {
	k := m.kernel()
	if k.Shared = true; m.sorted {
		return g.sharedAmongSorted(k, m.tokens)
	}
	return g.fewExperts(k, m.tokens)
}

// sharedAmongSorted reports whether the shared expert is one of sorted_experts. It is so only if vectors are in the
// order of lanes; other tiles have not been measured.
func (t *Target) sharedAmongSorted(k kernels.Experts, tokens int) bool {
	many := ManyExperts(k, !t.RoundsExperts(k, tokens))
	return t.InLanes(many, tokens).Lanes && t.sortedExperts(many, tokens)
}

// product returns the operands of the linear or linears whose result v is a part of, and the layout of that result. It
// returns nil where there is none, or it has a bias.
func (g *graph) product(v *ir.Value) (x, weight *ir.Value, result Layout) {
	l, ok := g.Layout(v)
	if !ok || l.Base.Def == nil {
		return nil, nil, l
	}
	of, _ := g.Layout(l.Base)
	switch op := l.Base.Def; op.Def.Name {
	case "linear":
		if op.Input("bias") == nil {
			return op.Input("x"), op.Input("weight"), of
		}
	case "linears":
		return op.Input("x"), op.Operand("weights")[l.Base.Index].Value, of
	}
	return nil, nil, l
}

// pairOf returns the two weights whose products with x are the operands of a glu, each with n rows. Both are the same
// value where they are halves of one weight.
func (g *graph) pairOf(glu *ir.Op, n int) (gate, up, x *ir.Value) {
	a, _ := g.Layout(glu.Input("gate"))
	c, _ := g.Layout(glu.Input("x"))
	ax, aw, of := g.product(glu.Input("gate"))
	cx, cw, other := g.product(glu.Input("x"))
	if aw == nil || cw == nil || g.source(ax) != g.source(cx) {
		return nil, nil, nil
	}
	if a.Base != c.Base {
		if !a.Same(of) || !c.Same(other) {
			return nil, nil, nil
		}
		return aw, cw, ax
	}
	columns := of.Shape[len(of.Shape)-1]
	rows := strided.Elements(of.Shape) / max(columns, 1)
	half := func(l Layout, first int) bool {
		if len(l.Shape) == 0 || l.Shape[len(l.Shape)-1] != n || strided.Elements(l.Shape) != rows*n ||
			l.Offset != first {
			return false
		}
		_, _, stride, ok := strided.Rows(l.Shape, l.Strides)
		return ok && (rows == 1 || stride == columns)
	}
	if columns != 2*n || !half(a, 0) || !half(c, n) {
		return nil, nil, nil
	}
	return aw, nil, ax
}
