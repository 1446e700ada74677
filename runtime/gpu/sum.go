package gpu

import (
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

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

// emit normalizes once more, for what reads the normalization although a product has taken the step: that of a pair is
// computed again, where something else reads it.
func (n *normedSum) emit(b *binder) { n.run(b, n.after, false) }

// takeBack takes the step back, whose work the next step does: with these operands behind those of the product.
func (n *normedSum) takeBack(b *binder) []operand {
	last, s := len(b.plan.steps)-1, n.after.out.slot
	s.first, s.pending, s.by = never, n, b.plan.steps[last].op
	for _, o := range b.plan.steps[last].operands {
		if o.write {
			b.writers[o.slot]--
		}
	}
	b.plan.steps = b.plan.steps[:last]
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

// ofSum computes a product of one row that is the normalization of a sum, which was the last step and is a part of the product now,
// where that streams its weights. Where something else reads the normalization, which would make it again, the step stays.
func (b *binder) ofSum(l *linearOf, epilogue kernels.Epilogue, extra *value, limit float32, out *value) bool {
	n := b.normedSum(l.x)
	// What is added may be the sum, which is not there before the kernel ends.
	if n == nil || !l.sole || len(l.siblings) > 1 || l.norm != nil || l.bias != nil || extra != nil {
		return false
	}
	v, _ := l.vectors()
	x, norm := n.describe(&v)
	k := kernels.MatVec{Vectors: v, N: l.w.rows, Epilogue: epilogue, Cap: limit}
	return n.join(b, "linear of a sum", k.Tunings(b.x.exe.machine), k.Launch, l.w.bytes(), append(l.w.operands(), x, norm, x, writes(out)))
}

// ofSum is ofSum of a product, for the pair.
func (p *pairOf) ofSum(b *binder) bool {
	n := b.normedSum(p.gate.x)
	other := func(l *linearOf) bool { return l != p.gate && l != p.up }
	if n == nil || !p.gate.sole || slices.ContainsFunc(p.gate.siblings, other) || p.gate.norm != nil {
		return false
	}
	k := p.kernel()
	x, norm := n.describe(&k.Vectors)
	return n.join(b, "glu of a sum", k.Tunings(b.x.exe.machine), k.Launch, p.bytes(), slices.Concat(p.first, p.second, []operand{x, norm, writes(p.out)}))
}

// join makes the sum's step a part of a product of so many bytes: a kernel fewer between two that stream their weights.
func (n *normedSum) join(b *binder, kind string, ways []kernels.Tuning, launch func(kernels.Tuning) (kernels.Launch, error), bytes int, operands []operand) bool {
	if len(ways) == 0 {
		return false
	}
	l, err := usable(b, ways, launch)
	if err != nil {
		return false
	}
	operands = slices.Concat(operands, n.takeBack(b), []operand{b.stepAt(1, nil)})
	b.dispatch(kind, l, nil, operands...)
	tuned(b, ways, launch)
	b.reading(bytes)
	return true
}
