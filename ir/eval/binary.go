package eval

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func init() {
	for name, op := range map[string]*arithmetic{
		"add":       {float: addRow, int: eachPair(func(x, y int64) int64 { return x + y })},
		"subtract":  {float: subtractRow, int: eachPair(func(x, y int64) int64 { return x - y })},
		"multiply":  {float: multiplyRow, int: eachPair(func(x, y int64) int64 { return x * y })},
		"maximum":   maximum,
		"minimum":   minimum,
		"power":     {float: eachPair(numeric.Pow32), int: eachPair(power), u64: eachPair(powerU64)},
		"remainder": remainder,
		"divide":    divide,
		"atan2":     {float: eachPair(numeric.Atan232)},
		"logaddexp": {float: eachPair(logAddExp)},
	} {
		register(map[string]Kernel{name: func(c *Call) ([]Value, error) {
			return c.result(c.arithmetic(op, c.Tensor("a"), c.Tensor("b")))
		}})
	}
	register(map[string]Kernel{"floor_divide": floorDivide})
}

// arithmetic is an operation on two numbers of one dtype. An operation without int works on floats only.
type arithmetic struct {
	float row[float32, float32]
	short row[float32, float32] // where bf16 and f16 need another than float
	int   row[int64, int64]     // the result is wrapped
	u64   row[int64, int64]     // where u64 needs another than int
	// nonzero marks an operation whose second integer must not be 0.
	nonzero bool
}

var (
	maximum   = &arithmetic{float: eachPair(maxFloat), int: eachPair(maxInt), u64: eachPair(maxU64)}
	minimum   = &arithmetic{float: eachPair(minFloat), int: eachPair(minInt), u64: eachPair(minU64)}
	divide    = &arithmetic{float: eachPair(func(x, y float32) float32 { return x / y })}
	remainder = &arithmetic{
		float:   eachPair(floatRemainder),
		short:   eachPair(ieeeRemainder),
		int:     eachPair(intRemainder),
		u64:     eachPair(func(x, y int64) int64 { return int64(uint64(x) % uint64(y)) }),
		nonzero: true,
	}
)

// arithmetic broadcasts a and b, promotes them to their common dtype (to f32 where op needs floats) and
// computes op. Floats are rounded under Strict.
func (c *Call) arithmetic(op *arithmetic, a, b *Tensor) (*Tensor, error) {
	d := ir.Promote(a.DType, b.DType)
	if op.int == nil {
		d = atLeastFloat(d)
	}
	a, b = c.cast(a, d), c.cast(b, d)
	shape, err := broadcastShape(a.Shape, b.Shape)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(d, shape...)
	if err != nil {
		return nil, err
	}
	if d.IsFloat() {
		f := op.float
		if d.Size() == 2 && op.short != nil {
			f = op.short
		}
		broadcastRows(out.F, shape, a.F, a.Shape, b.F, b.Shape, f)
		c.roundAll(d, out.F)
		return out, nil
	}
	if op.nonzero && out.Len() > 0 {
		for i, v := range b.I {
			if v == 0 {
				return nil, fmt.Errorf("integer division by zero: element %d of b, %s%v, is 0", i, d, b.Shape)
			}
		}
	}
	f := op.int
	if d == ir.U64 && op.u64 != nil {
		f = op.u64
	}
	broadcastRows(out.I, shape, a.I, a.Shape, b.I, b.Shape, f)
	wrapAll(d, out.I)
	return out, nil
}

// The rows of the operations that models spend their time in are written out.

func addRow(dst, x, y []float32) {
	if len(x) < len(dst) {
		x, y = y, x
	}
	if len(y) == len(x) {
		for i, v := range x {
			dst[i] = v + y[i]
		}
		return
	}
	for i, v := range x {
		dst[i] = v + y[0]
	}
}

func multiplyRow(dst, x, y []float32) {
	if len(x) < len(dst) {
		x, y = y, x
	}
	if len(y) == len(x) {
		for i, v := range x {
			dst[i] = v * y[i]
		}
		return
	}
	for i, v := range x {
		dst[i] = v * y[0]
	}
}

