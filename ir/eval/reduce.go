package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"sum":  sum,
		"prod": prod,
		"mean": mean,
		"max":  extremum(maxFloat, maxInt, maxU64),
		"min":  extremum(minFloat, minInt, minU64),
		"any":  truth(func(zero, other bool) bool { return other }),
		"all":  truth(func(zero, other bool) bool { return !zero }),
	})
}

// rows is a tensor seen as rows of n elements: outer blocks of inner rows each, whose elements lie
// inner apart. Row number i of the tensor gives element i of a reduction's result.
type rows struct {
	x               *Tensor
	outer, n, inner int
	shape           []int // of the result
}

// reduction prepares to reduce x over axes; none stand for all of them.
func reduction(x *Tensor, axes []int, keepdims bool) (*rows, error) {
	rank := len(x.Shape)
	mark := make([]bool, rank)
	for _, a := range axes {
		axis, err := axisIn(a, rank)
		if err != nil {
			return nil, err
		}
		if mark[axis] {
			return nil, fmt.Errorf("axes %v list axis %d twice", axes, axis)
		}
		mark[axis] = true
	}
	r := &rows{x: x, outer: 1, n: 1, inner: 1, shape: []int{}}
	var kept, gone []int
	for i, d := range x.Shape {
		if len(axes) > 0 && !mark[i] {
			kept = append(kept, i)
			r.shape = append(r.shape, d)
			continue
		}
		gone = append(gone, i)
		if keepdims {
			r.shape = append(r.shape, 1)
		}
	}
	// The reduced dims are one when, dims of 1 aside, none that is kept lies between them.
	first, last := rank, -1
	for _, i := range gone {
		if x.Shape[i] != 1 {
			first, last = min(first, i), max(last, i)
		}
	}
	scattered := false
	for _, i := range kept {
		scattered = scattered || i > first && i < last && x.Shape[i] != 1
	}
	if scattered {
		var err error
		if r.x, err = x.permuted(append(append([]int(nil), kept...), gone...)); err != nil {
			return nil, err
		}
		first, last = len(kept), rank-1
	}
	for i, d := range r.x.Shape {
		switch {
		case i < first:
			r.outer *= d
		case i <= last:
			r.n *= d
		default:
			r.inner *= d
		}
	}
	return r, nil
}

// alongRows prepares to work along one axis, keeping its dim.
func alongRows(x *Tensor, axis int) (*rows, error) {
	axis, err := axisIn(axis, len(x.Shape))
	if err != nil {
		return nil, err
	}
	outer, inner := around(x.Shape, axis)
	return &rows{x: x, outer: outer, n: x.Shape[axis], inner: inner, shape: x.Shape}, nil
}

// eachRow calls f for every row of v in order. The row is f's to read until f returns.
func eachRow[T any](r *rows, v []T, f func(i int, row []T)) {
	if r.inner == 1 {
		for i := range r.outer {
			f(i, v[i*r.n:(i+1)*r.n])
		}
		return
	}
	row := make([]T, r.n)
	for o := range r.outer {
		for k := range r.inner {
			from := v[o*r.n*r.inner:]
			for j := range row {
				row[j] = from[j*r.inner+k]
			}
			f(o*r.inner+k, row)
		}
	}
}

// setRow stores a row of results where row number i of v lies.
func setRow[T any](r *rows, v []T, i int, row []T) {
	o, k := i/r.inner, i%r.inner
	to := v[o*r.n*r.inner:]
	for j, x := range row {
		to[j*r.inner+k] = x
	}
}

func reduceAttrs(c *Call) (*rows, error) {
	a := ir.Attrs[ir.ReduceAttrs](c.Op)
	return reduction(c.Tensor("x"), a.Axes, a.Keepdims)
}

// sumDType returns the dtype of a sum or product of integers or bools: at least 32 bits wide.
func sumDType(d ir.DType) ir.DType {
	switch {
	case d.IsFloat() || d.Size() == 8:
		return d
	case d.IsUnsigned():
		return ir.U32
	}
	return ir.I32
}

