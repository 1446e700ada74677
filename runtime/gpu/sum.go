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
	a := kernels.NormArguments[operand]{X: bytesOf(s.x), Residual: bytesOf(s.residual), Step: b.stepAt(g.tokens, nil)}
	if s.pre != nil {
		k.Pre, k.PreEps, a.Pre = kernels.F32, s.pre.eps, bytesOf(s.pre.weight)
	}
	if s.scale != nil {
		k.Scale, a.Scale = kernels.F32, bytesOf(s.scale)
	}
	if after != nil {
		k.Eps, a.Out = after.eps, bytesOf(after.out)
		if after.weight != nil {
			k.Weight, a.Weight = kernels.F32, bytesOf(after.weight)
		}
	}
	if sum {
		a.Sum = bytesOf(s.out)
	}
	l, err := k.Launch(g.tokens)
	if !b.launch("norm", l, err, a) {
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

// describe tells a product about its vector, and gives the weight of its norm.
func (n *normedSum) describe(v *kernels.Vectors) (norm operand) {
	v.Norm, v.Eps, norm = n.after.vectors()
	v.Sum = &kernels.VectorSum{Eps: n.pre.eps, Scaled: n.scale != nil, Kept: n.kept}
	return norm
}

// emit normalizes once more, for what reads the normalization although a product has taken the step: that of a pair is
// computed again, where something else reads it.
func (n *normedSum) emit(b *binder) { n.run(b, n.after, false) }

// summed is what a product is given to make its vector of.
type summed struct{ x, before, residual, scale, out operand }

// takeBack takes the step back, whose work the next step does.
func (n *normedSum) takeBack(b *binder) summed {
	last, s := len(b.plan.steps)-1, n.after.out.slot
	s.first, s.pending, s.by = never, n, b.plan.steps[last].op
	for _, o := range b.plan.steps[last].operands {
		if o.write {
			b.writers[o.slot]--
		}
	}
	b.plan.steps = b.plan.steps[:last]
	out := summed{x: bytesOf(n.x), before: bytesOf(n.pre.weight), residual: bytesOf(n.residual)}
	if n.scale != nil {
		out.scale = bytesOf(n.scale)
	}
	if n.kept {
		out.out = bytesOf(n.out)
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
	norm := n.describe(&v)
	k := kernels.MatVec{Vectors: v, N: l.w.rows, Epilogue: epilogue, Cap: limit}
	return n.join(b, "linear of a sum", k.Tunings(b.x.exe.machine), k.Launch, l.w.bytes(), func(s summed) kernels.Arguments[operand] {
		return kernels.StreamSumOneArguments[operand]{W: l.w.arguments(), X: s.x, Norm: norm, Y: bytesOf(out),
			Before: s.before, Residual: s.residual, Scale: s.scale, Out: s.out, Step: b.stepAt(1, nil)}
	})
}

// ofSum is ofSum of a product, for the pair.
func (p *pairOf) ofSum(b *binder) bool {
	n := b.normedSum(p.gate.x)
	other := func(l *linearOf) bool { return l != p.gate && l != p.up }
	if n == nil || !p.gate.sole || slices.ContainsFunc(p.gate.siblings, other) || p.gate.norm != nil {
		return false
	}
	k := p.kernel()
	norm := n.describe(&k.Vectors)
	return n.join(b, "glu of a sum", k.Tunings(b.x.exe.machine), k.Launch, p.bytes(), func(s summed) kernels.Arguments[operand] {
		return kernels.StreamSumGLUArguments[operand]{W0: p.first, W1: p.second, X: s.x, Norm: norm, Y: bytesOf(p.out),
			Before: s.before, Residual: s.residual, Scale: s.scale, Out: s.out, Step: b.stepAt(1, nil)}
	})
}

// join makes the sum's step a part of a product of so many bytes: a kernel fewer between two that stream their weights.
func (n *normedSum) join(b *binder, kind string, ways []kernels.Tuning, launch func(kernels.Tuning) (kernels.Launch, error), bytes int, arguments func(summed) kernels.Arguments[operand]) bool {
	if len(ways) == 0 {
		return false
	}
	l, err := usable(b, ways, launch)
	if err != nil {
		return false
	}
	b.launch(kind, l, nil, arguments(n.takeBack(b)))
	tuned(b, ways, launch)
	b.reading(bytes)
	return true
}
