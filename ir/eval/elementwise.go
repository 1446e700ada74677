package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"where": where,
		"clip":  clip,
	})
}

// broadcastShape returns the shape that shapes broadcast to: dims are aligned from the right, and a dim of
// 1 stretches to any other.
func broadcastShape(shapes ...[]int) ([]int, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out := make([]int, rank)
	for i := range out {
		out[i] = 1
	}
	for _, s := range shapes {
		for i, d := range s {
			o := &out[rank-len(s)+i]
			switch {
			case d == *o || d == 1:
			case *o == 1:
				*o = d
			default:
				return nil, fmt.Errorf("shapes %v do not broadcast: dim %d stands against %d", shapes, d, *o)
			}
		}
	}
	return out, nil
}

// broadcastStrides returns the strides with which a dense tensor of shape is read as one of shape out:
// 0 in the dims that stretch.
func broadcastStrides(shape, out []int) []int {
	strides := make([]int, len(out))
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 {
			strides[len(out)-len(shape)+i] = step
			step *= shape[i]
		}
	}
	return strides
}

// broadcast is t read with shape out; t itself where that is its shape.
func (t *Tensor) broadcast(out []int) (*Tensor, error) {
	if equalInts(t.Shape, out) {
		return t, nil
	}
	joined, err := broadcastShape(t.Shape, out)
	if err != nil {
		return nil, err
	}
	if !equalInts(joined, out) {
		return nil, fmt.Errorf("shape %v does not broadcast to %v", t.Shape, out)
	}
	return t.view(out, broadcastStrides(t.Shape, out), 0)
}

// row computes one run of elements. x and y have the length of dst, or 1 where they stretch over it.
type row[T, R any] func(dst []R, x, y []T)

// eachPair makes a row of a function of two elements.
func eachPair[T, R any](f func(x, y T) R) row[T, R] {
	return func(dst []R, x, y []T) {
		switch {
		case len(x) == len(dst) && len(y) == len(dst):
			for i := range dst {
				dst[i] = f(x[i], y[i])
			}
		case len(x) == len(dst):
			for i, v := range x {
				dst[i] = f(v, y[0])
			}
		default:
			for i, v := range y {
				dst[i] = f(x[0], v)
			}
		}
	}
}

// broadcastRows computes dst, of shape out, from x and y, of shapes xs and ys that broadcast to out.
// It cuts the work into the longest runs over which each of x and y is either dense or constant.
func broadcastRows[T, R any](dst []R, out []int, x []T, xs []int, y []T, ys []int, f row[T, R]) {
	if len(dst) == 0 {
		return
	}
	if len(x) == len(dst) && len(y) == len(dst) || len(x) == len(dst) && len(y) == 1 ||
		len(x) == 1 && len(y) == len(dst) {
		f(dst, x, y)
		return
	}
	dims, strides := mergeDims(out, broadcastStrides(xs, out), broadcastStrides(ys, out))
	last := len(dims) - 1
	n := dims[last]
	xn, yn := 1+(n-1)*strides[0][last], 1+(n-1)*strides[1][last]
	position := make([]int, last)
	xo, yo := 0, 0
	for o := 0; ; o += n {
		f(dst[o:o+n], x[xo:xo+xn], y[yo:yo+yn])
		i := last - 1
		for ; i >= 0; i-- {
			xo, yo = xo+strides[0][i], yo+strides[1][i]
			if position[i]++; position[i] < dims[i] {
				break
			}
			xo, yo = xo-dims[i]*strides[0][i], yo-dims[i]*strides[1][i]
			position[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// mergeDims simplifies the dims of a loop over several operands. It drops dims of 1. It joins two neighbours where the
// strides of every operand let one loop step through both. So the loops are few and long. At least one dim is left.
func mergeDims(shape []int, operands ...[]int) (dims []int, strides [][]int) {
	dims = make([]int, 0, len(shape)+1)
	strides = make([][]int, len(operands))
	for i, d := range shape {
		if d == 1 {
			continue
		}
		last := len(dims) - 1
		joins := last >= 0
		for k, s := range operands {
			joins = joins && strides[k][last] == s[i]*d
		}
		if !joins {
			dims = append(dims, d)
			for k, s := range operands {
				strides[k] = append(strides[k], s[i])
			}
			continue
		}
		dims[last] *= d
		for k, s := range operands {
			strides[k][last] = s[i]
		}
	}
	if len(dims) == 0 {
		dims = append(dims, 1)
		for k := range strides {
			strides[k] = append(strides[k], 0)
		}
	}
	return dims, strides
}

// where takes x where the condition is not zero, else y, in their common dtype.
func where(c *Call) ([]Value, error) {
	x, y := c.Tensor("x"), c.Tensor("y")
	cond := c.cast(c.Tensor("condition"), ir.Bool)
	shape, err := broadcastShape(cond.Shape, x.Shape, y.Shape)
	if err != nil {
		return nil, err
	}
	d := ir.Promote(x.DType, y.DType)
	x, y = c.cast(x, d), c.cast(y, d)
	out, err := NewTensor(d, shape...)
	if err != nil {
		return nil, err
	}
	if cond, err = cond.broadcast(shape); err != nil {
		return nil, err
	}
	if d.IsFloat() {
		selectRows(out.F, shape, cond.I, x.F, x.Shape, y.F, y.Shape)
	} else {
		selectRows(out.I, shape, cond.I, x.I, x.Shape, y.I, y.Shape)
	}
	return c.result(out, nil)
}

// selectRows chooses between x and y by cond, which has the shape out. It relies on broadcastRows
// filling dst from front to back.
func selectRows[T any](dst []T, out []int, cond []int64, x []T, xs []int, y []T, ys []int) {
	broadcastRows(dst, out, x, xs, y, ys, func(dst []T, x, y []T) {
		run := cond[:len(dst)]
		cond = cond[len(dst):]
		xi, yi := btoi(len(x) > 1), btoi(len(y) > 1)
		for i, v := range run {
			if v != 0 {
				dst[i] = x[i*xi]
			} else {
				dst[i] = y[i*yi]
			}
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// clip returns the minimum of a_max and the maximum of a_min and x; either bound may be absent.
func clip(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	var err error
	if c.Has("a_min") {
		if x, err = c.arithmetic(maximum, x, c.Tensor("a_min")); err != nil {
			return nil, err
		}
	}
	if c.Has("a_max") {
		if x, err = c.arithmetic(minimum, x, c.Tensor("a_max")); err != nil {
			return nil, err
		}
	}
	return c.result(x, nil)
}
