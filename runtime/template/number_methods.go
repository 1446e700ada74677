package template

import (
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

var intMethods, floatMethods map[string]*builtin

func init() {
	self := define("", func(_ *interp, self Value, _ []Value) Value { return plainNumber(self) })
	refused := variadic(func(in *interp, _ Value, _ callArgs) Value {
		in.fail(NotSupported, "bytes are not supported")
		return nil
	})
	ratio := define("", func(in *interp, self Value, _ []Value) Value {
		f, ok := self.(Float)
		if !ok {
			return newTuple(plainNumber(self), Int(1))
		}
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			in.fail(ValueError, "cannot convert %s to integer ratio", floatRepr(float64(f)))
		}
		r := new(big.Rat)
		r.SetFloat64(float64(f))
		return newTuple(in.intValue(r.Num()), in.intValue(r.Denom()))
	})
	intMethods = map[string]*builtin{
		"as_integer_ratio": ratio,
		"bit_length": define("", func(_ *interp, self Value,
			_ []Value) Value {
			return Int(asBig(self).BitLen())
		}),
		"bit_count": define("", func(_ *interp, self Value, _ []Value) Value {
			n := 0
			for _, w := range asBig(self).Bits() {
				n += bits.OnesCount(uint(w))
			}
			return Int(n)
		}),
		"conjugate":  self,
		"from_bytes": refused,
		"to_bytes":   refused,
	}
	floatMethods = map[string]*builtin{
		"as_integer_ratio": ratio,
		"conjugate":        self,
		"hex": define("", func(_ *interp, self Value,
			_ []Value) Value {
			return Str(floatHex(float64(self.(Float))))
		}),
		"is_integer": define("", func(_ *interp, self Value, _ []Value) Value {
			f := float64(self.(Float))
			return Bool(f == math.Trunc(f) && !math.IsInf(f, 0))
		}),
	}
}

// plainNumber makes an int of a bool.
func plainNumber(v Value) Value {
	if b, ok := v.(Bool); ok {
		i, _ := smallInt(b)
		return Int(i)
	}
	return v
}

func (in *interp) numberAttribute(v Value, name string) (Value, bool) {
	_, isFloat := v.(Float)
	switch name {
	case "real":
		return plainNumber(v), true
	case "imag":
		if isFloat {
			return Float(0), true
		}
		return Int(0), true
	case "numerator", "denominator":
		if isFloat {
			return nil, false
		}
		if name == "numerator" {
			return plainNumber(v), true
		}
		return Int(1), true
	}
	methods := intMethods
	if isFloat {
		methods = floatMethods
	}
	if m := methods[name]; m != nil {
		return &method{v, name, m}, true
	}
	return nil, false
}

// floatHex is float.hex.
func floatHex(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return floatRepr(f)
	}
	if f == 0 {
		if math.Signbit(f) {
			return "-0x0.0p+0"
		}
		return "0x0.0p+0"
	}
	if math.Abs(f) < 0x1p-1022 { // Python does not normalize subnormals
		digits := strconv.FormatUint(math.Float64bits(f)&(1<<52-1), 16)
		sign := ""
		if f < 0 {
			sign = "-"
		}
		return sign + "0x0." + strings.Repeat("0", 13-len(digits)) + digits + "p-1022"
	}
	s := strconv.FormatFloat(f, 'x', 13, 64)
	mantissa, exponent, _ := strings.Cut(s, "p")
	n, _ := strconv.Atoi(exponent)
	sign := "+"
	if n < 0 {
		sign = ""
	}
	return mantissa + "p" + sign + strconv.Itoa(n)
}
