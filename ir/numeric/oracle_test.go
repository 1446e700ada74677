package numeric

import (
	"math"
	"math/big"
	"sync"
)

// The oracle evaluates the elementary functions with math/big from their power
// series, so that errors are measured against a source that shares nothing with
// the code under test. Results are good to about oraclePrecision bits relative.
const oraclePrecision = 256

// guard is what intermediate results carry beyond oraclePrecision; it covers
// the cancellation in the formulas below for every float64 argument tested.
const guard = 160

type real = *big.Float

func newReal() real               { return new(big.Float).SetPrec(oraclePrecision + guard) }
func exact(x float64) real        { return newReal().SetFloat64(x) }
func integer(n int64) real        { return newReal().SetInt64(n) }
func add(x, y real) real          { return newReal().Add(x, y) }
func sub(x, y real) real          { return newReal().Sub(x, y) }
func mul(x, y real) real          { return newReal().Mul(x, y) }
func quo(x, y real) real          { return newReal().Quo(x, y) }
func sqrt(x real) real            { return newReal().Sqrt(x) }
func neg(x real) real             { return newReal().Neg(x) }
func shift(x real, by int) real   { return newReal().SetMantExp(x, by) }
func below(x real, bits int) bool { return x.Sign() == 0 || x.MantExp(nil) < -bits }

// sumSeries adds term(0), term(1), ... until a term no longer matters.
func sumSeries(term func(n int64) real) real {
	sum := newReal()
	for n := int64(0); ; n++ {
		t := term(n)
		sum.Add(sum, t)
		if t.Sign() == 0 || t.MantExp(nil) < sum.MantExp(nil)-oraclePrecision-guard {
			return sum
		}
	}
}

// inverseTangentOf is 2^bits * atan(1/n), or of atanh(1/n), truncated.
func inverseTangentOf(n int64, bits uint, hyperbolic bool) *big.Int {
	square := big.NewInt(n * n)
	power := new(big.Int).Quo(new(big.Int).Lsh(big.NewInt(1), bits), big.NewInt(n))
	sum := new(big.Int)
	for k := int64(1); power.Sign() != 0; k += 2 {
		term := new(big.Int).Quo(power, big.NewInt(k))
		if k%4 == 3 && !hyperbolic {
			term.Neg(term)
		}
		sum.Add(sum, term)
		power.Quo(power, square)
	}
	return sum
}

const constantBits = 2048

// pi by Machin's formula, 16 atan(1/5) - 4 atan(1/239).
var pi = sync.OnceValue(func() real {
	sum := new(big.Int).Mul(big.NewInt(16), inverseTangentOf(5, constantBits, false))
	sum.Sub(sum, new(big.Int).Mul(big.NewInt(4), inverseTangentOf(239, constantBits, false)))
	x := new(big.Float).SetPrec(constantBits).SetInt(sum)
	return x.SetMantExp(x, -constantBits)
})

// ln2 is 18 atanh(1/26) - 2 atanh(1/4801) + 8 atanh(1/8749).
var ln2 = sync.OnceValue(func() real {
	sum := new(big.Int).Mul(big.NewInt(18), inverseTangentOf(26, constantBits, true))
	sum.Sub(sum, new(big.Int).Mul(big.NewInt(2), inverseTangentOf(4801, constantBits, true)))
	sum.Add(sum, new(big.Int).Mul(big.NewInt(8), inverseTangentOf(8749, constantBits, true)))
	x := new(big.Float).SetPrec(constantBits).SetInt(sum)
	return x.SetMantExp(x, -constantBits)
})

// nearestInteger rounds x to an integer, ties away from zero.
func nearestInteger(x *big.Float) *big.Int {
	half := big.NewFloat(0.5)
	if x.Sign() < 0 {
		half.Neg(half)
	}
	n, _ := new(big.Float).SetPrec(constantBits).Add(x, half).Int(nil)
	return n
}

func bigExp(x real) real {
	k := nearestInteger(quo(x, ln2()))
	r := sub(x, mul(newReal().SetInt(k), ln2()))
	const halvings = 16
	r = shift(r, -halvings)
	term := integer(1)
	y := sumSeries(func(n int64) real {
		if n > 0 {
			term = quo(mul(term, r), integer(n))
		}
		return term
	})
	for range halvings {
		y = mul(y, y)
	}
	return shift(y, int(k.Int64()))
}

func bigExpm1(x real) real {
	if !below(x, 8) {
		return sub(bigExp(x), integer(1))
	}
	term := integer(1)
	return sumSeries(func(n int64) real {
		term = quo(mul(term, x), integer(n+1))
		return term
	})
}

// bigLog solves exp(y) = x with Halley's iteration, which triples the correct
// bits each time.
func bigLog(x real) real {
	mantissa := newReal()
	exponent := x.MantExp(mantissa)
	start, _ := mantissa.Float64()
	y := exact(math.Log(start))
	for range 4 {
		e := bigExp(y)
		y = add(y, shift(quo(sub(mantissa, e), add(mantissa, e)), 1))
	}
	return add(y, mul(integer(int64(exponent)), ln2()))
}

