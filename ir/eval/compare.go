package eval

import (
	"cmp"
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"less":           comparison(less[float32], less[int64], false),
		"less_equal":     comparison(lessEqual[float32], lessEqual[int64], false),
		"greater":        comparison(less[float32], less[int64], true),
		"greater_equal":  comparison(lessEqual[float32], lessEqual[int64], true),
		"equal":          comparison(equal[float32], equal[int64], false),
		"not_equal":      comparison(notEqual[float32], notEqual[int64], false),
		"logical_not":    logicalNot,
		"logical_and":    logical(func(x, y int64) int64 { return x & y }),
		"logical_or":     logical(func(x, y int64) int64 { return x | y }),
		"bitwise_and":    bitwise(func(x, y int64) int64 { return x & y }),
		"bitwise_or":     bitwise(func(x, y int64) int64 { return x | y }),
		"bitwise_xor":    bitwise(func(x, y int64) int64 { return x ^ y }),
		"bitwise_invert": bitwiseInvert,
	})
}

func less[T cmp.Ordered](x, y T) int64      { return int64(btoi(x < y)) }
func lessEqual[T cmp.Ordered](x, y T) int64 { return int64(btoi(x <= y)) }
func equal[T cmp.Ordered](x, y T) int64     { return int64(btoi(x == y)) }
func notEqual[T cmp.Ordered](x, y T) int64  { return int64(btoi(x != y)) }

// comparison makes a kernel that compares in the promoted dtype; swapped compares b with a. A NaN is
// unequal to everything and neither less nor greater.
func comparison(f func(x, y float32) int64, i func(x, y int64) int64, swapped bool) Kernel {
	floats, ints := eachPair(f), eachPair(i)
	return func(c *Call) ([]Value, error) {
		a, b := c.Tensor("a"), c.Tensor("b")
		if swapped {
			a, b = b, a
		}
		d := ir.Promote(a.DType, b.DType)
		a, b = c.cast(a, d), c.cast(b, d)
		shape, err := broadcastShape(a.Shape, b.Shape)
		if err != nil {
			return nil, err
		}
		out, err := NewTensor(ir.Bool, shape...)
		if err != nil {
			return nil, err
		}
		switch {
		case d.IsFloat():
			broadcastRows(out.I, shape, a.F, a.Shape, b.F, b.Shape, floats)
		case d == ir.U64:
			broadcastRows(out.I, shape, ordered(a.I), a.Shape, ordered(b.I), b.Shape, ints)
		default:
			broadcastRows(out.I, shape, a.I, a.Shape, b.I, b.Shape, ints)
		}
		return c.result(out, nil)
	}
}

// ordered maps stored u64 elements to numbers that compare as signed like they do as unsigned.
func ordered(v []int64) []int64 {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = x ^ math.MinInt64
	}
	return out
}

// logical makes a kernel on the truth of both arguments: anything but zero is true, NaN too.
func logical(f func(x, y int64) int64) Kernel {
	pairs := eachPair(f)
	return func(c *Call) ([]Value, error) {
		return c.result(integers(c.cast(c.Tensor("a"), ir.Bool), c.cast(c.Tensor("b"), ir.Bool), pairs))
	}
}

// bitwise makes a kernel on integers or bools in the promoted dtype.
func bitwise(f func(x, y int64) int64) Kernel {
	pairs := eachPair(f)
	return func(c *Call) ([]Value, error) {
		a, b := c.Tensor("a"), c.Tensor("b")
		d := ir.Promote(a.DType, b.DType)
		if d.IsFloat() {
			return nil, fmt.Errorf("a is %s and b is %s: want integers or bools", a.DType, b.DType)
		}
		return c.result(integers(c.cast(a, d), c.cast(b, d), pairs))
	}
}

// integers broadcasts two tensors of one integer or bool dtype. The result of f needs no wrapping.
func integers(a, b *Tensor, f row[int64, int64]) (*Tensor, error) {
	shape, err := broadcastShape(a.Shape, b.Shape)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(a.DType, shape...)
	if err != nil {
		return nil, err
	}
	broadcastRows(out.I, shape, a.I, a.Shape, b.I, b.Shape, f)
	return out, nil
}

func logicalNot(c *Call) ([]Value, error) {
	x := c.cast(c.Tensor("x"), ir.Bool)
	out := make([]int64, len(x.I))
	for i, v := range x.I {
		out[i] = v ^ 1
	}
	return c.result(Ints(ir.Bool, x.Shape, out), nil)
}

// bitwiseInvert flips every bit; a bool is negated.
func bitwiseInvert(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	switch {
	case x.DType == ir.Bool:
		return logicalNot(c)
	case x.DType.IsFloat():
		return nil, fmt.Errorf("x is %s: want an integer or bool", x.DType)
	}
	out := make([]int64, len(x.I))
	for i, v := range x.I {
		out[i] = wrap(x.DType, ^v)
	}
	return c.result(Ints(x.DType, x.Shape, out), nil)
}
