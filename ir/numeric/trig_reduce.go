package numeric

import (
	"math"
	"math/bits"
)

// reduceHalfPi returns r and the quadrant q in 0..3 with x = r + (q + 4 n) pi/2
// for an integer n and |r| <= pi/4, up to rounding of the quotient. r is good to
// a relative error near 2^-75 for every finite x.
func reduceHalfPi(x float64) (quadrant int, r doubleDouble) {
	if math.Abs(x) > 0x1p26 {
		return reduceHalfPiLarge(x)
	}
	// Cody and Waite's reduction with pi/2 as the sum of three float64.
	shifted := float64(x*twoOverPi) + roundingShift
	n := shifted - roundingShift
	if n == 0 {
		return 0, doubleDouble{hi: x}
	}
	first := twoProduct(n, halfPi1)
	second := twoProduct(n, halfPi2)
	rest := twoSum(x-first.hi, -first.lo)
	sum := twoSum(rest.hi, -second.hi)
	return int(math.Float64bits(shifted) & 3), fastTwoSum(sum.hi, sum.lo+((rest.lo-second.lo)-float64(n*halfPi3)))
}

// reduceHalfPiLarge is reduceHalfPi for finite |x| >= 2^26.
//
// |x| is an integer m times 2^e, and of the digits of 2/pi those before digit
// e-2 contribute multiples of 4 to |x| 2/pi. The 192 digits after them, times m
// and modulo 1, are the quotient modulo 4 as a fraction of 4; the digits not
// used change it by less than 2^-139, and no float64 is nearer than about 2^-62
// to a multiple of pi/2. Source: M. H. Payne and R. N. Hanek, "Radian reduction
// for trigonometric functions", ACM SIGNUM Newsletter 18 (1983).
func reduceHalfPiLarge(x float64) (quadrant int, r doubleDouble) {
	pattern := math.Float64bits(x)
	m := pattern&(1<<52-1) | 1<<52
	e := int(pattern>>52&0x7ff) - 1023 - 52
	first := e - 2 + 64 // the table begins with 64 zeros
	word, offset := first/64, uint(first%64)
	var digits [3]uint64
	for i := range digits {
		digits[i] = twoOverPiDigits[word+i]<<offset | twoOverPiDigits[word+i+1]>>(64-offset)
	}
	high1, low1 := bits.Mul64(m, digits[1])
	high2, low2 := bits.Mul64(m, digits[2])
	middle, carry := bits.Add64(low1, high2, 0)
	top, _ := bits.Add64(m*digits[0], high1, carry)

	quadrant = int(top >> 62)
	fraction := [3]uint64{top<<2 | middle>>62, middle<<2 | low2>>62, low2 << 2}
	negative := fraction[0]>>63 == 1
	if negative { // nearer to the next multiple of pi/2
		quadrant++
		var borrow uint64
		for i := 2; i >= 0; i-- {
			fraction[i], borrow = bits.Sub64(0, fraction[i], borrow)
		}
	}
	r = fractionOf(fraction).times(doubleDouble{halfPi1, halfPi2})
	if negative != (x < 0) {
		r = r.negated()
	}
	if x < 0 {
		quadrant = -quadrant
	}
	return quadrant & 3, r
}

// fractionOf returns the leading 106 bits of words / 2^192, whose first 64 bits are
// words[0].
func fractionOf(words [3]uint64) doubleDouble {
	zeros := 0
	for words[0] == 0 && zeros < 128 {
		words = [3]uint64{words[1], words[2], 0}
		zeros += 64
	}
	shift := uint(bits.LeadingZeros64(words[0]))
	zeros += int(shift)
	first := words[0]<<shift | words[1]>>(64-shift)
	second := words[1]<<shift | words[2]>>(64-shift)
	hi := float64(first >> 11)
	lo := float64(first<<53>>11 | second>>22)
	return doubleDouble{float64(hi * powerOfTwo(-53-zeros)), float64(lo * powerOfTwo(-106-zeros))}
}
