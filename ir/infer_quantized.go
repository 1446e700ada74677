package ir

import (
	"fmt"
	"slices"
)

// quantShape checks the shapes of packed codes and scales against the form and each other, and gives the
// shape of the weight.
func (f WeightForm) quantShape(packed, scales Type) ([]*Expr, error) {
	bits, group := f.Bits, f.Group
	if packed.DType != U32 {
		return nil, fmt.Errorf("packed codes must be u32, found %s", packed)
	}
	if packed.Rank() < 2 || packed.Rank() != scales.Rank() {
		return nil, fmt.Errorf("packed codes and scales must have the same number of dims, at least 2, found %s and %s",
			packed, scales)
	}
	last := packed.Rank() - 1
	shape, err := matchShapes("leading dims of packed codes and scales", packed.Shape[:last], scales.Shape[:last])
	if err != nil {
		return nil, err
	}
	codes := packed.Shape[last].Mul(Const(32)).FloorDiv(Const(int64(bits)))
	k, ok := unify(codes, scales.Shape[last].Mul(Const(int64(group))))
	if !ok {
		return nil, fmt.Errorf("packed codes %s hold %s codes of %d bits in a row, scales %s are for %s in "+
			"groups of %d",
			packed, codes, bits, scales, scales.Shape[last].Mul(Const(int64(group))), group)
	}
	return append(shape, k), nil
}

// quantDType returns the dtype of scales and biases together, checked for the mode; for modes other than
// affine it is other.
func (c *Inference) quantDType(mode QuantMode, other DType) (DType, error) {
	scales := c.Type("scales")
	if mode != Affine {
		if c.Has("biases") {
			return 0, fmt.Errorf("mode %s has no biases, found %s", mode, c.Type("biases"))
		}
		if scales.DType != U8 {
			return 0, fmt.Errorf("mode %s has scales in u8, found %s", mode, scales)
		}
		return other, nil
	}
	if !c.Has("biases") {
		return 0, fmt.Errorf("mode affine needs biases")
	}
	biases := c.Type("biases")
	if _, err := matchShapes("scales and biases", scales.Shape, biases.Shape); err != nil {
		return 0, err
	}
	d := Promote(scales.DType, biases.DType)
	return d, needFloat("the promoted dtype of scales and biases", d)
}

// inferQuantized joins packed codes, scales and biases to one weight.
func inferQuantized(c *Inference) ([]Type, error) {
	scales := c.Type("scales")
	form, err := formOf(c.Op)
	if err != nil {
		return nil, err
	}
	shape, err := form.quantShape(c.Type("packed"), scales)
	if err != nil {
		return nil, err
	}
	if form.Mode != Affine {
		d := BF16
		if a := Attrs[QuantizedAttrs](c.Op); a.Dtype != nil {
			d = *a.Dtype
		}
		if _, err := c.quantDType(form.Mode, d); err != nil {
			return nil, err
		}
		if err := needFloat("dtype", d); err != nil {
			return nil, err
		}
		return single(Type{Kind: QuantizedKind, DType: d, Shape: shape, WeightForm: form})
	}
	if d := Attrs[QuantizedAttrs](c.Op).Dtype; d != nil {
		return nil, fmt.Errorf("mode affine dequantizes to the dtype of its scales, found the dtype %s", d)
	}
	if err := needFloat("scales", scales.DType); err != nil {
		return nil, err
	}
	if c.Has("biases") {
		biases := c.Type("biases")
		if _, err := matchShapes("scales and biases", scales.Shape, biases.Shape); err != nil {
			return nil, err
		}
		if biases.DType != scales.DType {
			return nil, fmt.Errorf("scales and biases must have the same dtype, found %s and %s", scales, biases)
		}
	}
	return single(Type{Kind: QuantizedKind, DType: scales.DType, Shape: shape, WeightForm: form})
}

