package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"concatenate": concatenate,
		"stack":       stack,
		"split":       split,
		"pad":         pad,
	})
}

// copyBlock copies the n indices of axis that begin at first in src to those that begin at at in dst.
// dst and src have the same dtype and differ in the dim of axis at most.
func copyBlock(dst *Tensor, at int, src *Tensor, first, n, axis int) {
	outer, inner := around(dst.Shape, axis)
	to, from := dst.Shape[axis]*inner, src.Shape[axis]*inner
	for o := range outer {
		if dst.F != nil {
			copy(dst.F[o*to+at*inner:][:n*inner], src.F[o*from+first*inner:])
		} else {
			copy(dst.I[o*to+at*inner:][:n*inner], src.I[o*from+first*inner:])
		}
	}
}

func concatenate(c *Call) ([]Value, error) {
	return c.join(c.Tensors("tensors"), ir.Attrs[ir.AxisAttrs](c.Op).Axis)
}

// join concatenates tensors along an axis in their common dtype.
func (c *Call) join(tensors []*Tensor, axis int) ([]Value, error) {
	if len(tensors) == 0 {
		return nil, fmt.Errorf("no tensors, want at least one")
	}
	first := tensors[0]
	axis, err := axisIn(axis, len(first.Shape))
	if err != nil {
		return nil, err
	}
	d, dim := ir.Bool, 0
	for i, t := range tensors {
		if len(t.Shape) != len(first.Shape) || !equalInts(withDim(t.Shape, axis, 0), withDim(first.Shape, axis, 0)) {
			return nil, fmt.Errorf("tensor %d has shape %v, the first %v: they may differ in axis %d only", i,
				t.Shape, first.Shape, axis)
		}
		d = ir.Promote(d, t.DType)
		dim += t.Shape[axis]
	}
	out, err := NewTensor(d, withDim(first.Shape, axis, dim)...)
	if err != nil {
		return nil, err
	}
	at := 0
	for _, t := range tensors {
		copyBlock(out, at, c.cast(t, d), 0, t.Shape[axis], axis)
		at += t.Shape[axis]
	}
	return c.result(out, nil)
}

// stack joins tensors of one shape along a new axis.
func stack(c *Call) ([]Value, error) {
	tensors := c.Tensors("tensors")
	if len(tensors) == 0 {
		return nil, fmt.Errorf("no tensors, want at least one")
	}
	first := tensors[0]
	axis, err := axisIn(ir.Attrs[ir.AxisAttrs](c.Op).Axis, len(first.Shape)+1)
	if err != nil {
		return nil, err
	}
	for i, t := range tensors {
		if !equalInts(t.Shape, first.Shape) {
			return nil, fmt.Errorf("tensor %d has shape %v, the first %v", i, t.Shape, first.Shape)
		}
		tensors[i] = t.reshaped(insertDim(t.Shape, axis, 1))
	}
	return c.join(tensors, axis)
}

// split cuts an axis into parts of the given sizes. One size alone is the size of every part; the last
// may be shorter.
func split(c *Call) ([]Value, error) {
	x, sizes := c.Tensor("x"), c.int32s("sizes")
	axis, err := axisIn(ir.Attrs[ir.AxisAttrs](c.Op).Axis, len(x.Shape))
	if err != nil {
		return nil, err
	}
	dim := x.Shape[axis]
	if len(sizes) == 1 {
		size := sizes[0]
		if size <= 0 {
			return nil, fmt.Errorf("the size of a part is %d, want at least 1", size)
		}
		sizes = []int{min(size, dim)}
		for at := size; at < dim && len(sizes) <= len(c.Op.Results); at += size {
			sizes = append(sizes, min(size, dim-at))
		}
	}
	if len(sizes) != len(c.Op.Results) {
		return nil, fmt.Errorf("axis %d of x %v is cut into %d parts, the operation has %d results", axis, x.Shape,
			len(sizes), len(c.Op.Results))
	}
	out := make([]Value, len(sizes))
	at := 0
	for i, size := range sizes {
		if size < 0 || size > dim-at {
			return nil, fmt.Errorf("sizes %v do not add up to dim %d of axis %d", sizes, dim, axis)
		}
		part, err := NewTensor(x.DType, withDim(x.Shape, axis, size)...)
		if err != nil {
			return nil, err
		}
		copyBlock(part, 0, x, at, size, axis)
		out[i].Tensor = c.cast(part, c.Result(i).DType)
		at += size
	}
	if at != dim {
		return nil, fmt.Errorf("sizes %v do not add up to dim %d of axis %d", sizes, dim, axis)
	}
	return out, nil
}

// pad adds elements before and after every axis: a constant (converted to x's dtype), or, in mode edge,
// the nearest element of x. pad_width has two numbers per axis.
func pad(c *Call) ([]Value, error) {
	x, widths, a := c.Tensor("x"), c.int32s("pad_width"), ir.Attrs[ir.PadAttrs](c.Op)
	if len(widths) != 2*len(x.Shape) {
		return nil, fmt.Errorf("pad_width has %d numbers, want %d for the %d dims of x", len(widths),
			2*len(x.Shape), len(x.Shape))
	}
	shape := make([]int, len(x.Shape))
	for i, d := range x.Shape {
		before, after := widths[2*i], widths[2*i+1]
		if before < 0 || after < 0 {
			return nil, fmt.Errorf("pad_width %v has a negative number", widths)
		}
		if a.Mode == "edge" && d == 0 && before+after > 0 {
			return nil, fmt.Errorf("axis %d of x %v has no edge to repeat", i, x.Shape)
		}
		shape[i] = before + d + after
	}
	switch a.Mode {
	case "constant":
		out, err := NewTensor(x.DType, shape...)
		if err != nil {
			return nil, err
		}
		c.fill(out, a.ConstantValue)
		strides, offset := rowMajor(shape), 0
		for i, s := range strides {
			offset += widths[2*i] * s
		}
		out.paste(x, strides, offset)
		return c.result(out, nil)
	case "edge":
		for axis := range shape {
			out, err := NewTensor(x.DType, withDim(x.Shape, axis, shape[axis])...)
			if err != nil {
				return nil, err
			}
			dim := x.Shape[axis]
			for at := range shape[axis] {
				copyBlock(out, at, x, min(max(at-widths[2*axis], 0), dim-1), 1, axis)
			}
			x = out
		}
		return c.result(x, nil)
	}
	return nil, fmt.Errorf("mode %q: want constant or edge", a.Mode)
}
