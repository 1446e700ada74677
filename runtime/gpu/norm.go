package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// grid sees a value as rows of its last dim: tokens of rows each.
type grid struct {
	tokens, rows, width int
	strides             kernels.Rows
}

// grid fails where the dims before the last are not evenly spaced in two levels at most.
func (v *value) grid() (g grid, ok bool) {
	last := len(v.shape) - 1
	if last < 0 {
		return grid{1, 1, 1, kernels.Rows{Token: 1, Row: 1}}, true
	}
	g = grid{tokens: 1, rows: 1, width: v.shape[last]}
	if g.width != 1 && v.stride[last] != 1 {
		return g, false
	}
	dims, strides := v.shape[:last], v.stride[:last]
	for i := last; i >= 0; i-- {
		n, stride, ok := strided.Merge(dims[i:], strides[i:])
		m, outer, ok2 := strided.Merge(dims[:i], strides[:i])
		if !ok {
			break
		}
		if ok2 {
			g.tokens, g.rows = m, n
			g.strides = kernels.Rows{Token: outer, Row: stride}
			if n == 1 {
				g.strides.Row = g.width
			}
			if m == 1 {
				g.strides.Token = n * max(g.strides.Row, g.width)
			}
			return g, true
		}
	}
	return g, false
}

// same reports whether v has all elements of another value in their order.
func (v *value) same(as *value) bool {
	return v.slot == as.slot && v.offset == as.offset && v.len() == as.len() && v.isDense() && as.isDense()
}

// normOf is RMS normalization that is deferred: out = x / rms(x) · weight.
type normOf struct {
	x, weight *value // weight may be nil
	eps       float32
	out       *value
}

func (n *normOf) emit(b *binder) { n.run(b, nil, kernels.Identity, n.out) }

// run normalizes into out, times an activation of gate where that is set.
func (n *normOf) run(b *binder, gate *value, activation kernels.Activation, out *value) bool {
	g, ok := n.x.grid()
	if !ok {
		return false
	}
	k := kernels.RMSNorm{N: g.width, Heads: g.rows, X: g.strides, Eps: n.eps, Gated: gate != nil, Activation: activation}
	weight := n.x
	if n.weight != nil {
		k.Weight, weight = kernels.F32, n.weight
	}
	gated := n.x
	if gate != nil {
		gg, ok := gate.gridAs(g)
		if !ok {
			return false
		}
		k.Gates, gated = gg, gate
	}
	k.Unaligned = unaligned(n.x, gated)
	l, err := k.Launch(g.tokens)
	x := reads(n.x)
	return b.dispatch("norm", l, err, x, x, x, x, reads(weight), reads(gated), x, writes(out), b.stepAt(g.tokens, nil))
}

// unaligned reports whether one of the values does not begin at a multiple of 16 bytes.
func unaligned(values ...*value) bool {
	return slices.ContainsFunc(values, func(v *value) bool { return v.at()%16 != 0 })
}

// gatedNormOf is a normalization of heads, times an activation of a gate, that is deferred: a product of one token does it
// while it reads that.
type gatedNormOf struct {
	norm       *normOf
	gate       *value
	activation kernels.Activation
	out        *value
}

func (g *gatedNormOf) emit(b *binder) { g.norm.run(b, g.gate, g.activation, g.out) }

// gridAs gives the strides of v's rows, as many as g has and in the same two levels.
func (v *value) gridAs(g grid) (kernels.Rows, bool) {
	stride, ok := strided.Reshape(v.shape, v.stride, []int{g.tokens, g.rows, g.width})
	if !ok || v.len() != g.tokens*g.rows*g.width || g.width != 1 && stride[2] != 1 {
		return kernels.Rows{}, false
	}
	return kernels.Rows{Token: stride[0], Row: stride[1]}, true
}

// bindNorm normalizes rows. Where the rows are a sum that is deferred, one kernel makes both.
func bindNorm(b *binder) bool {
	x := b.floats("x")
	if x == nil || len(x.shape) == 0 {
		return false
	}
	width := x.shape[len(x.shape)-1]
	n := &normOf{x: x, eps: ir.Attrs[ir.NormAttrs](b.op).Eps}
	if b.op.Input("weight") != nil {
		if n.weight = b.vector("weight", width); n.weight == nil {
			return false
		}
	}
	if s, ok := x.slot.pending.(*sumOf); ok && x.same(s.out) && s.out.shape[len(s.out.shape)-1] == width {
		b.take(x.slot)
		n.out = b.result(0, nil)
		return n.out != nil && s.run(b, n, !b.only("x"))
	}
	g, ok := x.grid()
	if !ok {
		if n.x = b.dense(x); n.x == nil {
			return false
		}
		g, _ = n.x.grid()
	}
	if _, err := (kernels.RMSNorm{N: g.width, Heads: g.rows, X: g.strides, Eps: n.eps}).Launch(g.tokens); err != nil {
		return false
	}
	if n.out = b.result(0, nil); n.out == nil || !slices.Equal(n.out.shape, x.shape) {
		return false
	}
	b.later(n.out.slot, n, n.x)
	return true
}