// inferDequantize infers the type of dequantize, the weight in the dtype of the attribute, else in that of scales and
// biases, else bf16.
func inferDequantize(c *Inference) ([]Type, error) {
	attrs := Attrs[DequantizeAttrs](c.Op)
	form, err := formOf(c.Op)
	if err != nil {
		return nil, err
	}
	shape, err := form.quantShape(c.Type("w"), c.Type("scales"))
	if err != nil {
		return nil, err
	}
	d, err := c.quantDType(form.Mode, BF16)
	if err != nil {
		return nil, err
	}
	if attrs.Dtype != nil {
		d = *attrs.Dtype
	}
	if err := needFloat("dtype", d); err != nil {
		return nil, err
	}
	if c.Has("global_scale") {
		if form.Mode != NVFP4 {
			return nil, fmt.Errorf("mode %s has no global_scale", form.Mode)
		}
		if g := c.Type("global_scale"); g.DType != F32 || !oneElement(g) {
			return nil, fmt.Errorf("global_scale must be f32 with one element, found %s", g)
		}
	}
	return single(TensorType(d, shape...))
}

// oneElement reports whether no dim of t is provably other than 1.
func oneElement(t Type) bool {
	return !slices.ContainsFunc(t.Shape, func(d *Expr) bool { return !canBe(d, 1) })
}

// quantizedMatmul returns what quantized_matmul and gather_qmm have in common: the result's dtype and
// columns, after checking that the rows of x fit the weight.
func (c *Inference) quantizedMatmul(transpose bool) (DType, *Expr, error) {
	x, err := c.minRank("x", 1)
	if err != nil {
		return 0, nil, err
	}
	form, err := formOf(c.Op)
	if err != nil {
		return 0, nil, err
	}
	if !form.HasProducts() {
		return 0, nil, fmt.Errorf("mode affine has products of group sizes 32, 64 and 128, found 16")
	}
	shape, err := form.quantShape(c.Type("w"), c.Type("scales"))
	if err != nil {
		return 0, nil, err
	}
	d, err := c.quantDType(form.Mode, x.DType)
	if err != nil {
		return 0, nil, err
	}
	d = Promote(x.DType, d)
	if err := needFloat("the promoted dtype of x and scales", d); err != nil {
		return 0, nil, err
	}
	inner, outer := shape[len(shape)-2], shape[len(shape)-1]
	if transpose {
		inner, outer = outer, inner
	}
	if _, ok := unify(x.Shape[x.Rank()-1], inner); !ok {
		return 0, nil, fmt.Errorf("x %s has rows of %s, the weight of shape %s (transpose %t) takes %s",
			x, x.Shape[x.Rank()-1], formatShape(shape), transpose, inner)
	}
	return d, outer, nil
}

// batchedQuantized returns the shape of x times a batch of weights.
func batchedQuantized(x, w Type, columns *Expr) ([]Type, error) {
	shape := slices.Clone(x.Shape)
	if x.Rank() > 2 && w.Rank() > 2 {
		batch, err := broadcastShapes(leadingDims(x), leadingDims(w))
		if err != nil {
			return nil, fmt.Errorf("leading dims of x %s and w %s: %w", x, w, err)
		}
		shape = append(batch, x.Shape[x.Rank()-2], columns)
	}
	shape[len(shape)-1] = columns
	return []Type{TensorType(x.DType, shape...)}, nil
}

// inferQuantizedMatmul infers the type of quantized_matmul, x [..., K] × w, which stands for [N, K] (transpose) or [K,
// N].
func inferQuantizedMatmul(c *Inference) ([]Type, error) {
	attrs := Attrs[QuantizedMatmulAttrs](c.Op)
	d, columns, err := c.quantizedMatmul(attrs.Transpose)
	if err != nil {
		return nil, err
	}
	return batchedQuantized(like(c.Type("x"), d), c.Type("w"), columns)
}

// inferGatherQmm infers the type of gather_qmm: for every pair of indices, one matrix of x times one of w.
func inferGatherQmm(c *Inference) ([]Type, error) {
	attrs := Attrs[GatherQmmAttrs](c.Op)
	d, columns, err := c.quantizedMatmul(attrs.Transpose)
	if err != nil {
		return nil, err
	}
	if !c.Has("lhs_indices") && !c.Has("rhs_indices") {
		return batchedQuantized(like(c.Type("x"), d), c.Type("w"), columns)
	}
	x, err := c.minRank("x", 2)
	if err != nil {
		return nil, err
	}
	batch, err := c.gatherIndices(leadingDims(x), leadingDims(c.Type("w")))
	if err != nil {
		return nil, err
	}
	return single(TensorType(d, append(batch, x.Shape[x.Rank()-2], columns)...))
}
