package ir

import (
	"fmt"
	"math"
	"slices"
)

// sliceLength returns the number of indices of a Python slice start:stop:step of a dim (mlx/ops.cpp,
// normalize_slice): negative ends count from the end, then both are limited to the dim. A literal that
// does not fit 32 bits means the very end (INT64_MAX) or the very beginning.
func sliceLength(dim, start, stop *Expr, step int64) *Expr {
	if step > 0 {
		return ceilDiv(sliceEnd(stop, dim).Sub(sliceEnd(start, dim)), step).Max(Const(0))
	}
	last := dim.Sub(Const(1))
	from, to := start.Wrap(dim), stop.Wrap(dim)
	if v, ok := start.Const(); ok && v >= math.MaxInt32 {
		from = last
	} else if ok && v <= math.MinInt32 {
		from = Const(-1)
	}
	if v, ok := stop.Const(); ok && v >= math.MaxInt32 {
		to = dim
	} else if ok && v <= math.MinInt32 {
		to = Const(-1)
	}
	return ceilDiv(from.Min(last).Sub(to.Max(Const(-1))), -step).Max(Const(0))
}

// sliceEnd is one end of a slice with a positive step as an index between 0 and dim.
func sliceEnd(e, dim *Expr) *Expr {
	if v, ok := e.Const(); ok && v >= math.MaxInt32 {
		return dim
	} else if ok && v <= math.MinInt32 {
		return Const(0)
	}
	return e.Wrap(dim).Clamp(dim)
}

// checkSliceUpdate checks that update can be written to the slice of dst that axis, start, stop and
// step tell. A slice that is empty is not written, whatever update is.
func (c *Inference) checkSliceUpdate(dst, update Type) error {
	axis, err := c.axisOperand(dst.Rank())
	if err != nil {
		return err
	}
	step := Attrs[StepAttrs](c.Op).Step
	if step < 1 || !fitsInt32(step) {
		return fmt.Errorf("step must be at least 1, found %d", step)
	}
	target := slices.Clone(dst.Shape)
	target[axis] = sliceLength(dst.Shape[axis], c.Expr("start"), c.Expr("stop"), int64(step))
	if target[axis].IsConst(0) {
		return nil
	}
	if err := broadcastsTo("update", update.Shape, target); err != nil {
		return fmt.Errorf("axis %d, %s:%s:%d of %s: %w", axis, c.Expr("start"), c.Expr("stop"), step, dst, err)
	}
	return nil
}

// inferSliceUpdate infers the type of slice_update, which is dst with a slice overwritten. update is converted to the
// dtype of dst and broadcast.
func inferSliceUpdate(c *Inference) ([]Type, error) {
	dst := c.Type("dst")
	if err := c.checkSliceUpdate(dst, c.Type("update")); err != nil {
		return nil, err
	}
	return single(like(dst, dst.DType))
}

// checkIndexCopy checks that update has a row for every index.
func (c *Inference) checkIndexCopy(dst, update Type) error {
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, dst.Rank())
	if err != nil {
		return err
	}
	indices := c.Type("indices")
	if indices.Rank() != 1 || indices.DType != I64 {
		return fmt.Errorf("indices must be i64 with one dim, found %s", indices)
	}
	if update.Rank() != dst.Rank() {
		return fmt.Errorf("update must have as many dims as the destination, found %s and %s", update, dst)
	}
	if _, err := agree(fmt.Sprintf("dim %d of update %s and the number of indices", axis, update), update.Shape[axis],
		indices.Shape[0]); err != nil {
		return err
	}
	target := slices.Clone(dst.Shape)
	target[axis] = update.Shape[axis]
	return broadcastsTo("update", update.Shape, target)
}

// inferIndexCopy infers the type of index_copy, which is dst with the rows at indices overwritten. update is converted
// to the dtype of dst.
func inferIndexCopy(c *Inference) ([]Type, error) {
	dst := c.Type("dst")
	if err := c.checkIndexCopy(dst, c.Type("update")); err != nil {
		return nil, err
	}
	return single(like(dst, dst.DType))
}
