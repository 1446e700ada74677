package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// elements adds a kernel that computes out = f(x...) element by element, with operands broadcast. It returns false
// where the operands have more dims than kernels take.
func (b *binder) elements(kind, f string, out *value, x ...*value) bool {
	strides := make([][]int, 0, len(x)+1)
	for _, v := range append(slices.Clone(x), out) {
		s := make([]int, len(out.shape))
		for i := range v.shape {
			j := i + len(out.shape) - len(v.shape)
			if j < 0 || v.shape[i] != 1 && v.shape[i] != out.shape[j] {
				return false
			}
			if v.shape[i] != 1 {
				s[j] = v.stride[i]
			}
		}
		strides = append(strides, s)
	}
	shape, strides := packDims(out.shape, strides)
	// The size of the first dim is an argument of the kernel, not a definition. So one compiled kernel serves chunks of
	// any length.
	box, rows := make(kernels.Box, len(shape)), 1
	for i, d := range shape {
		box[i] = kernels.Fixed(d)
	}
	if len(box) > 0 {
		box[0], rows = kernels.PerToken(1), shape[0]
	}
	place := func(v *value, s []int) kernels.Place {
		p := kernels.Place{DType: v.format.kernelType(), Strides: make([]kernels.Extent, len(s))}
		for i, n := range s {
			p.Strides[i] = kernels.Fixed(n)
		}
		return p
	}
	k := kernels.Elementwise{Op: f, Box: box, Out: place(out, strides[len(x)])}
	a := kernels.ElementwiseArguments[operand]{Out: bytesOf(out), Step: b.stepAt(rows, nil)}
	operands := [...]*operand{&a.X0, &a.X1, &a.X2}
	for i, v := range x {
		k.In = append(k.In, place(v, strides[i]))
		*operands[i] = bytesOf(v)
	}
	l, err := k.Launch(rows)
	return b.launch(kind, l, err, a)
}

// packDims drops dims of size 1 and merges neighbouring dims wherever one stride per operand covers both.
func packDims(dims []int, strides [][]int) (shape []int, packed [][]int) {
	packed = make([][]int, len(strides))
	for i, d := range dims {
		if d == 1 {
			continue
		}
		last := len(shape) - 1
		even := last >= 0
		for j, s := range strides {
			even = even && packed[j][last] == s[i]*d
		}
		if even {
			shape[last] *= d
		} else {
			shape = append(shape, d)
		}
		for j, s := range strides {
			if even {
				packed[j][last] = s[i]
			} else {
				packed[j] = append(packed[j], s[i])
			}
		}
	}
	return shape, packed
}

// dense returns v as float32 in row-major order, copied if it lies otherwise. It returns nil where no kernel can copy
// it.
func (b *binder) dense(v *value) *value {
	if v.isDense() && v.format == f32 {
		return v
	}
	if v.format == i32 {
		return nil
	}
	return b.copied(v)
}

// copied returns a copy of v as float32 in row-major order, in memory of its own. It returns nil where no kernel can
// copy it.
func (b *binder) copied(v *value) *value {
	n := &value{place: onDevice, dtype: v.dtype, shape: v.shape, slot: b.scratch(4 * v.len()),
		stride: strided.RowMajor(v.shape)}
	if !b.elements("copy", "copy", n, v) {
		return nil
	}
	return n
}

// function binds an elementwise function. The result has the memory order of the first operand that has its shape.
func (b *binder) function(f string, x ...*value) bool {
	shape, ok := b.Dims(b.Op.Result().Type)
	if !ok || len(shape) > maxRank {
		return false
	}
	var strides []int
	for _, v := range x {
		if v == nil {
			return false
		}
		if strides == nil && slices.Equal(shape, v.shape) {
			strides = strided.InOrder(v.shape, v.stride)
		}
	}
	out := b.result(0, strides)
	return out != nil && out.dtype.IsFloat() && b.elements(b.Op.Def.Name, f, out, x...)
}

// bindUnary computes functions of one operand.
func bindUnary(b *binder) bool { return b.function(b.Op.Def.Name, b.floats("x")) }

// bindBinary computes functions of two operands.
func bindBinary(b *binder) bool { return b.function(b.Op.Def.Name, b.floats("a"), b.floats("b")) }

// bindCopy binds a copy into row-major order.
func bindCopy(b *binder) bool {
	x, out := b.floats("x"), b.result(0, nil)
	return x != nil && out != nil && b.elements("copy", "copy", out, x)
}

// bindConcatenate copies the operands one after the other into the result, along an axis.
func bindConcatenate(b *binder) bool {
	shape, ok := b.Dims(b.Op.Result().Type)
	if !ok || len(shape) > maxRank {
		return false
	}
	axis := (ir.Attrs[ir.AxisAttrs](b.Op).Axis + len(shape)) % len(shape)
	var parts []*value
	for _, a := range b.Op.Args[0] {
		if !a.Value.Type.DType.IsFloat() {
			return false
		}
		x := b.device(a.Value, b.Values[a.Value])
		if x == nil || x.format == i32 || len(x.shape) != len(shape) {
			return false
		}
		parts = append(parts, x)
	}
	out := b.result(0, nil)
	if out == nil {
		return false
	}
	at := 0
	for _, x := range parts {
		part := *out
		part.shape = slices.Clone(out.shape)
		part.shape[axis] = x.shape[axis]
		part.offset += at * out.stride[axis]
		at += x.shape[axis]
		if x.len() > 0 && !b.elements("concatenate", "copy", &part, x) {
			return false
		}
	}
	return at == shape[axis]
}

// bindAdd binds an addition. Where one of the terms is a mixture of experts, its kernel adds the other; else an
// elementwise kernel does.
func bindAdd(b *binder) bool {
	x, y := b.floats("a"), b.floats("b")
	if x == nil || y == nil {
		return false
	}
	return b.function("add", x, y)
}

// bindGLU binds activation(gate) · x. Where gate and x are products, or feed a mixture of experts, those kernels
// compute it; else an elementwise kernel does.
func bindGLU(b *binder) bool {
	activation, err := kernels.ActivationNamed(ir.Attrs[ir.GLUAttrs](b.Op).Activation)
	gate, x := b.floats("gate"), b.floats("x")
	if err != nil || gate == nil || x == nil {
		return false
	}
	last := len(x.shape) - 1
	if activation == kernels.Sigmoid && last >= 0 && len(gate.shape) == len(x.shape) && gate.shape[last] == 1 &&
		slices.Equal(gate.shape[:last], x.shape[:last]) && x.isDense() && len(x.shape) <= 4 {
		if stride := strideOfRows(gate); stride > 0 {
			out := b.result(0, nil)
			return out != nil && slices.Equal(out.shape, x.shape) && b.elements("gate", "glu_sigmoid", out, gate, x)
		}
	}
	return b.function("glu_"+ir.Attrs[ir.GLUAttrs](b.Op).Activation, gate, x)
}

// bindSoftcap binds the soft cap of logits, cap · tanh(x / cap).
func bindSoftcap(b *binder) bool { return b.function("softcap", b.floats("x"), b.floats("cap")) }

// bindLoad binds a load of a buffer. The result is the buffer's own memory where nothing writes the buffer between the
// load and the last use of the result. Else it is a copy.
func bindLoad(b *binder) bool {
	s := b.x.states[b.Op.Buffer]
	if s == nil || s.slot == nil {
		return false
	}
	v := s.value()
	if b.InPlaceLoads[b.Op] {
		b.Values[b.Op.Result()] = v
		return true
	}
	out := b.result(0, nil)
	return out != nil && b.elements("load", "copy", out, v)
}
