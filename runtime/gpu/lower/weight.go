package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// weight describes a stored matrix [N, K], or a stack of them.
type weight struct {
	kernels.Format
	count, rows, cols int
}

// WeightForm returns the format in which kernels read a weight of count matrices [rows, cols]. The weight is a
// constant, the transpose of one, or the operation quantized; [Uncast] finds it behind v. It returns false where v is
// none of these.
func WeightForm(v *ir.Value) (f kernels.Format, count, rows, cols int, ok bool) {
	w, ok := weightOf(v)
	return w.Format, w.count, w.rows, w.cols, ok
}

// Uncast returns the value behind casts between float types. Kernels cast when they read.
func Uncast(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.Def.Name == "astype" && v.Type.DType.IsFloat() && v.Def.Input("x").Type.DType.IsFloat() {
		v = v.Def.Input("x")
	}
	return v
}

// weightOf returns what WeightForm does, as a weight.
func weightOf(v *ir.Value) (w weight, ok bool) {
	dims, static := v.Type.Static()
	v = Uncast(v)
	n := len(dims)
	if !static || n < 2 || n > 3 {
		return w, false
	}
	w = weight{count: 1, rows: int(dims[n-2]), cols: int(dims[n-1])}
	if n == 3 {
		w.count = int(dims[0])
	}
	switch {
	case w.count*w.rows*w.cols == 0:
		return w, false
	case v.Def != nil && v.Def.Def.Name == "quantized":
		return quantizedForm(w, v)
	case v.Def != nil && v.Def.Def.Name == "transpose":
		c, perm := v.Def.Input("x"), ir.Attrs[ir.TransposeAttrs](v.Def).Perm
		w.Bits = 8 * c.Type.DType.Size()
		return w, c.Constant != nil && (slices.Equal(perm, []int{0, 2, 1}) || slices.Equal(perm, []int{1, 0})) &&
			(c.Type.DType == ir.BF16 || c.Type.DType == ir.F32)
	}
	w.Bits = 32
	if v.Type.DType == ir.BF16 {
		w.Bits = 16
	}
	return w, v.Constant != nil && v.Type.DType.IsFloat()
}

// quantizedForm returns the format of codes with scales. Scales are read as bf16 where scales and biases are bf16, else
// as float32.
func quantizedForm(w weight, v *ir.Value) (weight, bool) {
	packed, scales, biases := v.Def.Input("packed"), v.Def.Input("scales"), v.Def.Input("biases")
	w.Bits, w.Group = v.Type.Bits, v.Type.Group
	switch v.Type.Mode {
	case ir.Affine:
	case ir.MXFP4, ir.MXFP8, ir.NVFP4:
		w.Floats, w.Symmetric = true, true
		return w, packed.Constant != nil && scales.Constant != nil
	default:
		return w, false // bits and group are not enough to decode it
	}
	w.F32 = scales.Type.DType != ir.BF16 || biases != nil && biases.Type.DType != ir.BF16
	w.Symmetric = biases == nil
	return w, packed.Constant != nil && isConstant(scales) && (biases == nil || isConstant(biases))
}
