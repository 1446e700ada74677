package numeric

import "math"

// sinKernel is sin(r) for |r| <= pi/4 and a little more, as r plus a correction
// that is good to about 2^-54 of the result.
func sinKernel(r doubleDouble) doubleDouble {
	square := float64(r.hi * r.hi)
	series := 1.0/1307674368000 - float64(square*(1.0/355687428096000))
	series = 1.0/6227020800 - float64(square*series)
	series = 1.0/39916800 - float64(square*series)
	series = 1.0/362880 - float64(square*series)
	series = 1.0/5040 - float64(square*series)
	series = 1.0/120 - float64(square*series)
	series = 1.0/6 - float64(square*series)
	return fastTwoSum(r.hi, float64(r.lo*(1-float64(0.5*square)))-float64(r.hi*square*series))
}

// cosKernel is cos(r) for |r| <= pi/4 and a little more, to about 2^-58.
func cosKernel(r doubleDouble) doubleDouble {
	square := twoProduct(r.hi, r.hi)
	series := 1.0/20922789888000 - float64(square.hi*(1.0/6402373705728000))
	series = 1.0/87178291200 - float64(square.hi*series)
	series = 1.0/479001600 - float64(square.hi*series)
	series = 1.0/3628800 - float64(square.hi*series)
	series = 1.0/40320 - float64(square.hi*series)
	series = 1.0/720 - float64(square.hi*series)
	series = 1.0/24 - float64(square.hi*series)
	difference := fastTwoSum(1, float64(-0.5*square.hi))
	correction := float64(square.hi*square.hi*series) - (float64(0.5*square.lo) + float64(r.hi*r.lo))
	return fastTwoSum(difference.hi, difference.lo+correction)
}

// Sin returns the sine of x radians, within 0.75 ulp for every finite x.
//
// Sin(±0) = ±0, Sin(±Inf) = NaN, Sin(NaN) = NaN.
func Sin(x float64) float64 {
	if math.Abs(x) < 0x1p-27 {
		return x
	}
	sin, _ := Sincos(x)
	return sin
}

// Cos returns the cosine of x radians, within 0.75 ulp for every finite x.
//
// Cos(±Inf) = NaN, Cos(NaN) = NaN.
func Cos(x float64) float64 {
	_, cos := Sincos(x)
	return cos
}

// Sincos returns Sin(x) and Cos(x).
func Sincos(x float64) (sin, cos float64) {
	switch magnitude := math.Abs(x); {
	case !(magnitude <= math.MaxFloat64):
		return math.NaN(), math.NaN()
	case magnitude < 0x1p-27:
		return x, 1
	}
	quadrant, r := reduceHalfPi(x)
	sin, cos = sinKernel(r).hi, cosKernel(r).hi
	switch quadrant {
	case 1:
		return cos, -sin
	case 2:
		return -sin, -cos
	case 3:
		return -cos, sin
	default:
		return sin, cos
	}
}

// Tan returns the tangent of x radians, within 0.9 ulp for every finite x.
//
// Tan(±0) = ±0, Tan(±Inf) = NaN, Tan(NaN) = NaN.
func Tan(x float64) float64 {
	switch magnitude := math.Abs(x); {
	case !(magnitude <= math.MaxFloat64):
		return math.NaN()
	case magnitude < 0x1p-27:
		return x
	}
	quadrant, r := reduceHalfPi(x)
	sin, cos := sinKernel(r), cosKernel(r)
	if quadrant&1 == 1 {
		return cos.negated().over(sin).hi
	}
	return sin.over(cos).hi
}
