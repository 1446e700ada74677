package ir

import "fmt"

// reduceAxes returns the axes that a reduction works on as a set by axis; no axes means all of them.
func (c *Inference) reduceAxes(axes []int, rank int) ([]bool, error) {
	set := make([]bool, rank)
	for i := range set {
		set[i] = len(axes) == 0
	}
	for _, axis := range axes {
		a, err := c.Axis(axis, rank)
		if err != nil {
			return nil, err
		}
		if set[a] {
			return nil, fmt.Errorf("axis %d is listed twice in %v", axis, axes)
		}
		set[a] = true
	}
	return set, nil
}

// reduceAttrs returns the axes and keepdims of any reduction.
func (c *Inference) reduceAttrs() (axes []int, keepdims bool) {
	switch a := c.Op.Attrs.(type) {
	case *ReduceAttrs:
		return a.Axes, a.Keepdims
	case *VarianceAttrs:
		return a.Axes, a.Keepdims
	}
	panic(fmt.Sprintf("ir: op %s has no reduction attributes", c.Op.Def.Name))
}

// reduce returns the shape that is left of x.
func (c *Inference) reduce(x Type, d DType) ([]Type, error) {
	axes, keepdims := c.reduceAttrs()
	set, err := c.reduceAxes(axes, x.Rank())
	if err != nil {
		return nil, err
	}
	return single(TensorType(d, withoutAxes(x.Shape, set, keepdims)...))
}

func withoutAxes(shape []*Expr, set []bool, keepdims bool) []*Expr {
	out := make([]*Expr, 0, len(shape))
	for i, dim := range shape {
		switch {
		case !set[i]:
			out = append(out, dim)
		case keepdims:
			out = append(out, Const(1))
		}
	}
	return out
}

// inferSum infers the types of sum and prod. bool and narrow integers are widened to 32 bits, except that MLX gives
// back a 0-dim x as it is.
func inferSum(c *Inference) ([]Type, error) {
	x := c.Type("x")
	d := x.DType
	switch {
	case x.Rank() == 0, d.IsFloat(), d.Size() == 8:
	case d.IsUnsigned():
		d = U32
	default:
		d = I32
	}
	return c.reduce(x, d)
}

// inferReduce infers the types of max, min and median. max and min keep the dtype, median computes in floating point.
// They have no value for an axis without elements.
func inferReduce(c *Inference) ([]Type, error) {
	x := c.Type("x")
	axes, _ := c.reduceAttrs()
	set, err := c.reduceAxes(axes, x.Rank())
	if err != nil {
		return nil, err
	}
	for i, in := range set {
		if in && !atLeastOne(x.Shape[i]) {
			return nil, fmt.Errorf("axis %d of %s has no elements", i, x)
		}
	}
	d := x.DType
	if c.Op.Def.Name == "median" {
		d = atLeastFloat(d)
	}
	return c.reduce(x, d)
}

// atLeastOne reports whether a dim is not provably zero.
func atLeastOne(dim *Expr) bool { _, hi := dim.Bounds(); return hi >= 1 }

// inferReduceFloat infers the types of logsumexp, mean, var and std. logsumexp without axes is the identity: the
// delegate hands the empty list on, where other reductions take all axes (MLXInterpreter.h, exec_logsumexp).
func inferReduceFloat(c *Inference) ([]Type, error) {
	x := c.Type("x")
	d := atLeastFloat(x.DType)
	if axes, _ := c.reduceAttrs(); c.Op.Def.Name == "logsumexp" && len(axes) == 0 {
		return single(like(x, d))
	}
	return c.reduce(x, d)
}

// inferReduceBool infers the types of any and all, which are bool.
func inferReduceBool(c *Inference) ([]Type, error) { return c.reduce(c.Type("x"), Bool) }

// inferArgReduce infers the types of argmax and argmin, u32 positions along one axis, which must have elements.
func inferArgReduce(c *Inference) ([]Type, error) {
	x, attrs := c.Type("x"), Attrs[ArgReduceAttrs](c.Op)
	set, err := c.reduceAxes([]int{attrs.Axis}, x.Rank())
	if err != nil {
		return nil, err
	}
	for i, dim := range x.Shape {
		if !atLeastOne(dim) {
			return nil, fmt.Errorf("x must have elements, dim %d of %s is zero", i, x)
		}
	}
	return single(TensorType(U32, withoutAxes(x.Shape, set, attrs.Keepdims)...))
}

// inferSoftmax infers the type of softmax. Along the last axis integers become f32; along another axis MLX converts the
// result back to the dtype of x (mlx/ops.cpp, softmax).
func inferSoftmax(c *Inference) ([]Type, error) {
	x := c.Type("x")
	axis, err := c.Axis(Attrs[SoftmaxAttrs](c.Op).Axis, x.Rank())
	if err != nil {
		return nil, err
	}
	d := x.DType
	if axis == x.Rank()-1 {
		d = atLeastFloat(d)
	}
	return single(like(x, d))
}

// inferCumsum keeps the dtype, except that bool is summed in i32.
func inferCumsum(c *Inference) ([]Type, error) {
	x := c.Type("x")
	if _, err := c.Axis(Attrs[CumsumAttrs](c.Op).Axis, x.Rank()); err != nil {
		return nil, err
	}
	d := x.DType
	if d == Bool {
		d = I32
	}
	return single(like(x, d))
}

// checkSort checks the axis of sort, argsort, partition and argpartition, and kth of the latter.
func (c *Inference) checkSort() error {
	x := c.Type("x")
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, x.Rank())
	if err != nil || len(c.Op.Def.Operands) == 1 {
		return err
	}
	return checkIndex("kth", int32Literal(c.Expr("kth")), x.Shape[axis])
}

// checkIndex checks that a Python-style index is not provably outside a dim.
func checkIndex(what string, index, dim *Expr) error {
	if less(index, dim.Mul(Const(-1))) || less(dim.Sub(Const(1)), index) {
		return fmt.Errorf("%s %s is out of range for a dim of %s", what, index, dim)
	}
	return nil
}

// inferSortLike infers the types of sort and partition, which have the type of x.
func inferSortLike(c *Inference) ([]Type, error) {
	if err := c.checkSort(); err != nil {
		return nil, err
	}
	x := c.Type("x")
	return single(like(x, x.DType))
}

// inferArgSort infers the types of argsort and argpartition, u32 positions along the axis.
func inferArgSort(c *Inference) ([]Type, error) {
	if err := c.checkSort(); err != nil {
		return nil, err
	}
	return single(like(c.Type("x"), U32))
}
