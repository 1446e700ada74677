package gpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// normed is an RMS norm that is part of another kernel: of a product's rows before it, or of a sum's result.
type normed struct {
	eps    float32
	weight *value // nil for none
}

// normOperand returns the norm that an operation contains, whose weight has n elements. It returns nil where asked is
// false, and false where the weight is not what kernels take.
func (b *binder) normOperand(operand string, asked bool, eps float32, n int) (*normed, bool) {
	if !asked {
		return nil, true
	}
	if b.Op.Input(operand) == nil {
		return &normed{eps: eps}, true
	}
	w := b.vector(operand, n)
	return &normed{eps, w}, w != nil
}

// vectors returns the norm as the fields of kernels.Vectors: kind, epsilon and weight. n may be nil.
func (n *normed) vectors() (kernels.Norm, float32, operand) {
	switch {
	case n == nil:
		return kernels.NoNorm, 0, operand{}
	case n.weight == nil:
		return kernels.NormPlain, n.eps, operand{}
	}
	return kernels.NormF32, n.eps, bytesOf(n.weight)
}

// normalize adds a kernel that normalizes the rows of x into out. With a gate it multiplies them by activation(gate).
func (b *binder) normalize(x *value, norm normed, gate *value, activation kernels.Activation, out *value) bool {
	g, ok := x.grid()
	var gates kernels.Rows
	if gate != nil {
		g, gates, ok = lower.GridsOf(x.view(), gate.view())
	}
	if !ok {
		return false
	}
	k := kernels.RMSNorm{N: g.Width, Heads: g.Rows, X: g.Strides, Eps: norm.eps, Gated: gate != nil,
		Activation: activation, Half: out.format == bf16, Packed: out.packed, Unaligned: unaligned(x)}
	a := kernels.NormArguments[operand]{X: bytesOf(x), Out: bytesOf(out), Step: b.stepAt(g.Tokens, nil)}
	if norm.weight != nil {
		k.Weight, a.Weight = kernels.F32, bytesOf(norm.weight)
	}
	if gate != nil {
		k.Gates, k.Unaligned, a.Gate = gates, unaligned(x, gate), bytesOf(gate)
	}
	l, err := k.Launch(g.Tokens)
	return b.launch("norm", l, err, a)
}

// bindGatedNorm normalizes rows and multiplies them by an activation of a gate.
func bindGatedNorm(b *binder) bool {
	a, x, gate := ir.Attrs[ir.GatedNormAttrs](b.Op), b.floats("x"), b.floats("gate")
	if x == nil || gate == nil || len(x.shape) == 0 {
		return false
	}
	norm, ok := b.normOperand("norm", true, a.Eps, x.shape[len(x.shape)-1])
	activation, err := kernels.ActivationNamed(a.Activation)
	out := b.result(0, nil)
	if out != nil && a.Prepared {
		out.round(a.Packed)
	}
	return ok && err == nil && out != nil && b.normalize(x, *norm, gate, activation, out)
}

// sumOf holds a sum of rows, (x or norm(x)) + residual, times a scale, and the operands of its kernel.
type sumOf struct {
	kernel    kernels.RMSNorm
	tokens    int
	arguments kernels.NormArguments[operand]
}

// sumOf collects the operands of a sum. It returns nil where they are not what kernels take.
func (b *binder) sumOf(preEps float32) *sumOf {
	x, residual := b.floats("x"), b.floats("residual")
	if x == nil || residual == nil || !residual.isDense() || len(x.shape) == 0 {
		return nil
	}
	g, ok := lower.RowsOf(x.shape, x.stride, x.shape[len(x.shape)-1])
	pre, ok2 := b.normOperand("pre", b.Op.Input("pre") != nil, preEps, g.Width)
	if !ok || !ok2 {
		return nil
	}
	s := &sumOf{kernel: kernels.RMSNorm{N: g.Width, Heads: g.Rows, X: g.Strides, Add: true, Unaligned: unaligned(x,
		residual)}, tokens: g.Tokens,
		arguments: kernels.NormArguments[operand]{X: bytesOf(x), Residual: bytesOf(residual), Step: b.stepAt(g.Tokens,
			nil)}}
	if pre != nil {
		s.kernel.Pre, s.kernel.PreEps, s.arguments.Pre = kernels.F32, pre.eps, bytesOf(pre.weight)
	}
	if b.Op.Input("scale") != nil {
		scale := b.floats("scale")
		if scale == nil || !scale.slot.fixed {
			return nil
		}
		s.kernel.Scale, s.arguments.Scale = kernels.F32, bytesOf(scale)
	}
	return s
}

func (s *sumOf) launch(b *binder) bool {
	l, err := s.kernel.Launch(s.tokens)
	return b.launch("norm", l, err, s.arguments)
}

// bindResidualAdd binds a residual addition of rows.
func bindResidualAdd(b *binder) bool {
	s, out := b.sumOf(ir.Attrs[ir.SumAttrs](b.Op).PreEps), b.result(0, nil)
	if s == nil || out == nil {
		return false
	}
	s.kernel.Sum, s.kernel.SumOnly, s.arguments.Sum = true, true, bytesOf(out)
	return s.launch(b)
}

// bindAddNorm binds a residual addition of rows and the norm of the sum.
func bindAddNorm(b *binder) bool {
	a := ir.Attrs[ir.AddNormAttrs](b.Op)
	s, out := b.sumOf(a.PreEps), b.result(0, nil)
	if s == nil || out == nil {
		return false
	}
	norm, ok := b.normOperand("norm", true, a.Eps, s.kernel.N)
	if !ok {
		return false
	}
	if a.Prepared {
		out.round(a.Packed)
		s.kernel.Half, s.kernel.Packed = true, a.Packed
	}
	s.kernel.Eps, s.arguments.Out = norm.eps, bytesOf(out)
	if norm.weight != nil {
		s.kernel.Weight, s.arguments.Weight = kernels.F32, bytesOf(norm.weight)
	}
	if a.Kept {
		sum := b.result(1, nil)
		if sum == nil {
			return false
		}
		s.kernel.Sum, s.arguments.Sum = true, bytesOf(sum)
	}
	return s.launch(b)
}
