package eval

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func init() {
	for name, f := range map[string]func(float32) float32{
		"sigmoid": sigmoid,
		"tanh":    numeric.Tanh32,
		"exp":     numeric.Exp32,
		"expm1":   numeric.Expm132,
		"log":     numeric.Log32,
		"log1p":   numeric.Log1p32,
		"log2":    numeric.Log232,
		"log10":   numeric.Log1032,
		"sin":     numeric.Sin32,
		"cos":     numeric.Cos32,
		"tan":     numeric.Tan32,
		"arcsin":  numeric.Asin32,
		"arccos":  numeric.Acos32,
		"arctan":  numeric.Atan32,
		"sinh":    numeric.Sinh32,
		"cosh":    numeric.Cosh32,
		"arcsinh": numeric.Asinh32,
		"arccosh": numeric.Acosh32,
		"arctanh": numeric.Atanh32,
		"erf":     numeric.Erf32,
		"sqrt":    sqrt,
		// MLX divides by the rounded root.
		"rsqrt":      func(x float32) float32 { return 1 / sqrt(x) },
		"reciprocal": func(x float32) float32 { return 1 / x },
	} {
		register(map[string]Kernel{name: func(c *Call) ([]Value, error) {
			x := c.Tensor("x")
			return c.result(c.mapFloats(c.cast(x, atLeastFloat(x.DType)), f), nil)
		}})
	}
	register(map[string]Kernel{
		"silu":   silu,
		"gelu":   gelu,
		"floor":  sameDType(floor, identity),
		"ceil":   sameDType(func(x float32) float32 { return float32(math.Ceil(float64(x))) }, identity),
		"square": sameDType(func(x float32) float32 { return x * x }, func(_ ir.DType, v int64) int64 { return v * v }),
		"abs":    sameDType(func(x float32) float32 { return float32(math.Abs(float64(x))) }, magnitude),
		"sign":   sameDType(sign, signOf),
		"neg":    neg,
		"round":  roundDecimals,
	})
}

// unaryCost is the work of one transcendental function in multiply-adds, for [parallel].
const unaryCost = 32

// mapFloats applies f to every element of a floating-point tensor and rounds under Strict.
func (c *Call) mapFloats(x *Tensor, f func(float32) float32) *Tensor {
	out := make([]float32, len(x.F))
	parallel(len(out), unaryCost, func(lo, hi int) {
		part := out[lo:hi]
		for i, v := range x.F[lo:hi] {
			part[i] = f(v)
		}
		c.roundAll(x.DType, part)
	})
	return Floats(x.DType, x.Shape, out)
}

// sameDType makes a kernel that keeps the dtype of x; i works on integers and bools and is wrapped.
func sameDType(f func(float32) float32, i func(d ir.DType, v int64) int64) Kernel {
	return func(c *Call) ([]Value, error) {
		x := c.Tensor("x")
		if x.DType.IsFloat() {
			return c.result(c.mapFloats(x, f), nil)
		}
		out := make([]int64, len(x.I))
		for k, v := range x.I {
			out[k] = wrap(x.DType, i(x.DType, v))
		}
		return c.result(Ints(x.DType, x.Shape, out), nil)
	}
}

func identity(_ ir.DType, v int64) int64 { return v }

func magnitude(d ir.DType, v int64) int64 {
	if v < 0 && !d.IsUnsigned() { // a large u64 is stored as a negative number
		return -v
	}
	return v
}

func floor(x float32) float32 { return float32(math.Floor(float64(x))) }

// sqrt is correctly rounded: a float64 has more than twice the bits of a float32.
func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func sigmoid(x float32) float32 { return float32(1 / (1 + numeric.Exp(-float64(x)))) }

// sign is -1, 0 or 1; of a NaN it is 0, as in MLX.
func sign(x float32) float32 {
	switch {
	case x < 0:
		return -1
	case x > 0:
		return 1
	}
	return 0
}

func signOf(d ir.DType, v int64) int64 {
	switch {
	case v == 0:
		return 0
	case v < 0 && !d.IsUnsigned():
		return -1
	}
	return 1
}

func neg(c *Call) ([]Value, error) {
	if d := c.Tensor("x").DType; d == ir.Bool {
		return nil, fmt.Errorf("x is bool: a bool has no negative, want logical_not")
	}
	return sameDType(func(x float32) float32 { return -x }, func(_ ir.DType, v int64) int64 { return -v })(c)
}

// silu is x·sigmoid(x). The delegate writes it as two operations, so Strict rounds between them.
func silu(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	d := atLeastFloat(x.DType)
	return c.result(c.mapFloats(c.cast(x, d), func(x float32) float32 {
		return x * c.Round(d, sigmoid(x))
	}), nil)
}

// gelu is x·Φ(x), or its approximation by tanh (Hendrycks and Gimpel, arXiv:1606.08415). The delegate
// writes both as sequences of operations with constants of x's dtype, and Strict rounds after each.
func gelu(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	d := atLeastFloat(x.DType)
	r := func(v float32) float32 { return c.Round(d, v) }
	f := func(x float32) float32 {
		phi := r(1 + r(numeric.Erf32(r(float32(r(0.7071067812)*x)))))
		return 0.5 * r(float32(x*phi))
	}
	if ir.Attrs[ir.GeluAttrs](c.Op).Approximate == "tanh" {
		f = func(x float32) float32 {
			cubic := r(float32(r(0.044715) * r(float32(x*r(float32(x*x))))))
			inner := r(float32(r(0.7978845608) * r(x+cubic)))
			return 0.5 * r(float32(x*r(1+r(numeric.Tanh32(inner)))))
		}
	}
	return c.result(c.mapFloats(c.cast(x, d), f), nil)
}

// roundDecimals rounds half to even at a decimal: x is scaled by 10^decimals, rounded and scaled back.
func roundDecimals(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	decimals := ir.Attrs[ir.RoundAttrs](c.Op).Decimals
	if decimals == 0 {
		return sameDType(func(x float32) float32 { return float32(math.RoundToEven(float64(x))) }, identity)(c)
	}
	d := atLeastFloat(x.DType)
	scale := float32(numeric.Pow(10, float64(decimals)))
	up, down := c.Round(d, scale), c.Round(d, 1/scale)
	out := c.mapFloats(c.cast(x, d), func(x float32) float32 {
		return float32(math.RoundToEven(float64(c.Round(d, x*up)))) * down
	})
	return c.result(c.cast(out, x.DType), nil)
}