func subtractRow(dst, x, y []float32) {
	switch {
	case len(x) == len(dst) && len(y) == len(dst):
		for i, v := range x {
			dst[i] = v - y[i]
		}
	case len(x) == len(dst):
		for i, v := range x {
			dst[i] = v - y[0]
		}
	default:
		for i, v := range y {
			dst[i] = x[0] - v
		}
	}
}

// maxFloat is NaN where x or y is.
func maxFloat(x, y float32) float32 {
	if x > y || x != x {
		return x
	}
	return y
}

// minFloat is NaN where x or y is.
func minFloat(x, y float32) float32 {
	if x < y || x != x {
		return x
	}
	return y
}

func maxInt(x, y int64) int64 { return max(x, y) }
func minInt(x, y int64) int64 { return min(x, y) }
func maxU64(x, y int64) int64 { return int64(max(uint64(x), uint64(y))) }
func minU64(x, y int64) int64 { return int64(min(uint64(x), uint64(y))) }

// ieeeRemainder returns the exact difference of x and the multiple of y nearest to it. MLX on a CPU gives
// it for bf16 and f16, whose C++ classes its correction of the sign takes for unsigned.
func ieeeRemainder(x, y float32) float32 {
	return float32(math.Remainder(float64(x), float64(y)))
}

// floatRemainder has the sign of y, as Python's %.
func floatRemainder(x, y float32) float32 {
	r := ieeeRemainder(x, y)
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	return r
}

// intRemainder has the sign of y, which is not 0.
func intRemainder(x, y int64) int64 {
	r := x % y
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	return r
}

// power is 0 for a negative exponent, whatever the base, as in MLX.
func power(x, y int64) int64 {
	if y < 0 {
		return 0
	}
	return powerU64(x, y)
}

func powerU64(x, y int64) int64 {
	result := int64(1)
	for e := uint64(y); e != 0; e >>= 1 {
		if e&1 != 0 {
			result *= x
		}
		x *= x
	}
	return result
}

// logAddExp is log(e^x + e^y).
func logAddExp(x, y float32) float32 {
	if x != x || y != y {
		return float32(math.NaN())
	}
	hi, lo := max(x, y), min(x, y)
	if math.IsInf(float64(lo), -1) || math.IsInf(float64(hi), 1) {
		return hi
	}
	return float32(float64(hi) + numeric.Log1p(numeric.Exp(float64(lo)-float64(hi))))
}

// floorDivide of floats is the floor of the quotient. Of integers the delegate computes the quotient
// in f32 and takes 1 off where the remainder is not 0 and the signs differ: -7//2 is -4.5, which only
// truncation to an integer turns into -4, and beyond 2^24 digits are lost. That is what the node means.
func floorDivide(c *Call) ([]Value, error) {
	a, b := c.Tensor("a"), c.Tensor("b")
	quotient, err := c.arithmetic(divide, a, b)
	if err != nil {
		return nil, err
	}
	if a.DType.IsFloat() {
		for i, v := range quotient.F {
			quotient.F[i] = floor(v)
		}
		return c.result(quotient, nil)
	}
	rest, err := c.arithmetic(remainder, a, b)
	if err != nil {
		return nil, err
	}
	opposite := make([]int64, quotient.Len())
	broadcastRows(opposite, quotient.Shape, negatives(a), a.Shape, negatives(b), b.Shape,
		eachPair(func(x, y int64) int64 { return x ^ y }))
	for i := range quotient.F {
		if opposite[i] != 0 && (rest.F != nil && rest.F[i] != 0 || rest.I != nil && rest.I[i] != 0) {
			quotient.F[i]--
		}
	}
	c.roundAll(quotient.DType, quotient.F)
	return c.result(quotient, nil)
}

// negatives marks the elements below zero with 1.
func negatives(t *Tensor) []int64 {
	out := make([]int64, t.Len())
	for i, v := range t.F {
		out[i] = int64(btoi(v < 0))
	}
	if !t.DType.IsUnsigned() {
		for i, v := range t.I {
			out[i] = int64(btoi(v < 0))
		}
	}
	return out
}
