package eval

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func init() {
	register(map[string]Kernel{
		"var":       variance(func(v float32) float32 { return v }),
		"std":       variance(sqrt),
		"median":    median,
		"logsumexp": logSumExp,
	})
}

// variance makes a kernel of the sum of squared distances from the mean over n - ddof (0 where that is
// negative), and of finish of it. It rounds where MLX does: mean, distance, square, sum, quotient.
func variance(finish func(float32) float32) Kernel {
	return func(c *Call) ([]Value, error) {
		a := ir.Attrs[ir.VarianceAttrs](c.Op)
		r, err := reduction(c.Tensor("x"), a.Axes, a.Keepdims)
		if err != nil {
			return nil, err
		}
		means, err := c.meanRows(r)
		if err != nil {
			return nil, err
		}
		d := means.DType
		x := c.cast(r.x, d)
		divisor := c.Round(d, float32(max(0, r.n-a.Ddof)))
		factor := c.Round(d, float32(1/float64(r.n)))
		eachRow(r, x.F, func(i int, row []float32) {
			s := 0.0
			for _, v := range row {
				distance := c.Round(d, v-means.F[i])
				s += float64(c.Round(d, float32(distance*distance)))
			}
			v := c.Round(d, float32(s))
			if a.Ddof == 0 {
				v = float32(v * factor)
			} else {
				v /= divisor
			}
			means.F[i] = c.Round(d, finish(c.Round(d, v))) // the mean of row i is not needed any more
		})
		return c.result(means, nil)
	}
}

// median returns the middle element of every sorted row, or the mean of the two in the middle. A NaN wins.
func median(c *Call) ([]Value, error) {
	x, a := c.Tensor("x"), ir.Attrs[ir.ReduceAttrs](c.Op)
	d := atLeastFloat(x.DType)
	r, err := reduction(c.cast(x, d), a.Axes, a.Keepdims)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(d, r.shape...)
	if err != nil {
		return nil, err
	}
	if r.n == 0 && out.Len() > 0 {
		return nil, fmt.Errorf("x has shape %v: no elements have no median", x.Shape)
	}
	sortRows(r, r.x, func(i int, row sortedRow) {
		middle := row.floats[row.at(r.n/2)]
		if r.n%2 == 0 {
			middle = float32(0.5 * c.Round(d, middle+row.floats[row.at(r.n/2-1)]))
		}
		if last := row.floats[row.at(r.n-1)]; last != last { // NaN is sorted last
			middle = last
		}
		out.F[i] = middle
	})
	c.roundAll(d, out.F)
	return c.result(out, nil)
}

// logSumExp is log Σ e^x of every row, computed from the row's maximum. Without axes it is x itself:
// the delegate passes the empty list on, and MLX reduces nothing.
func logSumExp(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	x = c.cast(x, atLeastFloat(x.DType))
	a := ir.Attrs[ir.ReduceAttrs](c.Op)
	if len(a.Axes) == 0 {
		return c.result(x, nil)
	}
	r, err := reduction(x, a.Axes, a.Keepdims)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(x.DType, r.shape...)
	if err != nil {
		return nil, err
	}
	if r.n == 0 && out.Len() > 0 {
		return nil, fmt.Errorf("x has shape %v: no elements have no maximum", x.Shape)
	}
	eachRow(r, r.x.F, func(i int, row []float32) {
		high := fold(row, maxFloat)
		out.F[i] = high
		if math.IsInf(float64(high), 0) || high != high {
			return
		}
		s := 0.0
		for _, v := range row {
			s += numeric.Exp(float64(v) - float64(high))
		}
		out.F[i] = float32(numeric.Log(s) + float64(high))
	})
	c.roundAll(out.DType, out.F)
	return c.result(out, nil)
}
