package numeric

import "math"

// Pow returns x^y, within 0.55 ulp where the result is a normal number; results
// that a float64 holds exactly are exact. It is e^(y log x) with the logarithm
// and the product carried to about 68 bits.
//
// The special cases are those of C99 (annex F.9.4.4) and of Go's math.Pow:
//
//	Pow(x, ±0) = 1 and Pow(1, y) = 1, for NaN too
//	Pow(-1, ±Inf) = 1
//	Pow(±0, y) = ±Inf, or ±0 for y > 0: signed for odd integers y, else positive
//	Pow(x, ±Inf) and Pow(±Inf, y): ±0 or ±Inf, likewise
//	Pow(x < 0, y) = NaN for finite x and finite y that is not an integer
func Pow(x, y float64) float64 {
	switch {
	case y == 0 || x == 1:
		return 1
	case x != x || y != y:
		return math.NaN()
	case math.IsInf(y, 0):
		magnitude := math.Abs(x)
		switch {
		case magnitude == 1:
			return 1
		case (magnitude > 1) == (y > 0):
			return math.Inf(1)
		default:
			return 0
		}
	}
	negative := math.Signbit(x) && isOddInteger(y)
	if x == 0 || math.IsInf(x, 0) {
		if (x == 0) == (y > 0) {
			return withSign(0, negative)
		}
		return withSign(math.Inf(1), negative)
	}
	if x < 0 && y != math.Trunc(y) {
		return math.NaN()
	}
	logarithm := logKernel(doubleDouble{hi: math.Abs(x)})
	product := twoProduct(logarithm.hi, y)
	if !(math.Abs(product.hi) < 746) { // beyond any result, or y*log(x) overflowed
		if (math.Abs(x) > 1) == (y > 0) {
			return withSign(math.Inf(1), negative)
		}
		return withSign(0, negative)
	}
	m, k := expKernel(product.hi, product.lo+float64(logarithm.lo*y))
	return withSign(scaleByPowerOfTwo(m.hi, k), negative)
}

func withSign(magnitude float64, negative bool) float64 {
	if negative {
		return -magnitude
	}
	return magnitude
}

// isOddInteger says whether finite y is an odd integer. From 2^53 on all
// float64 are even.
func isOddInteger(y float64) bool {
	magnitude := math.Abs(y)
	return magnitude < 0x1p53 && magnitude == math.Trunc(magnitude) && int64(magnitude)&1 == 1
}
