package template

import (
	"math"
	"math/big"
)

// round is round(v, precision): ints stay ints, and without a precision (None) floats become ints.
func (in *interp) round(v, precision Value) Value {
	if !isNumber(v) {
		in.fail(TypeError, "type %s doesn't define __round__ method", v.TypeName())
	}
	f, isFloat := v.(Float)
	if _, none := precision.(None); none {
		if !isFloat {
			return plainNumber(v)
		}
		n, failure := in.toInt(Float(math.RoundToEven(float64(f))))
		if failure != "" {
			in.fail(failure, "cannot convert float %s to integer", in.repr(v))
		}
		return n
	}
	digits, ok := in.clampedIndex(precision)
	if !ok {
		in.fail(TypeError, "'%s' object cannot be interpreted as an integer", precision.TypeName())
	}
	if isFloat {
		return Float(in.roundFloat(float64(f), digits))
	}
	if digits >= 0 {
		return plainNumber(v)
	}
	if -digits > maxIntDigits {
		return Int(0)
	}
	s := in.decimal(new(big.Int).Abs(asBig(v)))
	z, _ := new(big.Int).SetString(roundDecimal(s, false, -digits), 10)
	if asBig(v).Sign() < 0 {
		z.Neg(z)
	}
	return in.intValue(z)
}

// floorOrCeil is math.floor(v) or math.ceil(v), an int.
func (in *interp) floorOrCeil(v Value, ceil bool) Value {
	f, ok := v.(Float)
	if !ok {
		return plainNumber(v)
	}
	whole := math.Floor(float64(f))
	if ceil {
		whole = math.Ceil(float64(f))
	}
	n, failure := in.toInt(Float(whole))
	if failure != "" {
		in.fail(failure, "cannot convert float %s to integer", in.repr(v))
	}
	return n
}
