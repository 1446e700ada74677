package numeric

import "math"

// doubleDouble is the unevaluated sum hi+lo of two float64 with |lo| at most
// half an ulp of hi: a number of about 106 bits. The functions of this package
// keep their intermediate results in this form, or in one float64 plus a
// correction, and round once at the end, which leaves their error close to the
// half ulp of that rounding.
//
// Sources: T. J. Dekker, "A floating-point technique for extending the available
// precision", Numerische Mathematik 18 (1971); D. E. Knuth, The Art of Computer
// Programming 2, section 4.2.2, theorem B. math.FMA is one rounding by
// definition, in hardware or not, so it has the same bits everywhere.
type doubleDouble struct{ hi, lo float64 }

// twoSum returns a+b without error.
func twoSum(a, b float64) doubleDouble {
	sum := a + b
	rest := sum - a
	return doubleDouble{sum, (a - (sum - rest)) + (b - rest)}
}

// fastTwoSum returns a+b without error where |a| >= |b| or a is 0.
func fastTwoSum(a, b float64) doubleDouble {
	sum := a + b
	return doubleDouble{sum, b - (sum - a)}
}

// twoProduct returns a*b without error, unless the error underflows.
func twoProduct(a, b float64) doubleDouble {
	product := float64(a * b)
	return doubleDouble{product, math.FMA(a, b, -product)}
}

func (a doubleDouble) plus(b doubleDouble) doubleDouble {
	sum := twoSum(a.hi, b.hi)
	return fastTwoSum(sum.hi, sum.lo+(a.lo+b.lo))
}

func (a doubleDouble) negated() doubleDouble { return doubleDouble{-a.hi, -a.lo} }

// scaled returns a times factor, which must be a power of two.
func (a doubleDouble) scaled(factor float64) doubleDouble {
	return doubleDouble{float64(a.hi * factor), float64(a.lo * factor)}
}

func (a doubleDouble) times(b doubleDouble) doubleDouble {
	product := twoProduct(a.hi, b.hi)
	return fastTwoSum(product.hi, product.lo+(float64(a.hi*b.lo)+float64(a.lo*b.hi)))
}

func (a doubleDouble) over(b doubleDouble) doubleDouble {
	quotient := a.hi / b.hi
	remainder := math.FMA(-quotient, b.hi, a.hi) + (a.lo - float64(quotient*b.lo))
	return fastTwoSum(quotient, remainder/b.hi)
}

// root returns the square root of a > 0.
func (a doubleDouble) root() doubleDouble {
	root := math.Sqrt(a.hi)
	remainder := math.FMA(-root, root, a.hi) + a.lo
	return fastTwoSum(root, remainder/(root+root))
}

// powerOfTwo is 2^k for -1022 <= k <= 1023.
func powerOfTwo(k int) float64 {
	return math.Float64frombits(uint64(1023+k) << 52)
}

// scaleByPowerOfTwo is x * 2^k rounded once, for x of magnitude around 1 and any
// k with |k| < 2000: infinite, subnormal or zero where that is the result.
func scaleByPowerOfTwo(x float64, k int) float64 {
	switch {
	case k > 1022:
		return float64(float64(x*powerOfTwo(1022)) * powerOfTwo(min(k-1022, 1023)))
	case k < -1020:
		return float64(float64(x*powerOfTwo(max(k, -1086)+64)) * powerOfTwo(-64))
	default:
		return float64(x * powerOfTwo(k))
	}
}

// roundingShift added to and taken from a float64 below 2^51 rounds it to an
// integer, ties to even; after the addition the integer is in the low bits.
const roundingShift = 0x1.8p52
