package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// rowsOfExperts merges the norm before a mixture of experts into it. For sorted experts it adds an operation that
// brings rows into the form that tiled products take.
func (g *graph) rowsOfExperts(op *ir.Op) {
	if op.Def.Name == "sorted_experts" {
		g.prepareExperts(op)
		return
	}
	g.normOfExperts(op)
}

// productOfExperts describes the input rows of a mixture as those of a product, so that the functions that merge norms
// into products and copy their rows work for mixtures too.
func (g *graph) productOfExperts(op *ir.Op) *product {
	form, _ := weightOf(op.Input("gate"))
	x := op.Input("x")
	return &product{x: x, form: form, rows: elements(x) / max(form.cols, 1)}
}

func (g *graph) normOfExperts(op *ir.Op) {
	p := g.productOfExperts(op)
	norm := g.normOf(p)
	k, _ := Experts(op)
	if k.Norm, k.Eps = normKind(norm); norm != nil && !g.fewExperts(k, p.rows) {
		norm = nil
	}
	l, _ := g.Layout(p.x)
	if norm == nil && l.IsDense() {
		return
	}
	asked, eps, weight := normAttr(norm)
	g.replace(op, func(b *ir.Builder) []*ir.Value {
		n := op.Like()
		switch a := op.Attrs.(type) {
		case *ir.ExpertsAttrs:
			n.Attrs = &ir.ExpertsAttrs{Norm: asked, Eps: eps, Activation: a.Activation}
		case *ir.RoutedExpertsAttrs:
			n.Attrs = &ir.RoutedExpertsAttrs{K: a.K, Precise: a.Precise, Norm: asked, Eps: eps,
				Activation: a.Activation}
		}
		n.Args[0] = []ir.Arg{ir.Use(g.rowsOf(b, p.x, norm))}
		if weight != nil {
			n.Args[slices.IndexFunc(op.Def.Operands,
				func(o ir.Operand) bool { return o.Name == "norm" })] = []ir.Arg{ir.Use(weight)}
		}
		return b.Append(n).Results
	})
}

// prepareExperts adds the operation that brings the rows of sorted experts into the form for tiles.
func (g *graph) prepareExperts(op *ir.Op) {
	p, packed := g.productOfExperts(op), 0
	k, ok := Experts(op)
	exact := !ok || !g.RoundsExperts(k, p.rows)
	if ok && g.InLanes(ManyExperts(k, exact), p.rows).Lanes {
		packed = kernels.InLanes
	}
	g.replace(op, func(b *ir.Builder) []*ir.Value {
		n := op.Like()
		n.Args[0] = []ir.Arg{ir.Use(g.prepare(b, p, exact, packed))}
		return b.Append(n).Results
	})
}
