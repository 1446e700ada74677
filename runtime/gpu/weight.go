package gpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/plan"
)

// weight is a stored matrix [N, K], or a stack of matrices [E, N, K], as kernels read it.
type weight struct {
	kernels.Format
	count      int // of matrices
	rows, cols int

	data, scales, biases *slot // without scales and biases, these two are data
}

// bytes returns the number of bytes of one matrix.
func (w *weight) bytes() int {
	n := w.rows * w.cols * w.Bits / 8
	if w.Quantized() {
		scales := w.ScaleBytes(w.rows * w.cols)
		if n += scales; !w.Symmetric {
			n += scales
		}
	}
	return n
}

// arguments returns the operands of the kernels' parameters for a weight.
func (w *weight) arguments() kernels.WeightArguments[operand] {
	return kernels.WeightArguments[operand]{Data: whole(w.data), Scales: whole(w.scales), Biases: whole(w.biases)}
}

// memoryKey identifies a constant on the device and the form that it has there.
type memoryKey struct {
	value      *ir.Value
	format     format
	stored     bool // in the dtype of the file
	transposed bool // stored by rows, where the file stores it by columns
}

// weight returns the weight [N, K] or [E, N, K] behind a value, or nil where no kernel can read it.
func (x *executable) weight(v *ir.Value) *weight {
	if v == nil {
		return nil
	}
	x.mu.Lock()
	key := plan.WeightKeyOf(v)
	w, known := x.weights[key]
	x.mu.Unlock()
	if known {
		return w
	}
	w = x.openWeight(v)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.weights[key] = w
	return w
}

func (x *executable) openWeight(v *ir.Value) *weight {
	w, ok := &weight{}, false
	if w.Format, w.count, w.rows, w.cols, ok = lower.WeightForm(v); !ok {
		return nil
	}
	switch v = lower.Uncast(v); {
	case v.Constant != nil:
		f := f32
		if w.Bits == 16 {
			f = bf16
		}
		w.data = x.stored(v, f)
	case v.Def.Def.Name == "transpose":
		w.data = x.transposed(w, v.Def.Input("x"))
	default:
		return x.openQuantized(w, v.Def)
	}
	if w.scales, w.biases = w.data, w.data; w.data == nil {
		return nil
	}
	return w
}

// openQuantized sets the slots of a quantized weight. Codes are read as the file stores them. So are scales and biases
// if both are bf16 or both float32; otherwise they are copied as float32.
func (x *executable) openQuantized(w *weight, op *ir.Op) *weight {
	f := bf16
	if w.F32 {
		f = f32
	}
	if w.data = x.wrapped(op.Input("packed")); w.data == nil {
		return nil
	}
	if w.biases = w.data; w.Floats {
		if w.scales = x.wrapped(op.Input("scales")); w.scales == nil {
			return nil
		}
		return w
	}
	w.scales = x.stored(op.Input("scales"), f)
	if biases := op.Input("biases"); biases != nil {
		w.biases = x.stored(biases, f)
	}
	if w.scales == nil || w.biases == nil {
		return nil
	}
	return w
}

// transposed returns a copy by rows of a stack of matrices that is stored by columns, or nil.
func (x *executable) transposed(w *weight, c *ir.Value) *slot {
	data, err := eval.ConstantBytes(c.Constant)
	if err != nil {
		return nil
	}
	size := c.Type.DType.Size()
	out := make([]byte, len(data))
	k, rows := w.cols, w.rows // stored [.., K, N]
	for at := 0; at < len(out); at += k * rows * size {
		for i := range k {
			for j := range rows {
				copy(out[at+(j*k+i)*size:][:size], data[at+(i*rows+j)*size:])
			}
		}
	}
	return x.remembered(memoryKey{value: c, transposed: true}, func() *slot { return x.upload(out) })
}

// remembered returns a constant's slot from x.memory. build makes the slot on first use. If build fails, remembered
// returns nil, in later calls too.
func (x *executable) remembered(key memoryKey, build func() *slot) *slot {
	x.mu.Lock()
	s, ok := x.memory[key]
	x.mu.Unlock()
	if ok {
		return s
	}
	s = build()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.memory[key] = s
	return s
}

// stored returns a constant in a format. It is not copied if the file stores it in that format. It returns nil where
// that is impossible.
func (x *executable) stored(v *ir.Value, f format) *slot {
	if v.Constant != nil && (v.Type.DType == ir.BF16 && f == bf16 || v.Type.DType == ir.F32 && f == f32) {
		return x.wrapped(v)
	}
	return x.remembered(memoryKey{value: v, format: f}, func() *slot {
		n, err := x.constant(v)
		if err != nil {
			return nil
		}
		t := n.hostValue.content.Tensor
		if t == nil || t.DType.IsFloat() != (f != i32) {
			return nil
		}
		return x.upload(encode(f, t))
	})
}

// wrapped returns a slot over a constant's own memory.
func (x *executable) wrapped(v *ir.Value) *slot {
	return x.remembered(memoryKey{value: v, stored: true}, func() *slot {
		if b, size, ahead, err := x.uploads.of(v.Constant); ahead {
			return x.hold(b, size, err)
		}
		p, err := eval.ConstantBytes(v.Constant)
		if err != nil || len(p) == 0 {
			return nil
		}
		return x.wrap(p)
	})
}

// part returns the operands of n rows of the weight, from row first on.
func (w *weight) part(first, n int) kernels.WeightArguments[operand] {
	total := w.count * w.rows
	rows := func(s *slot) operand {
		return operand{slot: s, at: s.Size / total * first, size: s.Size / total * n}
	}
	return kernels.WeightArguments[operand]{Data: rows(w.data), Scales: rows(w.scales), Biases: rows(w.biases)}
}
