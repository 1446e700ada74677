package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func init() {
	register(map[string]Kernel{
		"argmax":  argExtremum(func(x, y float32) bool { return x > y }, func(x, y int64) bool { return x > y }),
		"argmin":  argExtremum(func(x, y float32) bool { return x < y }, func(x, y int64) bool { return x < y }),
		"cumsum":  cumsum,
		"softmax": softmax,
	})
}

// argExtremum makes a kernel that gives the first index of the greatest (or least) element along an axis,
// as u32. A NaN never wins against a number; of NaNs alone the first counts.
func argExtremum(float func(x, y float32) bool, integer func(x, y int64) bool) Kernel {
	return func(c *Call) ([]Value, error) {
		x, a := c.Tensor("x"), ir.Attrs[ir.ArgReduceAttrs](c.Op)
		if x.Len() == 0 {
			return nil, fmt.Errorf("x has shape %v: no elements have no extremum", x.Shape)
		}
		axis, err := axisIn(a.Axis, len(x.Shape))
		if err != nil {
			return nil, err
		}
		r, err := reduction(x, []int{axis}, a.Keepdims)
		if err != nil {
			return nil, err
		}
		out, err := NewTensor(ir.U32, r.shape...)
		if err != nil {
			return nil, err
		}
		switch {
		case x.F != nil:
			eachRow(r, r.x.F, func(i int, row []float32) {
				best := 0
				for j, v := range row {
					if float(v, row[best]) || row[best] != row[best] && v == v {
						best = j
					}
				}
				out.I[i] = int64(best)
			})
		default:
			v := r.x.I
			if x.DType == ir.U64 {
				v = ordered(v)
			}
			eachRow(r, v, func(i int, row []int64) {
				best := 0
				for j, v := range row {
					if integer(v, row[best]) {
						best = j
					}
				}
				out.I[i] = int64(best)
			})
		}
		return c.result(out, nil)
	}
}

// cumsum adds up an axis from its start, or in reverse from its end. An exclusive sum leaves out the
// element itself. Floats are added in float64 and every sum is rounded.
func cumsum(c *Call) ([]Value, error) {
	x, a := c.Tensor("x"), ir.Attrs[ir.CumsumAttrs](c.Op)
	d := x.DType
	if d == ir.Bool {
		d = ir.I32
		x = c.cast(x, d)
	}
	r, err := alongRows(x, a.Axis)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(d, x.Shape...)
	if err != nil {
		return nil, err
	}
	if x.F != nil {
		sums := make([]float32, r.n)
		eachRow(r, x.F, func(i int, row []float32) {
			runningSums(row, a, func(at int, s float64) { sums[at] = float32(s) })
			setRow(r, out.F, i, sums)
		})
		c.roundAll(d, out.F)
		return c.result(out, nil)
	}
	sums := make([]int64, r.n)
	eachRow(r, x.I, func(i int, row []int64) {
		runningSums(row, a, func(at int, s int64) { sums[at] = wrap(d, s) })
		setRow(r, out.I, i, sums)
	})
	return c.result(out, nil)
}

// runningSums calls set with the sum at every position, formed in S.
func runningSums[T, S float32 | float64 | int64](row []T, a *ir.CumsumAttrs, set func(at int, s S)) {
	var s S
	for k := range row {
		at := k
		if a.Reverse {
			at = len(row) - 1 - k
		}
		if !a.Inclusive {
			set(at, s)
		}
		s += S(row[at])
		if a.Inclusive {
			set(at, s)
		}
	}
}

// softmax is e^(x-max) over its sum along an axis. It is computed in float32 with a float64 sum whatever
// the attribute precise says: MLX without precise sums bf16 in bf16, which saturates.
func softmax(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	x = c.cast(x, atLeastFloat(x.DType))
	r, err := alongRows(x, ir.Attrs[ir.SoftmaxAttrs](c.Op).Axis)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(x.DType, x.Shape...)
	if err != nil {
		return nil, err
	}
	if out.Len() == 0 {
		return c.result(out, nil)
	}
	powers := make([]float32, r.n)
	eachRow(r, x.F, func(i int, row []float32) {
		softmaxRow(powers, row)
		setRow(r, out.F, i, powers)
	})
	c.roundAll(x.DType, out.F)
	return c.result(out, nil)
}

// softmaxRow computes one row. A row of nothing but -inf gives NaN, one without elements has nothing to compute.
func softmaxRow(dst, row []float32) {
	if len(row) == 0 {
		return
	}
	high := fold(row, maxFloat)
	s := 0.0
	for j, v := range row {
		dst[j] = numeric.Exp32(v - high)
		s += float64(dst[j])
	}
	for j, v := range dst {
		dst[j] = float32(float64(v) / s)
	}
}
