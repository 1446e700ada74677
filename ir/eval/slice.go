package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"slice":        slice,
		"slice_update": sliceUpdate,
	})
}

// slice reads every step-th index from start up to stop of one axis, as NumPy does: negative bounds
// count from the end, all are clamped, and a negative step runs from start down to stop.
func slice(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	axis, err := axisIn(int(c.int32("axis")), len(x.Shape))
	if err != nil {
		return nil, err
	}
	dim, step := x.Shape[axis], ir.Attrs[ir.StepAttrs](c.Op).Step
	start, stop := int(c.int32("start")), int(c.int32("stop"))
	if start < 0 {
		start += dim
	}
	if stop < 0 {
		stop += dim
	}
	n := 0
	switch {
	case step == 0:
		return nil, fmt.Errorf("step is 0")
	case step > 0:
		start, stop = min(max(start, 0), dim), min(max(stop, 0), dim)
		n = max(0, (stop-start+step-1)/step)
	default:
		start, stop = min(start, dim-1), max(stop, -1)
		n = max(0, (start-stop-step-1)/-step)
	}
	if n == dim && step > 0 {
		return c.result(x, nil)
	}
	strides := rowMajor(x.Shape)
	offset := start * strides[axis]
	strides[axis] *= step
	return c.result(x.view(withDim(x.Shape, axis, n), strides, offset))
}

// sliceUpdate is dst with a slice replaced; dst itself keeps its elements.
func sliceUpdate(c *Call) ([]Value, error) {
	dst := c.Tensor("dst").Clone()
	return c.result(dst, updateSlice(dst, c, c.Precision))
}

// updateSlice writes the operand update to the slice of dst that the operands axis, start and stop and
// the step select. update is converted to dst's dtype with precision p and broadcast. start and stop
// count from the end where negative and are clamped; where they are then equal nothing is written.
func updateSlice(dst *Tensor, c *Call, p Precision) error {
	axis, err := axisIn(int(c.int32("axis")), len(dst.Shape))
	if err != nil {
		return err
	}
	dim, step := dst.Shape[axis], ir.Attrs[ir.StepAttrs](c.Op).Step
	if step < 1 {
		return fmt.Errorf("step is %d, want at least 1", step)
	}
	bound := func(name string) int {
		v := int(c.int32(name))
		if v < 0 {
			v += dim
		}
		return min(max(v, 0), dim)
	}
	start, stop := bound("start"), bound("stop")
	if start == stop {
		return nil
	}
	n := (max(stop, start) - start + step - 1) / step
	update, err := c.Tensor("update").broadcast(withDim(dst.Shape, axis, n))
	if err != nil {
		return fmt.Errorf("update for indices [%d, %d) of axis %d: %w", start, stop, axis, err)
	}
	strides := rowMajor(dst.Shape)
	offset := start * strides[axis]
	strides[axis] *= step
	dst.paste(convert(update, dst.DType, p), strides, offset)
	return nil
}