// sumOf is the sum at the end of a part of a block, which is deferred until it is normalized:
// out = (x, or pre(x)) + residual, times scale.
type sumOf struct {
	x, residual *value
	pre         *normOf // of which x is the input
	scale       *value
	out         *value
}

func (s *sumOf) emit(b *binder) { s.run(b, nil, true) }

// run adds, and normalizes where after is set; sum says that the sum itself is needed.
func (s *sumOf) run(b *binder, after *normOf, sum bool) bool {
	g, ok := s.x.gridLike(s.out)
	if !ok {
		return false
	}
	k := kernels.RMSNorm{N: g.width, Heads: g.rows, X: g.strides, Add: true, Sum: sum, SumOnly: after == nil, Unaligned: unaligned(s.x, s.residual)}
	x := reads(s.x)
	pre, scale, weight, out, total := x, x, x, x, x
	if s.pre != nil {
		k.Pre, k.PreEps, pre = kernels.F32, s.pre.eps, reads(s.pre.weight)
	}
	if s.scale != nil {
		k.Scale, scale = kernels.F32, reads(s.scale)
	}
	if after != nil {
		k.Eps, out = after.eps, writes(after.out)
		if after.weight != nil {
			k.Weight, weight = kernels.F32, reads(after.weight)
		}
	}
	if sum {
		total = writes(s.out)
	}
	l, err := k.Launch(g.tokens)
	if !b.dispatch("norm", l, err, x, pre, reads(s.residual), scale, weight, x, total, out, b.stepAt(g.tokens, nil)) {
		return false
	}
	if s.pre != nil && after != nil && g.tokens == 1 && !k.Unaligned {
		b.plan.steps[len(b.plan.steps)-1].norm = &normedSum{s, after, sum}
	}
	return true
}

// normedSum is a step that adds, and normalizes the sum. kept says that something else reads the sum.
type normedSum struct {
	*sumOf
	after *normOf
	kept  bool
}

// normedSum is the last step, where that is the sum of which x is the normalization.
func (b *binder) normedSum(x *value) *normedSum {
	if len(b.plan.steps) == 0 {
		return nil
	}
	n := b.plan.steps[len(b.plan.steps)-1].norm
	if n == nil || !x.same(n.after.out) {
		return nil
	}
	return n
}

// describe tells a product about its vector, and gives the operands x and norm.
func (n *normedSum) describe(v *kernels.Vectors) (x, norm operand) {
	x = reads(n.x)
	v.Norm, v.Eps, norm = n.after.vectors(x)
	v.Sum = &kernels.VectorSum{Eps: n.pre.eps, Scaled: n.scale != nil, Kept: n.kept}
	return x, norm
}

// takeBack takes the step back, whose work the next step does: with these operands behind those of the product.
func (n *normedSum) takeBack(b *binder) []operand {
	b.plan.steps = b.plan.steps[:len(b.plan.steps)-1]
	n.after.out.slot.first = never
	x := reads(n.x)
	out := []operand{reads(n.pre.weight), reads(n.residual), x, x}
	if n.scale != nil {
		out[2] = reads(n.scale)
	}
	if n.kept {
		out[3] = writes(n.out)
	}
	return out
}

// gridLike is the grid of v for a result whose rows are as long as out's.
func (v *value) gridLike(out *value) (grid, bool) {
	width := out.shape[len(out.shape)-1]
	shape := []int{v.len() / max(width, 1), 1, width}
	stride, ok := strided.Reshape(v.shape, v.stride, shape)
	if !ok || width != 1 && stride[2] != 1 {
		return grid{}, false
	}
	return grid{shape[0], 1, width, kernels.Rows{Token: stride[0], Row: width}}, true
}

// deferSum defers a + b for rows of one shape: the second term must be dense. It takes over a normalization of
// the first that nothing else reads.
func (b *binder) deferSum(x, residual *value, operand string) bool {
	if len(x.shape) == 0 || !slices.Equal(x.shape, residual.shape) || !residual.isDense() {
		return false
	}
	s := &sumOf{x: x, residual: residual}
	if n, ok := x.slot.pending.(*normOf); ok && n.weight != nil && x.same(n.out) && b.only(operand) && n.out.shape[len(n.out.shape)-1] == x.shape[len(x.shape)-1] {
		s.pre, s.x = n, n.x
	}
	g, ok := s.x.gridLike(x)
	if !ok {
		return false
	}
	if _, err := (kernels.RMSNorm{N: g.width, Heads: 1, X: g.strides, Add: true, Sum: true, SumOnly: true}).Launch(g.tokens); err != nil {
		return false
	}
	if s.out = b.result(0, nil); s.out == nil || !slices.Equal(s.out.shape, x.shape) {
		return false
	}
	if s.pre != nil {
		b.take(x.slot)
	} else {
		b.flush(x.slot)
	}
	b.flush(residual.slot)
	b.later(s.out.slot, s, s.x, s.residual)
	return true
}