// sumRows adds up every row: floats in float64, rounded once to float32 and once more under Strict;
// integers wrap.
func (c *Call) sumRows(r *rows) (*Tensor, error) {
	out, err := NewTensor(sumDType(r.x.DType), r.shape...)
	if err != nil {
		return nil, err
	}
	if out.F != nil {
		eachRow(r, r.x.F, func(i int, row []float32) { out.F[i] = float32(sumFloats(row)) })
		c.roundAll(out.DType, out.F)
		return out, nil
	}
	eachRow(r, r.x.I, func(i int, row []int64) {
		s := int64(0)
		for _, v := range row {
			s += v
		}
		out.I[i] = wrap(out.DType, s)
	})
	return out, nil
}

func sumFloats(row []float32) float64 {
	s := 0.0
	for _, v := range row {
		s += float64(v)
	}
	return s
}

func sum(c *Call) ([]Value, error) {
	r, err := reduceAttrs(c)
	if err != nil {
		return nil, err
	}
	return c.result(c.sumRows(r))
}

func prod(c *Call) ([]Value, error) {
	r, err := reduceAttrs(c)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(sumDType(r.x.DType), r.shape...)
	if err != nil {
		return nil, err
	}
	if out.F != nil {
		eachRow(r, r.x.F, func(i int, row []float32) {
			p := 1.0
			for _, v := range row {
				p *= float64(v)
			}
			out.F[i] = float32(p)
		})
		c.roundAll(out.DType, out.F)
		return c.result(out, nil)
	}
	eachRow(r, r.x.I, func(i int, row []int64) {
		p := int64(1)
		for _, v := range row {
			p *= v
		}
		out.I[i] = wrap(out.DType, p)
	})
	return c.result(out, nil)
}

// meanRows returns the sum of every row times 1/n. MLX sums integers as integers, which may wrap, and rounds
// the sum and 1/n to the dtype; so does this under Strict.
func (c *Call) meanRows(r *rows) (*Tensor, error) {
	d := atLeastFloat(r.x.DType)
	s, err := c.sumRows(r)
	if err != nil {
		return nil, err
	}
	out := c.cast(s, d)
	scale := c.Round(d, float32(1/float64(r.n)))
	for i, v := range out.F {
		out.F[i] = v * scale
	}
	c.roundAll(d, out.F)
	return out, nil
}

func mean(c *Call) ([]Value, error) {
	r, err := reduceAttrs(c)
	if err != nil {
		return nil, err
	}
	return c.result(c.meanRows(r))
}

// extremum makes a kernel that folds rows with a maximum or minimum; a NaN wins.
func extremum(float func(x, y float32) float32, integer, u64 func(x, y int64) int64) Kernel {
	return func(c *Call) ([]Value, error) {
		r, err := reduceAttrs(c)
		if err != nil {
			return nil, err
		}
		out, err := NewTensor(r.x.DType, r.shape...)
		if err != nil {
			return nil, err
		}
		if r.n == 0 && out.Len() > 0 {
			return nil, fmt.Errorf("x has shape %v: no elements have no extremum", r.x.Shape)
		}
		f := integer
		if r.x.DType == ir.U64 {
			f = u64
		}
		if out.F != nil {
			eachRow(r, r.x.F, func(i int, row []float32) { out.F[i] = fold(row, float) })
		} else {
			eachRow(r, r.x.I, func(i int, row []int64) { out.I[i] = fold(row, f) })
		}
		return c.result(out, nil)
	}
}

// fold combines the elements of a row, which has at least one.
func fold[T any](row []T, f func(x, y T) T) T {
	v := row[0]
	for _, x := range row[1:] {
		v = f(v, x)
	}
	return v
}

// truth makes a kernel on the truth of the elements: f sees whether a row has a zero and whether it has
// anything else. NaN is not zero.
func truth(f func(zero, other bool) bool) Kernel {
	return func(c *Call) ([]Value, error) {
		x := c.cast(c.Tensor("x"), ir.Bool)
		a := ir.Attrs[ir.ReduceAttrs](c.Op)
		r, err := reduction(x, a.Axes, a.Keepdims)
		if err != nil {
			return nil, err
		}
		out, err := NewTensor(ir.Bool, r.shape...)
		if err != nil {
			return nil, err
		}
		eachRow(r, r.x.I, func(i int, row []int64) {
			zero, other := false, false
			for _, v := range row {
				zero, other = zero || v == 0, other || v != 0
			}
			out.I[i] = int64(btoi(f(zero, other)))
		})
		return c.result(out, nil)
	}
}
