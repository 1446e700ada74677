package template

import (
	"math"
	"math/big"
)

// smallInt returns the value of a bool or of an int that fits 64 bits.
func smallInt(v Value) (int64, bool) {
	switch v := v.(type) {
	case Int:
		return int64(v), true
	case Bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// isInt says whether v is an int, or a bool, which is an int.
func isInt(v Value) bool {
	switch v.(type) {
	case Int, Bool, *bigInt:
		return true
	}
	return false
}

// asBig returns the value of an int or a bool; it must not be changed.
func asBig(v Value) *big.Int {
	if b, ok := v.(*bigInt); ok {
		return b.z
	}
	i, _ := smallInt(v)
	return big.NewInt(i)
}

// intValue makes an int of z, which must not be changed any more.
func (in *interp) intValue(z *big.Int) Value {
	if z.BitLen() > maxIntBits {
		in.fail(LimitError, "an integer of more than %d bits is too large", maxIntBits)
	}
	return makeInt(z)
}

func makeInt(z *big.Int) Value {
	if z.IsInt64() {
		return Int(z.Int64())
	}
	return &bigInt{z}
}

// clampedIndex returns an int as an index; those beyond 62 bits are clamped, which no length reaches.
func (in *interp) clampedIndex(v Value) (int, bool) {
	const limit = 1 << 62
	if i, ok := smallInt(v); ok {
		return int(min(max(i, -limit), limit)), true
	}
	if b, ok := v.(*bigInt); ok {
		return b.z.Sign() * limit, true
	}
	return 0, false
}

// argInt returns an argument that Python wants as a C integer.
func (in *interp) argInt(v Value) int {
	if b, ok := v.(*bigInt); ok {
		in.fail(OverflowError, "Python int too large to convert to C ssize_t: %s", b.z)
	}
	i, ok := smallInt(v)
	if !ok {
		in.fail(TypeError, "'%s' object cannot be interpreted as an integer", v.TypeName())
	}
	return int(i)
}

// toFloat is float(v) of a number.
func (in *interp) toFloat(v Value) float64 {
	switch v := v.(type) {
	case Float:
		return float64(v)
	case *bigInt:
		f, _ := new(big.Float).SetInt(v.z).Float64()
		if math.IsInf(f, 0) {
			in.fail(OverflowError, "int too large to convert to float")
		}
		return f
	}
	i, _ := smallInt(v)
	return float64(i)
}

// binary returns a op b for the arithmetic operators.
func (in *interp) binary(op string, a, b Value) Value {
	if op == "%" {
		if s, ok := asString(a); ok {
			return like(a, in.percent(a, s, b))
		}
	}
	in.checkDefined(a, b)
	if isNumber(a) && isNumber(b) {
		return in.arithmetic(op, a, b)
	}
	switch op {
	case "+":
		return in.add(a, b)
	case "*":
		if v := in.repeat(a, b); v != nil {
			return v
		}
		if v := in.repeat(b, a); v != nil {
			return v
		}
		for _, pair := range [][2]Value{{a, b}, {b, a}} {
			if isSequence(pair[0]) {
				in.fail(TypeError, "can't multiply sequence by non-int of type '%s'", pair[1].TypeName())
			}
		}
	case "-":
		if _, ok := a.(*view); ok {
			in.fail(NotSupported, "sets, which '-' makes of %s, are not supported", a.TypeName())
		}
	case "**":
		op = "** or pow()"
	}
	in.fail(TypeError, "unsupported operand type(s) for %s: '%s' and '%s'", op, a.TypeName(), b.TypeName())
	return nil
}

func isSequence(v Value) bool {
	switch v.(type) {
	case Str, markup, *List, *tuple:
		return true
	}
	return false
}

// add returns a + b where they are not both numbers.
func (in *interp) add(a, b Value) Value {
	switch x := a.(type) {
	case Str:
		switch y := b.(type) {
		case Str:
			return Str(in.concat(string(x), string(y)))
		case markup:
			return markup(in.concat(in.escape(string(x)), string(y)))
		}
		in.fail(TypeError, `can only concatenate str (not "%s") to str`, b.TypeName())
	case markup:
		switch y := b.(type) {
		case Str:
			return markup(in.concat(string(x), in.escape(string(y))))
		case markup:
			return markup(in.concat(string(x), string(y)))
		}
	case *List:
		if y, ok := b.(*List); ok {
			in.allocValues(len(x.items) + len(y.items))
			return NewList(append(append(make([]Value, 0, len(x.items)+len(y.items)), x.items...), y.items...)...)
		}
		in.fail(TypeError, `can only concatenate list (not "%s") to list`, b.TypeName())
	case *tuple:
		if y, ok := b.(*tuple); ok {
			in.allocValues(len(x.items) + len(y.items))
			return newTuple(append(append(make([]Value, 0, len(x.items)+len(y.items)), x.items...), y.items...)...)
		}
		in.fail(TypeError, `can only concatenate tuple (not "%s") to tuple`, b.TypeName())
	}
	in.fail(TypeError, "unsupported operand type(s) for +: '%s' and '%s'", a.TypeName(), b.TypeName())
	return nil
}

// repeat is sequence * times, or nil if they are not that.
func (in *interp) repeat(sequence, times Value) Value {
	n, ok := in.clampedIndex(times)
	if !ok || !isSequence(sequence) {
		return nil
	}
	if _, big := times.(*bigInt); big {
		in.fail(OverflowError, "cannot fit 'int' into an index-sized integer")
	}
	switch s := sequence.(type) {
	case Str, markup:
		text, _ := asString(s)
		return like(s, in.repeatString(text, n))
	case *List:
		return NewList(in.repeatValues(s.items, n)...)
	case *tuple:
		return newTuple(in.repeatValues(s.items, n)...)
	}
	return nil
}

// arithmetic returns a op b for numbers.
func (in *interp) arithmetic(op string, a, b Value) Value {
	if isInt(a) && isInt(b) {
		x, xok := smallInt(a)
		y, yok := smallInt(b)
		if xok && yok {
			if v := in.smallArithmetic(op, x, y); v != nil {
				return v
			}
		}
		return in.bigArithmetic(op, asBig(a), asBig(b))
	}
	x, y := in.toFloat(a), in.toFloat(b)
	switch op {
	case "+":
		return Float(x + y)
	case "-":
		return Float(x - y)
	case "*":
		return Float(float64(x * y))
	case "**":
		return in.powFloat(x, y)
	}
	if y == 0 {
		switch op {
		case "/":
			in.fail(ZeroDivisionError, "float division by zero")
		case "//":
			in.fail(ZeroDivisionError, "float floor division by zero")
		}
		in.fail(ZeroDivisionError, "float modulo")
	}
	if op == "/" {
		return Float(x / y)
	}
	quotient, remainder := floorDivide(x, y)
	if op == "//" {
		return Float(quotient)
	}
	return Float(remainder)
}

// floorDivide is Python's divmod of floats: the remainder has the sign of the divisor.
func floorDivide(x, y float64) (quotient, remainder float64) {
	remainder = math.Mod(x, y)
	quotient = (x - remainder) / y
	if remainder != 0 {
		if (y < 0) != (remainder < 0) {
			remainder += y
			quotient--
		}
	} else {
		remainder = math.Copysign(0, y)
	}
	if quotient == 0 {
		return math.Copysign(0, x/y), remainder
	}
	floor := math.Floor(quotient)
	if quotient-floor > 0.5 {
		floor++
	}
	return floor, remainder
}

// smallArithmetic is x op y if it can be done in 64 bits, or nil.
func (in *interp) smallArithmetic(op string, x, y int64) Value {
	switch op {
	case "+":
		if z := x + y; (z > x) == (y > 0) {
			return Int(z)
		}
	case "-":
		if z := x - y; (z < x) == (y > 0) {
			return Int(z)
		}
	case "*":
		if x == 0 || y == 0 {
			return Int(0)
		}
		if z := x * y; z/y == x && !(y == -1 && x == math.MinInt64) && !(x == -1 && y == math.MinInt64) {
			return Int(z)
		}
	case "/":
		const exact = 1 << 53
		if y != 0 && -exact <= x && x <= exact && -exact <= y && y <= exact {
			return Float(float64(x) / float64(y))
		}
	case "//":
		if y > 0 {
			q := x / y
			if x%y < 0 {
				q--
			}
			return Int(q)
		}
	case "%":
		if y > 0 {
			m := x % y
			if m < 0 {
				m += y
			}
			return Int(m)
		}
	}
	return nil
}

func (in *interp) bigArithmetic(op string, x, y *big.Int) Value {
	in.step((x.BitLen() + y.BitLen()) / 64)
	if y.Sign() == 0 {
		switch op {
		case "/":
			in.fail(ZeroDivisionError, "division by zero")
		case "//", "%":
			in.fail(ZeroDivisionError, "integer division or modulo by zero")
		}
	}
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		if x.BitLen()+y.BitLen() > maxIntBits+1 {
			in.fail(LimitError, "an integer of more than %d bits is too large", maxIntBits)
		}
		in.step((x.BitLen() + y.BitLen()) / 8)
		z.Mul(x, y)
	case "/":
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			in.fail(OverflowError, "integer division result too large for a float")
		}
		return Float(f)
	case "**":
		return in.powInt(x, y)
	default: // // and %: the remainder has the sign of the divisor
		m := new(big.Int)
		z.QuoRem(x, y, m)
		if m.Sign() != 0 && m.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			m.Add(m, y)
		}
		if op == "%" {
			z = m
		}
	}
	return in.intValue(z)
}

// negate is -v, positive is +v, absolute is abs(v).
func (in *interp) negate(v Value) Value {
	in.checkDefined(v)
	if f, ok := v.(Float); ok {
		return -f
	}
	if !isInt(v) {
		in.fail(TypeError, "bad operand type for unary -: '%s'", v.TypeName())
	}
	return in.intValue(new(big.Int).Neg(asBig(v)))
}

func (in *interp) positive(v Value) Value {
	in.checkDefined(v)
	if f, ok := v.(Float); ok {
		return f
	}
	if !isInt(v) {
		in.fail(TypeError, "bad operand type for unary +: '%s'", v.TypeName())
	}
	return makeInt(asBig(v))
}

func (in *interp) absolute(v Value) Value {
	if f, ok := v.(Float); ok {
		return Float(math.Abs(float64(f)))
	}
	if !isInt(v) {
		in.fail(TypeError, "bad operand type for abs(): '%s'", v.TypeName())
	}
	return in.intValue(new(big.Int).Abs(asBig(v)))
}
