package numeric

import "math"

const (
	logTableFirst = 91  // the table holds log(j/128)
	logTableLast  = 181 // for j from 91 to 181: 0.707 to 1.414
)

// logTableEntry belongs to c = j/128.
type logTableEntry struct {
	inverse float64 // 1/c
	hi, lo  float64 // log(c), hi being a multiple of 2^-42
}

// splitExponent returns z in [sqrt(1/2), sqrt(2)) and k with x = z * 2^k, for
// finite x > 0.
func splitExponent(x float64) (z float64, k int) {
	if x < 0x1p-1022 {
		x = float64(x * 0x1p54)
		k = -54
	}
	const rootHalf = 0x3fe6_a09e_667f_3bcd
	offset := math.Float64bits(x) - rootHalf
	exponent := int64(offset) >> 52
	return math.Float64frombits(math.Float64bits(x) - uint64(exponent)<<52), k + int(exponent)
}

// nearestLogEntry returns the table's c nearest to z in [sqrt(1/2), sqrt(2)].
func nearestLogEntry(z float64) (c float64, entry *logTableEntry) {
	j := int(float64(z*128) + 0.5)
	return float64(j) / 128, &logTable[j-logTableFirst]
}

// Log returns the natural logarithm of x, within 0.6 ulp.
//
// Log(+Inf) = +Inf, Log(±0) = -Inf, Log(x < 0) = NaN, Log(NaN) = NaN.
//
// With x = 2^k z and c the multiple of 1/128 nearest to z, the result is
// k ln 2 + log(c) + log(1+r), r = (z-c)/c, the first two from exact tables and
// the last from its series; around 1 the series of log(x) itself is used.
// Source: P. T. P. Tang, "Table-driven implementation of the logarithm function
// in IEEE floating-point arithmetic", ACM TOMS 16 (1990).
func Log(x float64) float64 {
	if !(x > 0 && x <= math.MaxFloat64) {
		return logSpecial(x)
	}
	if f := x - 1; f > -0x1p-4 && f < 0x1p-4 {
		return logNearOne(f)
	}
	z, k := splitExponent(x)
	c, entry := nearestLogEntry(z)
	r := float64((z - c) * entry.inverse)
	square := float64(r * r)
	series := float64(square*(-1.0/2+float64(r*(1.0/3)))) +
		float64(float64(square*square)*((-1.0/4+float64(r*(1.0/5)))+float64(square*(-1.0/6+float64(r*(1.0/7))))))
	exponent := float64(k)
	sum := fastTwoSum(float64(exponent*ln2High)+entry.hi, r)
	return sum.hi + (sum.lo + ((entry.lo + float64(exponent*ln2Low)) + series))
}

func logSpecial(x float64) float64 {
	switch {
	case x == 0:
		return math.Inf(-1)
	case x > 0:
		return math.Inf(1)
	default:
		return math.NaN()
	}
}

// logNearOne is log(1+f) for |f| < 1/16: f - f^2/2 without error, then the terms
// f^3/3 to f^15/15.
func logNearOne(f float64) float64 {
	half := twoProduct(f, float64(0.5*f))
	square := float64(f * f)
	fourth := float64(square * square)
	upper := (1.0/11 - float64(f*(1.0/12))) + float64(square*(1.0/13-float64(f*(1.0/14)))) + float64(fourth*(1.0/15))
	middle := (1.0/7 - float64(f*(1.0/8))) + float64(square*(1.0/9-float64(f*(1.0/10))))
	lower := (1.0/3 - float64(f*(1.0/4))) + float64(square*(1.0/5-float64(f*(1.0/6))))
	series := lower + float64(fourth*(middle+float64(fourth*upper)))
	sum := fastTwoSum(f, -half.hi)
	return sum.hi + (sum.lo + (float64(f*square*series) - half.lo))
}

