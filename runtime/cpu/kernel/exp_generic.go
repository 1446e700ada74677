package kernel

import "math"

// Exponential: x = n·ln 2 + r with |r| ≤ ln(2)/2, e^x = 2^n·(1 + r + r²·q(r)), ln 2 in two parts of which
// the first has trailing zeros, so that n·ln2High is exact (Cody and Waite, 1980). q is the minimax
// polynomial of degree 4 (Remez): relative error of e^r 3.1e-9.
const (
	log2E    = float32(1.4426950408889634)
	ln2High  = float32(0x1.62e4p-1)
	ln2Low   = float32(math.Ln2 - 0x1.62e4p-1)
	expQ0    = float32(0.49999993447796487)
	expQ1    = float32(0.16666520631709497)
	expQ2    = float32(0.041668388045313996)
	expQ3    = float32(0.00836871687972814)
	expQ4    = float32(0.0013814598646664034)
	expLimit = float32(88.72283)  // above, e^x is not finite
	expFloor = float32(-87.33654) // below, e^x is subnormal
)

func exp32(x float32) float32 {
	switch {
	case x != x:
		return x
	case x > expLimit:
		return float32(math.Inf(1))
	case x < expFloor:
		return 0
	}
	n := float32(math.RoundToEven(float64(x * log2E)))
	r := x - float32(n*ln2High) - float32(n*ln2Low)
	q := expQ4
	for _, c := range [...]float32{expQ3, expQ2, expQ1, expQ0} {
		q = float32(q*r) + c
	}
	p := 1 + (r + float32(q*float32(r*r)))
	// 2^n in two factors, as n may be 128.
	half := int32(n) >> 1
	return p * powerOfTwo(half) * powerOfTwo(int32(n)-half)
}

// powerOfTwo is 2^n for -126 ≤ n ≤ 127.
func powerOfTwo(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

func sigmoid32(x float32) float32 { return 1 / (1 + exp32(-x)) }

// Hyperbolic tangent: x + x³·P(x²) up to |x| = 0.625 with the minimax P of degree 4 (Remez): relative error
// 4.2e-9; 1 − 2/(e^2|x| + 1) with the sign of x beyond.
const (
	tanhSmall = float32(0.625)
	tanhP0    = float32(-0.333332839254639)
	tanhP1    = float32(0.13331491291065325)
	tanhP2    = float32(-0.05374349837680722)
	tanhP3    = float32(0.020650588161878564)
	tanhP4    = float32(-0.005717045938568599)
)

func tanh32(x float32) float32 {
	magnitude := max(x, -x)
	if magnitude > tanhSmall {
		return float32(math.Copysign(float64(1-2/(exp32(2*magnitude)+1)), float64(x)))
	}
	z := x * x
	p := tanhP4
	for _, c := range [...]float32{tanhP3, tanhP2, tanhP1, tanhP0} {
		p = float32(p*z) + c
	}
	return x + float32(float32(p*z)*x)
}
