package ir

import (
	"fmt"
	"slices"
)

// convAxis holds the numbers of one spatial axis of a convolution.
type convAxis struct{ stride, padding, dilation, outputPadding int }

// convAttrs reads the attributes of any convolution.
func (c *Inference) convAttrs() (axes []convAxis, groups int) {
	switch a := c.Op.Attrs.(type) {
	case *Conv1DAttrs:
		return []convAxis{{a.Stride, a.Padding, a.Dilation, 0}}, a.Groups
	case *Conv2DAttrs:
		return []convAxis{{a.StrideH, a.PaddingH, a.DilationH, 0}, {a.StrideW, a.PaddingW, a.DilationW, 0}}, a.Groups
	case *Conv3DAttrs:
		return []convAxis{{a.StrideD, a.PaddingD, a.DilationD, 0}, {a.StrideH, a.PaddingH, a.DilationH, 0},
			{a.StrideW, a.PaddingW, a.DilationW, 0}}, a.Groups
	case *ConvTranspose1DAttrs:
		return []convAxis{{a.Stride, a.Padding, a.Dilation, a.OutputPadding}}, a.Groups
	case *ConvTranspose2DAttrs:
		return []convAxis{{a.StrideH, a.PaddingH, a.DilationH, a.OutputPaddingH},
			{a.StrideW, a.PaddingW, a.DilationW, a.OutputPaddingW}}, a.Groups
	case *ConvTranspose3DAttrs:
		return []convAxis{{a.StrideD, a.PaddingD, a.DilationD, a.OutputPaddingD},
			{a.StrideH, a.PaddingH, a.DilationH, a.OutputPaddingH},
			{a.StrideW, a.PaddingW, a.DilationW, a.OutputPaddingW}}, a.Groups
	}
	panic(fmt.Sprintf("ir: op %s has no convolution attributes", c.Op.Def.Name))
}

// convolution checks x [N, spatial..., C_in] against w [C_out, spatial..., C_in/groups] and gives the
// result with the spatial lengths that length computes from those of x and w.
func (c *Inference) convolution(length func(x, w *Expr, a convAxis) *Expr) ([]Type, error) {
	axes, groups := c.convAttrs()
	dims := len(axes) + 2
	x, err := c.rank("x", dims)
	if err != nil {
		return nil, err
	}
	w, err := c.rank("w", dims)
	if err != nil {
		return nil, err
	}
	if err := needFloat("x", x.DType); err != nil {
		return nil, err
	}
	if groups < 1 || groups > 1 && len(axes) > 2 {
		return nil, fmt.Errorf("groups must be at least 1, and 1 with 3 spatial dims, found %d", groups)
	}
	if r, ok := w.Shape[0].Mod(Const(int64(groups))).Const(); ok && r != 0 {
		return nil, fmt.Errorf("groups %d do not divide the output channels of w %s", groups, w)
	}
	if _, ok := unify(x.Shape[dims-1], w.Shape[dims-1].Mul(Const(int64(groups)))); !ok {
		return nil, fmt.Errorf("the channels of x %s must be groups %d times the last dim of w %s", x, groups, w)
	}
	shape := slices.Clone(x.Shape)
	shape[dims-1] = w.Shape[0]
	for i, a := range axes {
		if !fitsInt32(a.stride, a.padding, a.dilation, a.outputPadding) {
			return nil, fmt.Errorf("stride, padding, dilation and output_padding must fit 32 bits, found %+v", a)
		}
		if a.stride < 1 || a.dilation < 1 {
			return nil, fmt.Errorf("stride and dilation must be positive, found %d and %d", a.stride, a.dilation)
		}
		shape[i+1] = length(x.Shape[i+1], w.Shape[i+1], a)
		if !atLeastOne(shape[i+1]) {
			return nil, fmt.Errorf("spatial dim %d of x %s is too short for w %s (result length %s)", i, x, w,
				shape[i+1])
		}
	}
	return single(TensorType(Promote(x.DType, w.DType), shape...))
}

// kernelSpan returns the extent of a dilated kernel: dilation*(w-1).
func kernelSpan(w *Expr, a convAxis) *Expr {
	return w.Sub(Const(1)).Mul(Const(int64(a.dilation)))
}

// inferConv infers the types of conv1d, conv2d and conv3d, floor((x + 2 padding - dilation (w-1) - 1) / stride) + 1
// positions (mlx/primitives.cpp, conv_out_shape).
func inferConv(c *Inference) ([]Type, error) {
	return c.convolution(func(x, w *Expr, a convAxis) *Expr {
		return x.Add(Const(2*int64(a.padding) - 1)).Sub(kernelSpan(w, a)).FloorDiv(Const(int64(a.stride))).Add(Const(1))
	})
}

// inferConvTranspose infers the types of conv_transpose1d, conv_transpose2d and conv_transpose3d, stride (x-1) +
// dilation (w-1) - 2 padding + output_padding + 1 positions (mlx/ops.cpp, conv_transpose_general).
func inferConvTranspose(c *Inference) ([]Type, error) {
	return c.convolution(func(x, w *Expr, a convAxis) *Expr {
		return x.Sub(Const(1)).Mul(Const(int64(a.stride))).Add(kernelSpan(w,
			a)).Add(Const(int64(a.outputPadding-2*a.padding) + 1))
	})
}
