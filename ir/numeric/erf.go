package numeric

import "math"

// erfTableEntry belongs to c = j/16.
type erfTableEntry struct {
	value doubleDouble // erf(c)
	slope doubleDouble // its derivative, 2/sqrt(pi) e^(-c^2)
}

// Erf returns the error function of x, 2/sqrt(pi) times the integral of
// e^(-t^2) over t from 0 to x, within 0.55 ulp where the
// result is a normal number.
//
// Erf(±0) = ±0, Erf(±Inf) = ±1, Erf(NaN) = NaN.
//
// The derivative of erf around c is e^(-c^2) 2/sqrt(pi) times a power series in
// h = x-c whose coefficients follow the recurrence of Hermite's polynomials,
// (n+1) b[n+1] = -2 (c b[n] + b[n-1]); with c from a table, |h| <= 1/32 and
// eleven of them are enough.
func Erf(x float64) float64 {
	magnitude := math.Abs(x)
	switch {
	case x != x:
		return math.NaN()
	case magnitude >= 5.96875: // 1 - erf(x) is below 2^-54
		return math.Copysign(1, x)
	case x == 0:
		return x
	case magnitude < 0x1p-29: // linear, and scaled so that no product underflows
		slope := &erfTable[0].slope
		up := float64(x * 0x1p100)
		linear := twoProduct(slope.hi, up)
		return float64((linear.hi + (linear.lo + float64(slope.lo*up))) * 0x1p-100)
	}
	j := int(float64(16*magnitude) + 0.4999) // below 1/2, for h to be exact where c is 1/16
	c := float64(j) / 16
	h := magnitude - c
	previous, coefficient := 1.0, float64(-2*c)
	power := float64(h * h)
	tail := float64(coefficient * power * (1.0 / 2))
	for n := 1; n < len(reciprocals)-2; n++ {
		previous, coefficient = coefficient, float64(-2*(float64(c*coefficient)+previous)*reciprocals[n+1])
		power = float64(power * h)
		tail += float64(coefficient * power * reciprocals[n+2])
	}
	entry := &erfTable[j]
	linear := twoProduct(entry.slope.hi, h)
	sum := twoSum(entry.value.hi, linear.hi)
	rest := (linear.lo + float64(entry.slope.lo*h)) + float64(entry.slope.hi*tail)
	return math.Copysign(sum.hi+(sum.lo+(entry.value.lo+rest)), x)
}

// reciprocals[n] is 1/n.
var reciprocals = [...]float64{
	0, 1, 1.0 / 2, 1.0 / 3, 1.0 / 4, 1.0 / 5, 1.0 / 6, 1.0 / 7, 1.0 / 8, 1.0 / 9, 1.0 / 10, 1.0 / 11,
}
