package template

import (
	"math"
	"math/big"

	"github.com/etc-ml/etc/ir/numeric"
)

// powInt is x ** y for integers.
func (in *interp) powInt(x, y *big.Int) Value {
	if y.Sign() < 0 {
		return in.powFloat(in.toFloat(makeInt(x)), in.toFloat(makeInt(y)))
	}
	if x.BitLen() <= 1 { // 0, 1, -1
		if y.Sign() == 0 || x.Sign() > 0 || x.Sign() < 0 && y.Bit(0) == 0 {
			return Int(1)
		}
		return Int(x.Int64())
	}
	if !y.IsInt64() || y.Int64() > maxIntBits || int64(x.BitLen()-1)*y.Int64() > maxIntBits {
		in.fail(LimitError, "an integer of more than %d bits is too large", maxIntBits)
	}
	z := new(big.Int).Exp(x, y, nil)
	in.step(z.BitLen() / 8)
	return in.intValue(z)
}

// powFloat is x ** y for floats.
func (in *interp) powFloat(x, y float64) Value {
	integer := y == math.Trunc(y) && !math.IsInf(y, 0)
	switch {
	case y == 0 || x == 1:
		return Float(1)
	case math.IsNaN(x) || math.IsNaN(y):
		return Float(math.NaN())
	case math.IsInf(x, 0) || math.IsInf(y, 0):
		return Float(numeric.Pow(x, y))
	case x == 0 && y < 0:
		in.fail(ZeroDivisionError, "0.0 cannot be raised to a negative power")
	case x < 0 && !integer:
		in.fail(NotSupported, "a negative number to the power of a fraction is complex, which is not supported")
	}
	var z float64
	if integer && math.Abs(y) <= 1024 {
		z = powExact(x, int(y))
	} else {
		z = numeric.Pow(x, y)
	}
	if math.IsInf(z, 0) {
		in.fail(OverflowError, "(34, 'Numerical result out of range')")
	}
	return Float(z)
}

// powExact is x ** n, rounded once.
func powExact(x float64, n int) float64 {
	const precision = 256 // ten squarings lose a few of these bits
	z := big.NewFloat(1).SetPrec(precision)
	base := new(big.Float).SetPrec(precision).SetFloat64(x)
	for k := max(n, -n); k > 0; k >>= 1 {
		if k&1 != 0 {
			z.Mul(z, base)
		}
		base.Mul(base, base)
	}
	if n < 0 {
		z.Quo(big.NewFloat(1).SetPrec(precision), z)
	}
	f, _ := z.Float64()
	return f
}