func bigLog1p(x real) real {
	if !below(x, 8) {
		return bigLog(add(integer(1), x))
	}
	power := integer(-1)
	return sumSeries(func(n int64) real {
		power = neg(mul(power, x))
		return quo(power, integer(n+1))
	})
}

// bigSinCos reduces x modulo pi/2 and sums the two Taylor series.
func bigSinCos(x real) (sin, cos real) {
	wide := func() real { return new(big.Float).SetPrec(constantBits) }
	halfPi := wide().SetMantExp(pi(), -1)
	k := nearestInteger(wide().Quo(x, halfPi))
	r := newReal().Set(wide().Sub(x, wide().Mul(wide().SetInt(k), halfPi)))
	square := mul(r, r)
	series := func(term real, odd int64) real {
		return sumSeries(func(n int64) real {
			if n > 0 {
				term = neg(quo(mul(term, square), integer((2*n-1+odd)*(2*n+odd))))
			}
			return term
		})
	}
	s, c := series(r, 1), series(integer(1), 0)
	switch new(big.Int).And(k, big.NewInt(3)).Int64() {
	case 1:
		s, c = c, neg(s)
	case 2:
		s, c = neg(s), neg(c)
	case 3:
		s, c = neg(c), s
	}
	return s, c
}

func bigAtan(x real) real {
	if newReal().Abs(x).Cmp(integer(1)) > 0 {
		quarter := shift(newReal().Set(pi()), -1)
		if x.Sign() < 0 {
			quarter.Neg(quarter)
		}
		return sub(quarter, bigAtan(quo(integer(1), x)))
	}
	const halvings = 8
	for range halvings {
		x = quo(x, add(integer(1), sqrt(add(integer(1), mul(x, x)))))
	}
	square, power := mul(x, x), x
	y := sumSeries(func(n int64) real {
		if n > 0 {
			power = neg(mul(power, square))
		}
		return quo(power, integer(2*n+1))
	})
	return shift(y, halvings)
}

func bigAtan2(y, x real) real {
	switch {
	case x.Sign() > 0:
		return bigAtan(quo(y, x))
	case x.Sign() == 0:
		half := shift(newReal().Set(pi()), -1)
		if y.Sign() < 0 {
			half.Neg(half)
		}
		return half
	default:
		turn := newReal().Set(pi())
		if y.Sign() < 0 {
			turn.Neg(turn)
		}
		return add(turn, bigAtan(quo(y, x)))
	}
}

func bigAsin(x real) real {
	if newReal().Abs(x).Cmp(integer(1)) == 0 {
		return mul(x, shift(newReal().Set(pi()), -1))
	}
	return bigAtan(quo(x, sqrt(mul(sub(integer(1), x), add(integer(1), x)))))
}

func bigAcos(x real) real {
	if x.Cmp(integer(-1)) == 0 {
		return newReal().Set(pi())
	}
	return shift(bigAtan(sqrt(quo(sub(integer(1), x), add(integer(1), x)))), 1)
}

func bigSinh(x real) real {
	if x.Sign() < 0 {
		return neg(bigSinh(neg(x)))
	}
	e := bigExpm1(x)
	return shift(add(e, quo(e, add(e, integer(1)))), -1)
}

func bigCosh(x real) real {
	e := bigExp(x)
	return shift(add(e, quo(integer(1), e)), -1)
}

func bigTanh(x real) real {
	if x.Sign() < 0 {
		return neg(bigTanh(neg(x)))
	}
	e := bigExpm1(shift(x, 1))
	return quo(e, add(e, integer(2)))
}

func bigAsinh(x real) real {
	if x.Sign() < 0 {
		return neg(bigAsinh(neg(x)))
	}
	square := mul(x, x)
	root := sqrt(add(integer(1), square))
	return bigLog1p(add(x, quo(square, add(integer(1), root))))
}

func bigAcosh(x real) real {
	t := sub(x, integer(1))
	return bigLog1p(add(t, sqrt(add(mul(t, t), shift(t, 1)))))
}

func bigAtanh(x real) real {
	return shift(bigLog1p(quo(shift(x, 1), sub(integer(1), x))), -1)
}

// bigErf sums Kummer's form of the series, whose terms are all positive:
// 2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (1*3*...*(2n+1)).
func bigErf(x real) real {
	square := mul(x, x)
	term := x
	y := sumSeries(func(n int64) real {
		if n > 0 {
			term = quo(mul(term, shift(square, 1)), integer(2*n+1))
		}
		return term
	})
	return quo(shift(mul(y, bigExp(neg(square))), 1), sqrt(newReal().Set(pi())))
}

func bigPow(x, y real) real {
	if x.Sign() < 0 {
		z := bigPow(neg(x), y)
		if n, _ := y.Int(nil); n.Bit(0) == 1 {
			z.Neg(z)
		}
		return z
	}
	return bigExp(mul(y, bigLog(x)))
}
