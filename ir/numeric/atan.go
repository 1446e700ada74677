package numeric

import "math"

// atanKernel is atan(y/x) for 0 <= y <= x, x > 0, to a relative error near
// 2^-61. Neither may be so large or small that products of the two leave the
// range of float64.
//
// With c the multiple of 1/8 nearest to y/x it is atan(c) + atan(t) for
// t = (y - c x) / (x + c y), |t| <= 1/16: the addition theorem, applied to the
// quotient before it is divided out.
func atanKernel(y, x doubleDouble) doubleDouble {
	j := int(float64(8*(y.hi/x.hi)) + 0.5)
	t := y
	if j == 0 {
		t = y.over(x)
	} else {
		c := doubleDouble{hi: float64(j) / 8}
		t = y.plus(x.times(c).negated()).over(x.plus(y.times(c)))
	}
	square := float64(t.hi * t.hi)
	series := 1.0/13 - float64(square*(1.0/15))
	series = 1.0/11 - float64(square*series)
	series = 1.0/9 - float64(square*series)
	series = 1.0/7 - float64(square*series)
	series = 1.0/5 - float64(square*series)
	series = 1.0/3 - float64(square*series)
	angle := fastTwoSum(t.hi, t.lo-float64(t.hi*square*series))
	if j == 0 {
		return angle
	}
	return atanTable[j].plus(angle)
}

// angleKernel returns the angle in [0, pi/2] of the point (x, y) for x, y >= 0, not
// both 0, under the conditions of atanKernel.
func angleKernel(y, x doubleDouble) doubleDouble {
	if y.hi <= x.hi {
		return atanKernel(y, x)
	}
	return halfPi.plus(atanKernel(x, y).negated())
}

// Atan returns the arc tangent of x in radians, within 0.52 ulp.
//
// Atan(±0) = ±0, Atan(±Inf) = ±pi/2, Atan(NaN) = NaN.
func Atan(x float64) float64 {
	magnitude := math.Abs(x)
	switch {
	case x != x:
		return math.NaN()
	case magnitude < 0x1p-29:
		return x
	case magnitude > 0x1p60:
		return math.Copysign(halfPi.hi, x)
	}
	return math.Copysign(angleKernel(doubleDouble{hi: magnitude}, doubleDouble{hi: 1}).hi, x)
}

// Atan2 returns the angle in [-pi, pi] of the point (x, y) in radians, within
// 0.52 ulp. The signs of zeros count as the limits they stand for:
//
//	Atan2(±0, x) = ±0 for x > 0 or x = +0, and ±pi for x < 0 or x = -0
//	Atan2(±y, ±0) = ±pi/2 for y > 0
//	Atan2(±Inf, +Inf) = ±pi/4, Atan2(±Inf, -Inf) = ±3 pi/4
//	Atan2(±y, +Inf) = ±0, Atan2(±y, -Inf) = ±pi, Atan2(±Inf, x) = ±pi/2
//	Atan2(y, NaN) = Atan2(NaN, x) = NaN
func Atan2(y, x float64) float64 {
	if x != x || y != y {
		return math.NaN()
	}
	a, b := math.Abs(y), math.Abs(x)
	if a > math.MaxFloat64 && b > math.MaxFloat64 {
		a, b = 1, 1
	}
	var angle doubleDouble
	switch shift := binaryExponent(a) - binaryExponent(b); {
	case b == 0 && a == 0:
		angle = doubleDouble{}
	case b == 0 || a > math.MaxFloat64 || shift > 62:
		angle = halfPi
	case a == 0 || b > math.MaxFloat64:
		angle = doubleDouble{}
	case shift < -62:
		if x > 0 {
			return y / x
		}
	default:
		za, ka := splitExponent(a)
		zb, kb := splitExponent(b)
		angle = angleKernel(doubleDouble{hi: float64(za * powerOfTwo(ka-kb))}, doubleDouble{hi: zb})
	}
	if math.Signbit(x) {
		angle = fullPi.plus(angle.negated())
	}
	return math.Copysign(angle.hi, y)
}

// binaryExponent is floor(log2(x)) for x > 0, one too high or low at most, and
// some integer for 0 and +Inf.
func binaryExponent(x float64) int {
	_, k := splitExponent(x)
	return k
}

// cosineOfSine is sqrt(1-x^2) for |x| < 1.
func cosineOfSine(x float64) doubleDouble {
	square := twoProduct(x, x)
	difference := twoSum(1, -square.hi)
	return fastTwoSum(difference.hi, difference.lo-square.lo).root()
}

// Asin returns the arc sine of x in radians, within 0.52 ulp.
//
// Asin(±0) = ±0, Asin(x) = NaN for |x| > 1, Asin(NaN) = NaN.
func Asin(x float64) float64 {
	magnitude := math.Abs(x)
	switch {
	case !(magnitude <= 1):
		return math.NaN()
	case magnitude == 1:
		return math.Copysign(halfPi.hi, x)
	case magnitude < 0x1p-27:
		return x
	}
	return math.Copysign(angleKernel(doubleDouble{hi: magnitude}, cosineOfSine(x)).hi, x)
}

// Acos returns the arc cosine of x in radians, within 0.52 ulp.
//
// Acos(x) = NaN for |x| > 1, Acos(NaN) = NaN.
func Acos(x float64) float64 {
	magnitude := math.Abs(x)
	switch {
	case !(magnitude <= 1):
		return math.NaN()
	case x == 1:
		return 0
	case x == -1:
		return fullPi.hi
	case magnitude < 0x1p-60:
		return halfPi.hi
	}
	angle := angleKernel(cosineOfSine(x), doubleDouble{hi: magnitude})
	if x < 0 {
		angle = fullPi.plus(angle.negated())
	}
	return angle.hi
}