// log1pSeries is log(1+r) for |r| below 1/180, to a relative error near 2^-69.
func log1pSeries(r doubleDouble) doubleDouble {
	square := twoProduct(r.hi, r.hi)
	series := 1.0/8 - float64(r.hi*(1.0/9))
	series = 1.0/7 - float64(r.hi*series)
	series = 1.0/6 - float64(r.hi*series)
	series = 1.0/5 - float64(r.hi*series)
	series = 1.0/4 - float64(r.hi*series)
	series = 1.0/3 - float64(r.hi*series)
	sum := fastTwoSum(r.hi, float64(-0.5*square.hi))
	tail := (r.lo - float64(r.hi*r.lo)) - float64(0.5*square.lo)
	return fastTwoSum(sum.hi, sum.lo+(tail+float64(r.hi*square.hi*series)))
}

// logMantissa is log(z) for z in [sqrt(1/2), sqrt(2)], to a relative error near
// 2^-68.
func logMantissa(z doubleDouble) doubleDouble {
	c, entry := nearestLogEntry(z.hi)
	f := fastTwoSum(z.hi-c, z.lo)
	if c == 1 {
		return log1pSeries(f)
	}
	quotient := float64(f.hi * entry.inverse)
	remainder := math.FMA(-quotient, c, f.hi) + f.lo
	series := log1pSeries(fastTwoSum(quotient, float64(remainder*entry.inverse)))
	sum := fastTwoSum(entry.hi, series.hi)
	return fastTwoSum(sum.hi, sum.lo+(series.lo+entry.lo))
}

// logKernel is log(x) for finite x > 0, to a relative error near 2^-68.
func logKernel(x doubleDouble) doubleDouble {
	z, k := splitExponent(x.hi)
	mantissa := doubleDouble{hi: z}
	if x.lo != 0 {
		mantissa.lo = scaleByPowerOfTwo(x.lo, -k)
	}
	mantissa = logMantissa(mantissa)
	if k == 0 {
		return mantissa
	}
	exponent := float64(k)
	sum := fastTwoSum(float64(exponent*ln2High), mantissa.hi)
	return fastTwoSum(sum.hi, sum.lo+(mantissa.lo+float64(exponent*ln2Low)))
}

// log1pKernel is log(1+x) for finite x > -1, to a relative error near 2^-68.
func log1pKernel(x doubleDouble) doubleDouble {
	if math.Abs(x.hi) < 1.0/256 {
		return log1pSeries(x)
	}
	sum := twoSum(1, x.hi)
	return logKernel(fastTwoSum(sum.hi, sum.lo+x.lo))
}

// Log1p returns log(1+x) without the cancellation near 0, within 0.51 ulp.
//
// Log1p(±0) = ±0, Log1p(-1) = -Inf, Log1p(+Inf) = +Inf, Log1p(x < -1) = NaN,
// Log1p(NaN) = NaN.
func Log1p(x float64) float64 {
	switch {
	case !(x > -1 && x <= math.MaxFloat64):
		return logSpecial(1 + x)
	case math.Abs(x) < 0x1p-54:
		return x
	}
	return log1pKernel(doubleDouble{hi: x}).hi
}

// Log2 returns the binary logarithm of x, within 0.51 ulp and exact for powers
// of two. Special cases are those of [Log].
func Log2(x float64) float64 {
	if !(x > 0 && x <= math.MaxFloat64) {
		return logSpecial(x)
	}
	z, k := splitExponent(x)
	fraction := logMantissa(doubleDouble{hi: z}).times(log2E)
	return doubleDouble{hi: float64(k)}.plus(fraction).hi
}

// Log10 returns the decimal logarithm of x, within 0.51 ulp and exact for powers
// of ten. Special cases are those of [Log].
func Log10(x float64) float64 {
	if !(x > 0 && x <= math.MaxFloat64) {
		return logSpecial(x)
	}
	return logKernel(doubleDouble{hi: x}).times(log10E).hi
}
