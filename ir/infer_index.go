package ir

import (
	"fmt"
	"slices"
)

// inferTake infers the type of take. An int index drops the axis; a tensor of indices puts its shape in the place of
// the axis.
func inferTake(c *Inference) ([]Type, error) {
	x := c.Type("x")
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, x.Rank())
	if err != nil {
		return nil, err
	}
	shape := slices.Delete(slices.Clone(x.Shape), axis, axis+1)
	if index := c.Op.Input("index"); index != nil && index.Type.Kind == TensorKind {
		if err := needInteger("index", index.Type.DType); err != nil {
			return nil, err
		}
		return single(TensorType(x.DType, slices.Insert(shape, axis, index.Type.Shape...)...))
	}
	if err := checkIndex("index", int32Literal(c.Expr("index")), x.Shape[axis]); err != nil {
		return nil, err
	}
	return single(TensorType(x.DType, shape...))
}

// inferTakeAlongAxis infers the type of take_along_axis. x and indices broadcast in all dims but the axis, where the
// result has the length of indices.
func inferTakeAlongAxis(c *Inference) ([]Type, error) {
	x, indices := c.Type("x"), c.Type("indices")
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, x.Rank())
	if err != nil {
		return nil, err
	}
	if err := needInteger("indices", indices.DType); err != nil {
		return nil, err
	}
	if indices.Rank() != x.Rank() {
		return nil, fmt.Errorf("indices must have as many dims as x, found %s and %s", indices, x)
	}
	source := slices.Clone(x.Shape)
	source[axis] = Const(1)
	target := slices.Clone(indices.Shape)
	target[axis] = Const(1)
	shape, err := broadcastShapes(source, target)
	if err != nil {
		return nil, fmt.Errorf("x %s and indices %s beside axis %d: %w", x, indices, axis, err)
	}
	shape[axis] = indices.Shape[axis]
	return single(TensorType(x.DType, shape...))
}

// inferGather infers the type of gather: the joined shape of the indices, then slice_sizes.
func inferGather(c *Inference) ([]Type, error) {
	x, indices, attrs := c.Type("x"), c.Types("indices"), Attrs[GatherAttrs](c.Op)
	if len(indices) != len(attrs.Axes) {
		return nil, fmt.Errorf("expected an index tensor for each of the axes %v, found %d", attrs.Axes, len(indices))
	}
	if len(attrs.SliceSizes) != x.Rank() {
		return nil, fmt.Errorf("slice_sizes %v must have a size for each dim of %s", attrs.SliceSizes, x)
	}
	used := make([]bool, x.Rank())
	for _, a := range attrs.Axes {
		if a < 0 || a >= x.Rank() {
			return nil, fmt.Errorf("axis %d is out of range for %d dims", a, x.Rank())
		}
		if used[a] {
			return nil, fmt.Errorf("axes %v list axis %d twice", attrs.Axes, a)
		}
		used[a] = true
	}
	for i, t := range indices {
		if err := needInteger(fmt.Sprintf("indices %d", i), t.DType); err != nil {
			return nil, err
		}
	}
	sizes := make([]*Expr, len(attrs.SliceSizes))
	for i, s := range attrs.SliceSizes {
		sizes[i] = Const(int64(s))
		if less(x.Shape[i], sizes[i]) {
			return nil, fmt.Errorf("slice_sizes %v: %d is larger than dim %d of %s", attrs.SliceSizes, s, i, x)
		}
	}
	if err := checkAllocation(x.DType, sizes); err != nil {
		return nil, fmt.Errorf("slice_sizes: %w", err)
	}
	shape, err := broadcastTypes(indices...)
	if err != nil {
		return nil, fmt.Errorf("indices: %w", err)
	}
	return single(TensorType(x.DType, append(shape, sizes...)...))
}

// inferScatterAdd adds updates to x along an axis: indices and updates broadcast, then all three in the
// dims other than the axis. The result has the dtype of x.
func inferScatterAdd(c *Inference) ([]Type, error) {
	x, indices, updates := c.Type("x"), c.Type("indices"), c.Type("updates")
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, x.Rank())
	if err != nil {
		return nil, err
	}
	if err := needInteger("indices", indices.DType); err != nil {
		return nil, err
	}
	if indices.Rank() != x.Rank() {
		return nil, fmt.Errorf("indices must have as many dims as x, found %s and %s", indices, x)
	}
	shape := updates.Shape
	for len(shape) > x.Rank() {
		if !canBe(shape[0], 1) {
			return nil, fmt.Errorf("updates %s: dims before the last %d must be 1", updates, x.Rank())
		}
		shape = shape[1:]
	}
	places, err := broadcastShapes(indices.Shape, shape)
	if err != nil {
		return nil, fmt.Errorf("indices and updates: %w", err)
	}
	source := slices.Clone(x.Shape)
	source[axis], places[axis] = Const(1), Const(1)
	out, err := broadcastShapes(source, places)
	if err != nil {
		return nil, fmt.Errorf("x %s and updates %s beside axis %d: %w", x, updates, axis, err)
	}
	out[axis] = x.Shape[axis]
	return single(TensorType(x.DType, out...))
}

// inferSlice takes every step-th index of an axis from start to stop.
func inferSlice(c *Inference) ([]Type, error) {
	x := c.Type("x")
	axis, err := c.axisOperand(x.Rank())
	if err != nil {
		return nil, err
	}
	step := Attrs[StepAttrs](c.Op).Step
	if step == 0 || !fitsInt32(step) {
		return nil, fmt.Errorf("step must be a 32-bit number other than 0, found %d", step)
	}
	shape := slices.Clone(x.Shape)
	shape[axis] = sliceLength(shape[axis], c.Expr("start"), c.Expr("stop"), int64(step))
	return single(TensorType(x.DType, shape...))
}

// axisOperand reads the operand axis, which must be known.
func (c *Inference) axisOperand(rank int) (int, error) {
	e := c.Expr("axis")
	v, ok := int32Literal(e).Const()
	if !ok {
		return 0, fmt.Errorf("axis must be known before the program runs, found %s", e)
	}
	return c.Axis(int(v), rank)
}
