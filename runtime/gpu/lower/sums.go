package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// sums merges a residual addition with the norm of its first term, the constant factor behind it, and the norm behind
// that.
func (g *graph) sums(op *ir.Op) {
	switch op.Def.Name {
	case "add":
		if !g.endsProduct(op) {
			g.sum(op)
		}
	case "multiply":
		g.scaled(op)
	case "rms_norm":
		g.normedSum(op)
	}
}

// sum replaces an add by residual_add. Its second term must be dense.
func (g *graph) sum(op *ir.Op) {
	x, y := op.Input("a"), op.Input("b")
	switch {
	case g.defined(x, "rms_norm") != nil && g.sumOf(op, x, y, g.normBefore(x)):
	case g.sumOf(op, y, x, g.normBefore(y)):
	default:
		g.sumOf(op, x, y, g.normBefore(x))
	}
}

// normBefore returns the norm with a weight whose whole result x is, if nothing else reads it; else nil.
func (g *graph) normBefore(x *ir.Value) *ir.Op {
	n := g.defined(x, "rms_norm")
	if n == nil || n.Input("weight") == nil || !g.isNorm(n) || !g.only(x) || width(n.Result()) != width(x) {
		return nil
	}
	return n
}

// isNorm reports whether a kernel can normalize the rows in their layout.
func (g *graph) isNorm(op *ir.Op) bool {
	l, ok := g.numbers(op.Input("x"))
	if !ok || len(l.Shape) == 0 {
		return false
	}
	if w := op.Input("weight"); w != nil && !isVector(w, l.Shape[len(l.Shape)-1]) {
		return false
	}
	grid, ok := GridOf(l.Shape, l.Strides)
	k := kernels.RMSNorm{N: grid.Width, Heads: grid.Rows, X: grid.Strides, Eps: normEps(op)}
	return ok && g.normalizes(k, grid.Tokens)
}

// normalizes reports whether the device has the kernel of a norm, for so many tokens.
func (g *graph) normalizes(k kernels.RMSNorm, tokens int) bool {
	return ask(g.Target, "allowed", k, tokens, func() bool { return g.Allowed(k.Launch(tokens)) })
}

func normEps(op *ir.Op) float32 { return ir.Attrs[ir.NormAttrs](op).Eps }

// sumOf replaces op by the sum of x and a residual. With pre it is the sum of pre's norm of x.
func (g *graph) sumOf(op *ir.Op, x, residual *ir.Value, pre *ir.Op) bool {
	l, ok := g.numbers(x)
	r, ok2 := g.numbers(residual)
	if !ok || !ok2 || len(l.Shape) == 0 || !slices.Equal(l.Shape, r.Shape) || !r.IsDense() ||
		!slices.Equal(shape(op.Result()), l.Shape) {
		return false
	}
	in, a, weight := x, &ir.SumAttrs{}, (*ir.Value)(nil)
	if pre != nil {
		in, weight, a.PreEps = pre.Input("x"), pre.Input("weight"), normEps(pre)
	}
	from, _ := g.numbers(in)
	grid, ok := RowsOf(from.Shape, from.Strides, width(x))
	k := kernels.RMSNorm{N: grid.Width, Heads: 1, X: grid.Strides, Add: true, Sum: true, SumOnly: true}
	if !ok || !g.normalizes(k, grid.Tokens) {
		return false
	}
	g.replace(op, func(b *ir.Builder) []*ir.Value {
		return b.Op("residual_add", a, shapedAs(b, in, x), residual, weight).Results
	})
	return true
}

// scaled merges the multiplication of a sum by a constant number into the sum.
func (g *graph) scaled(op *ir.Op) {
	x, y := op.Input("a"), op.Input("b")
	if elements(y) > elements(x) || elements(x) == 1 && len(shape(y)) > len(shape(x)) {
		x, y = y, x
	}
	s := g.defined(x, "residual_add")
	if s == nil || elements(y) != 1 || !isConstant(y) || s.Input("scale") != nil || !g.only(x) ||
		!slices.Equal(shape(x), shape(op.Result())) {
		return
	}
	g.replace(op, func(b *ir.Builder) []*ir.Value {
		scale := reshaped(b, y, nil)
		return b.Op("residual_add", s.Attrs, s.Input("x"), s.Input("residual"), s.Input("pre"), scale).Results
	})
}

// normedSum merges the norm of a sum into the sum.
func (g *graph) normedSum(op *ir.Op) {
	x := op.Input("x")
	s := g.defined(x, "residual_add")
	if s == nil || width(x) == 0 || width(x) != width(s.Result()) || op.Input("weight") != nil &&
		!isVector(op.Input("weight"), width(x)) {
		return
	}
	a := &ir.AddNormAttrs{PreEps: ir.Attrs[ir.SumAttrs](s).PreEps, Eps: normEps(op), Kept: !g.only(x)}
	g.replace(op, func(b *ir.Builder) []*ir.Value {
		n := b.Op("add_norm", a, s.Input("x"), s.Input("residual"), s.Input("pre"), s.Input("scale"),
			op.Input("weight"))
		if a.Kept {
			g.stand(op, s.Result(), n.Results[1])
		}
		return n.Results[:1]
	})
}

// gatedNorm merges a norm and the gate that its result is multiplied by.
func (g *graph) gatedNorm(op *ir.Op) {
	gate, x := op.Input("gate"), op.Input("x")
	n := g.defined(x, "rms_norm")
	if n == nil || !g.isNorm(n) || !g.only(x) || !slices.Equal(shape(gate), shape(x)) {
		return
	}
	l, ok := g.numbers(gate)
	from, ok2 := g.numbers(n.Input("x"))
	if !ok || !ok2 {
		return
	}
	if grid, _, ok := GridsOf(from.View, l.View); !ok || grid.Width != width(n.Result()) {
		return
	}
	a := &ir.GatedNormAttrs{Eps: normEps(n), Activation: ir.Attrs[ir.GLUAttrs](op).Activation}
	g.replace(op, func(b *ir.Builder) []*ir.Value {
		return b.Op("gated_norm", a, n.Input("x"), n.Input("weight"), gate).Results
	})
}
