package numeric

import "math"

// Sinh returns the hyperbolic sine of x, within 0.55 ulp.
//
// Sinh(±0) = ±0, Sinh(±Inf) = ±Inf, Sinh(NaN) = NaN.
func Sinh(x float64) float64 {
	magnitude := math.Abs(x)
	switch {
	case x != x:
		return math.NaN()
	case magnitude < 0x1p-28:
		return x
	case magnitude <= 40:
		e := expm1Kernel(magnitude) // sinh x = (e + e/(e+1)) / 2
		return math.Copysign(float64(0.5*e.plus(e.over(e.plus(doubleDouble{hi: 1}))).hi), x)
	}
	return math.Copysign(halfExp(magnitude), x)
}

// Cosh returns the hyperbolic cosine of x, within 0.55 ulp.
//
// Cosh(±Inf) = +Inf, Cosh(NaN) = NaN.
func Cosh(x float64) float64 {
	magnitude := math.Abs(x)
	switch {
	case x != x:
		return math.NaN()
	case magnitude <= 40:
		m, k := expKernel(magnitude, 0)
		e := m.scaled(powerOfTwo(k))
		return float64(0.5 * e.plus(doubleDouble{hi: 1}.over(e)).hi)
	}
	return halfExp(magnitude)
}

// halfExp is e^x/2 for x > 40. It does not overflow before the result does.
func halfExp(x float64) float64 {
	if x > 711 {
		return math.Inf(1)
	}
	m, k := expKernel(x, 0)
	return scaleByPowerOfTwo(m.hi, k-1)
}

// Tanh returns the hyperbolic tangent of x, within 0.52 ulp.
//
// Tanh(±0) = ±0, Tanh(±Inf) = ±1, Tanh(NaN) = NaN.
func Tanh(x float64) float64 {
	magnitude := math.Abs(x)
	switch {
	case x != x:
		return math.NaN()
	case magnitude < 0x1p-28:
		return x
	case magnitude > 20:
		return math.Copysign(1, x)
	}
	e := expm1Kernel(float64(2 * magnitude)) // tanh x = e / (e+2)
	return math.Copysign(e.over(e.plus(doubleDouble{hi: 2})).hi, x)
}

// Asinh returns the inverse hyperbolic sine of x, within 0.51 ulp.
//
// Asinh(±0) = ±0, Asinh(±Inf) = ±Inf, Asinh(NaN) = NaN.
func Asinh(x float64) float64 {
	magnitude := math.Abs(x)
	switch {
	case x != x:
		return math.NaN()
	case magnitude < 0x1p-28 || magnitude > math.MaxFloat64:
		return x
	case magnitude > 0x1p60:
		return math.Copysign(logOfDouble(magnitude), x)
	}
	// asinh x = log(1 + x + x^2/(1 + sqrt(1+x^2)))
	square := twoProduct(magnitude, magnitude)
	root := square.plus(doubleDouble{hi: 1}).root()
	rest := square.over(root.plus(doubleDouble{hi: 1}))
	return math.Copysign(log1pKernel(doubleDouble{hi: magnitude}.plus(rest)).hi, x)
}

// Acosh returns the inverse hyperbolic cosine of x, within 0.51 ulp.
//
// Acosh(+Inf) = +Inf, Acosh(x < 1) = NaN, Acosh(NaN) = NaN.
func Acosh(x float64) float64 {
	switch {
	case !(x >= 1):
		return math.NaN()
	case x > math.MaxFloat64:
		return x
	case x > 0x1p60:
		return logOfDouble(x)
	}
	// acosh x = log(1 + t + sqrt(t (t+2))), t = x-1
	t := twoSum(x, -1)
	if t.hi == 0 {
		return 0
	}
	root := t.times(t.plus(doubleDouble{hi: 2})).root()
	return log1pKernel(t.plus(root)).hi
}

// logOfDouble is log(2x) for finite x > 2^60.
func logOfDouble(x float64) float64 {
	return logKernel(doubleDouble{hi: x}).plus(doubleDouble{ln2High, ln2Low}).hi
}

// Atanh returns the inverse hyperbolic tangent of x, within 0.51 ulp.
//
// Atanh(±0) = ±0, Atanh(±1) = ±Inf, Atanh(x) = NaN for |x| > 1, Atanh(NaN) = NaN.
func Atanh(x float64) float64 {
	magnitude := math.Abs(x)
	switch {
	case !(magnitude <= 1):
		return math.NaN()
	case magnitude == 1:
		return math.Copysign(math.Inf(1), x)
	case magnitude < 0x1p-28:
		return x
	}
	// atanh x = log(1 + 2x/(1-x)) / 2
	quotient := doubleDouble{hi: float64(2 * magnitude)}.over(twoSum(1, -magnitude))
	return math.Copysign(float64(0.5*log1pKernel(quotient).hi), x)
}
