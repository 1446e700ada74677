package gpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/plan"
)

// weight is a stored matrix [N, K], or a stack of them, as kernels read it.
type weight struct {
	kernels.Format
	count      int // of matrices
	rows, cols int

	data, scales, biases *slot // scales and biases are data where there are none
}

// bytes that one of the matrices takes.
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

// arguments are the buffers that kernels take of a weight.
func (w *weight) arguments() kernels.WeightArguments[operand] {
	return kernels.WeightArguments[operand]{Data: whole(w.data), Scales: whole(w.scales), Biases: whole(w.biases)}
}

// memoryKey tells a constant on the device, and in which form.
type memoryKey struct {
	value      *ir.Value
	format     format
	stored     bool // as the file has it
	transposed bool // by rows, where the file has columns
}

// weight opens the weight [N, K] or [E, N, K] behind a value, or gives nil where no kernel can read it.
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

// openQuantized reads codes where they lie. Scales and biases are read there too if both are bf16 or f32;
// otherwise they are copied, as f32.
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

// transposed is a copy of a stack of matrices that is stored by columns, or nil.
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

// remembered gives a constant's slot from x.memory. build makes the slot when it is first asked for. Where build fails,
// remembered gives nil, also in later calls.
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

// stored is a constant in a format: where it lies, if it is stored so, else copied. It gives nil where that
// cannot be done.
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

// wrapped is a constant's own memory.
func (x *executable) wrapped(v *ir.Value) *slot {
	return x.remembered(memoryKey{value: v, stored: true}, func() *slot {
		p, err := eval.ConstantBytes(v.Constant)
		if err != nil || len(p) == 0 {
			return nil
		}
		return x.wrap(p)
	})
}

// part are the buffers of n rows from a first one on.
func (w *weight) part(first, n int) kernels.WeightArguments[operand] {
	total := w.count * w.rows
	rows := func(s *slot) operand {
		return operand{slot: s, at: s.Size / total * first, size: s.Size / total * n}
	}
	return kernels.WeightArguments[operand]{Data: rows(w.data), Scales: rows(w.scales), Biases: rows(w.biases)}
}
