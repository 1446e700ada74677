package eval

import (
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func init() {
	register(map[string]Kernel{
		"astype": func(c *Call) ([]Value, error) { return c.result(c.Tensor("x"), nil) },
	})
}

// result gives t the dtype that the type rule declares for the only result, and wraps it.
func (c *Call) result(t *Tensor, err error) ([]Value, error) {
	if err != nil {
		return nil, err
	}
	return []Value{{Tensor: c.cast(t, c.Result(0).DType)}}, nil
}

// cast gives the elements of t the dtype d, as a C++ static_cast does: floats truncate toward zero,
// integers wrap, anything but zero is true. Floats are rounded to d under Strict only. The result may
// share storage with t, and is t where that has the dtype already.
func (c *Call) cast(t *Tensor, d ir.DType) *Tensor {
	switch {
	case t.DType == d:
		return t
	case !t.DType.IsFloat() && !d.IsFloat() && holds(d, t.DType):
		return &Tensor{DType: d, Shape: t.Shape, I: t.I}
	case t.DType.IsFloat() && !d.IsFloat():
		out := make([]int64, len(t.F))
		for i, v := range t.F {
			out[i] = toInteger(d, v)
		}
		return Ints(d, t.Shape, out)
	}
	return convert(t, d, c.Precision)
}

// toInteger converts v to the integer or bool dtype d, rounding toward zero. C++ leaves the result undefined where v
// does not fit. Here it is the result of the x86 instruction cvttss2si, the smallest signed number, cut to the width of
// d.
func toInteger(d ir.DType, v float32) int64 {
	switch d {
	case ir.Bool:
		return int64(btoi(v != 0))
	case ir.U64:
		if v >= 1<<63 {
			return toInteger(ir.I64, v-1<<63) ^ math.MinInt64
		}
		return toInteger(ir.I64, v)
	case ir.I64, ir.U32: // converted by the 64-bit form
		if v >= -1<<63 && v < 1<<63 {
			return wrap(d, int64(v))
		}
		return wrap(d, math.MinInt64)
	}
	if v >= -1<<31 && v < 1<<31 {
		return wrap(d, int64(v))
	}
	return wrap(d, math.MinInt32)
}

// holds reports whether every element of integer or bool dtype from, as a Tensor stores it, is already
// one of dtype d.
func holds(d, from ir.DType) bool {
	switch {
	case from == ir.Bool || d.Size() == 8:
		return true
	case d == ir.Bool:
		return false
	case d.IsUnsigned():
		return from.IsUnsigned() && from.Size() <= d.Size()
	case from.IsUnsigned():
		return from.Size() < d.Size()
	}
	return from.Size() <= d.Size()
}

// atLeastFloat returns the dtype in which MLX computes a function of floats: f32 for integers and bools.
func atLeastFloat(d ir.DType) ir.DType {
	if d.IsFloat() {
		return d
	}
	return ir.F32
}

// roundAll rounds v in place to the float dtype d under Strict.
func (c *Call) roundAll(d ir.DType, v []float32) {
	if c.Precision != Strict {
		return
	}
	switch d {
	case ir.BF16:
		numeric.RoundBF16Slice(v, v)
	case ir.F16:
		numeric.RoundF16Slice(v, v)
	}
}

// wrapAll reduces v in place to the integer or bool dtype d.
func wrapAll(d ir.DType, v []int64) {
	if d == ir.I64 || d == ir.U64 {
		return
	}
	for i, x := range v {
		v[i] = wrap(d, x)
	}
}
