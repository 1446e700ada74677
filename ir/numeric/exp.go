package numeric

import "math"

const (
	expTableBits = 7
	expTableSize = 1 << expTableBits
)

// expKernel returns m and k with e^(x+tail) = m * 2^k, m in about [1, 2), to a
// relative error near 2^-59, for |x| <= 746 and |tail| below an ulp of x.
//
// With n the integer nearest to 128 x/ln 2, n = 128 k + j, the result is
// 2^k * 2^(j/128) * e^r and |r| <= ln 2/256, so that five terms of the series
// after the first are enough. Source: P. T. P. Tang, "Table-driven implementation of the
// exponential function in IEEE floating-point arithmetic", ACM TOMS 15 (1989).
func expKernel(x, tail float64) (m doubleDouble, k int) {
	shifted := float64(x*expSteps) + roundingShift
	n := int(int32(math.Float64bits(shifted)))
	steps := shifted - roundingShift
	r := twoSum(x-float64(steps*expStepHigh), -float64(steps*expStepLow))
	r = twoSum(r.hi, r.lo+tail)
	square := float64(r.hi * r.hi)
	series := float64(square*(1.0/2+float64(r.hi*(1.0/6)))) +
		float64(float64(square*square)*(1.0/24+float64(r.hi*(1.0/120))))
	power := &expTable[n&(expTableSize-1)]
	return fastTwoSum(power.hi, power.lo+float64(power.hi*(r.hi+(r.lo+series)))), n >> expTableBits
}

// Exp returns e^x, within 0.51 ulp where the result is a normal number.
//
// Exp(+Inf) = +Inf, Exp(-Inf) = 0, Exp(NaN) = NaN. Values above 709.78 overflow
// to +Inf, values below -745.13 underflow to 0.
func Exp(x float64) float64 {
	if !(x > -746 && x < 710) {
		switch {
		case x != x:
			return math.NaN()
		case x > 0:
			return math.Inf(1)
		default:
			return 0
		}
	}
	m, k := expKernel(x, 0)
	return scaleByPowerOfTwo(m.hi, k)
}

// expm1Kernel is e^x - 1 to a relative error near 2^-58, for |x| <= 42.
func expm1Kernel(x float64) doubleDouble {
	if math.Abs(x) >= 0.375 {
		m, k := expKernel(x, 0)
		power := powerOfTwo(k)
		difference := twoSum(float64(m.hi*power), -1)
		return fastTwoSum(difference.hi, difference.lo+float64(m.lo*power))
	}
	// x + x^2/2 without error, then the terms x^3/3! to x^14/14!.
	half := twoProduct(x, float64(0.5*x))
	square := float64(x * x)
	even := 1.0/6227020800 + float64(x*(1.0/87178291200))
	even = 1.0/39916800 + float64(x*(1.0/479001600)) + float64(square*even)
	even = 1.0/362880 + float64(x*(1.0/3628800)) + float64(square*even)
	even = 1.0/5040 + float64(x*(1.0/40320)) + float64(square*even)
	even = 1.0/120 + float64(x*(1.0/720)) + float64(square*even)
	even = 1.0/6 + float64(x*(1.0/24)) + float64(square*even)
	sum := fastTwoSum(x, half.hi)
	return fastTwoSum(sum.hi, sum.lo+(half.lo+float64(x*square*even)))
}

// Expm1 returns e^x - 1 without the cancellation near 0, within 0.55 ulp.
//
// Expm1(±0) = ±0, Expm1(+Inf) = +Inf, Expm1(-Inf) = -1, Expm1(NaN) = NaN.
func Expm1(x float64) float64 {
	switch {
	case x != x:
		return math.NaN()
	case math.Abs(x) < 0x1p-54:
		return x
	case x > 42:
		return Exp(x)
	case x < -42:
		return -1
	}
	return expm1Kernel(x).hi
}
