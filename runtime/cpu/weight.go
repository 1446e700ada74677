package cpu

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/plan"
)

// weight is a stored matrix, or a stack of matrices, as kernels read it.
type weight struct {
	matrices   []kernel.Matrix
	rows, cols int
}

// weight returns the weight [N, K] or [E, N, K] behind a value, or nil where kernels cannot read it.
func (x *executable) weight(v *ir.Value) *weight {
	key := plan.WeightKeyOf(v)
	x.mu.Lock()
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
	t := v.Type
	for v.Def != nil && v.Def.Def.Name == "astype" && v.Type.DType.IsFloat() && v.Def.Input("x").Type.DType.IsFloat() {
		v = v.Def.Input("x")
	}
	dims, static := t.Static()
	if !static || len(dims) < 2 || len(dims) > 3 {
		return nil
	}
	n := len(dims)
	all := kernel.Matrix{Rows: int(dims[n-2]), Cols: int(dims[n-1])}
	count := 1
	if n == 3 {
		count = int(dims[0])
	}
	all.Rows *= count
	switch {
	case v.Def != nil && v.Def.Def.Name == "quantized":
		if !x.openQuantized(&all, v) {
			return nil
		}
	case v.Def != nil && v.Def.Def.Name == "transpose":
		if !x.openTransposed(&all, v.Def) {
			return nil
		}
	case v.Constant != nil:
		if !openDense(&all, v.Constant) {
			return nil
		}
	default:
		return nil
	}
	if all.Check() != nil {
		return nil
	}
	w := &weight{rows: all.Rows / max(count, 1), cols: all.Cols}
	for i := range count {
		w.matrices = append(w.matrices, all.Slice(i*w.rows, (i+1)*w.rows))
	}
	return w
}

// openDense sets m to a float constant. bf16 and float32 are read as the file stores them; other dtypes are copied as
// float32.
func openDense(m *kernel.Matrix, c *ir.Constant) bool {
	p, err := eval.ConstantBytes(c)
	if err != nil || !c.Value.Type.DType.IsFloat() {
		return false
	}
	switch c.Value.Type.DType {
	case ir.BF16:
		m.Format, m.Data = kernel.BF16, p
	case ir.F32:
		m.Format, m.Data = kernel.F32, p
	default:
		t, err := eval.DecodeConstant(c)
		if err != nil {
			return false
		}
		m.Format, m.Data = kernel.F32, floatBytes(t.F)
	}
	return true
}

// floatBytes returns floats as the bytes that a file stores.
func floatBytes(f []float32) []byte {
	p := make([]byte, 0, 4*len(f))
	for _, v := range f {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
	}
	return p
}

// openTransposed copies a stack of matrices that is stored by columns.
func (x *executable) openTransposed(m *kernel.Matrix, op *ir.Op) bool {
	c, perm := op.Input("x").Constant, ir.Attrs[ir.TransposeAttrs](op).Perm
	if c == nil || !slices.Equal(perm, []int{0, 2, 1}) && !slices.Equal(perm, []int{1, 0}) || !openDense(m, c) {
		return false
	}
	size := m.Format.Bits() / 8
	dims, _ := c.Value.Type.Static()
	k, rows := int(dims[len(dims)-2]), int(dims[len(dims)-1]) // stored [.., K, N]
	out := make([]byte, len(m.Data))
	for at := 0; at < len(out); at += k * rows * size {
		for i := range k {
			for j := range rows {
				copy(out[at+(j*k+i)*size:][:size], m.Data[at+(i*rows+j)*size:])
			}
		}
	}
	m.Data = out
	return true
}

// openQuantized sets m to a quantized weight. Codes are read as the file stores them, and so are scales and biases if
// both are bf16 or float32.
func (x *executable) openQuantized(m *kernel.Matrix, v *ir.Value) bool {
	if v.Type.Mode != ir.Affine {
		return openSmallFloats(m, v)
	}
	switch m.Group = v.Type.Group; v.Type.Bits {
	case 4:
		m.Format = kernel.Q4
	case 8:
		m.Format = kernel.Q8
	default:
		return false
	}
	op := v.Def
	packed := op.Input("packed")
	if packed.Constant == nil {
		return false
	}
	var err error
	if m.Data, err = eval.ConstantBytes(packed.Constant); err != nil {
		return false
	}
	scales, biases := op.Input("scales"), op.Input("biases")
	if stored(scales) && (biases == nil || stored(biases) && biases.Type.DType == scales.Type.DType) {
		if m.ScaleFormat = kernel.BF16; scales.Type.DType == ir.F32 {
			m.ScaleFormat = kernel.F32
		}
		if m.Scales, err = eval.ConstantBytes(scales.Constant); err != nil {
			return false
		}
		if biases != nil {
			m.Biases, err = eval.ConstantBytes(biases.Constant)
		}
		return err == nil
	}
	m.ScaleFormat = kernel.F32
	for i, part := range []*ir.Value{scales, biases} {
		if part == nil {
			continue
		}
		c, err := x.constant(part)
		if err != nil || !c.dtype.IsFloat() {
			return false
		}
		if p := floatBytes(c.slot.f); i == 0 {
			m.Scales = p
		} else {
			m.Biases = p
		}
	}
	return true
}

// openSmallFloats sets m to a weight in a mode without biases. Codes and scales are read as the file stores them.
func openSmallFloats(m *kernel.Matrix, v *ir.Value) bool {
	m.Format, m.Group = map[ir.QuantMode]kernel.Format{ir.MXFP4: kernel.MXFP4, ir.MXFP8: kernel.MXFP8,
		ir.NVFP4: kernel.NVFP4}[v.Type.Mode], v.Type.Group
	packed, scales := v.Def.Input("packed").Constant, v.Def.Input("scales").Constant
	if packed == nil || scales == nil {
		return false
	}
	var err, err2 error
	m.Data, err = eval.ConstantBytes(packed)
	m.Scales, err2 = eval.ConstantBytes(scales)
	return err == nil && err2 == nil
}

// stored reports whether scales can be read as the file stores them.
func stored(v *ir.Value) bool {
	return v.Constant != nil && (v.Type.DType == ir.BF16 || v.Type.DType == ir.F32)
}

// vector returns the floats of a constant vector of n elements, such as the weight of a norm, or nil where the operand
// is something else.
func (b *binder) vector(operand string, n int) []float32 {
	v := b.Input(operand)
	if v == nil || b.Op.Input(operand).Constant == nil || !v.isFloats() || len(v.shape) != 1 || v.shape[0] != n {
		return nil
	}
	return v.slot.f
}
