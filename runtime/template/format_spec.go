package template

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatSpec is a parsed format specification: [[fill]align][sign][z][#][0][width][grouping][.precision][type].
type formatSpec struct {
	fill      string
	align     byte // '<', '>', '^', '=' or 0
	sign      byte // '+', '-', ' ' or 0
	alternate bool
	width     int
	grouping  byte // ',' or '_' or 0
	precision int  // -1 if absent
	kind      byte // the type, or 0
}

// parseSpec parses the format specification of a value: its fields in the order of the grammar. It is long because each
// field has a few lines of its own.
func (in *interp) parseSpec(spec string, v Value) formatSpec {
	f := formatSpec{fill: " ", precision: -1}
	invalid := func() {
		in.fail(ValueError, "Invalid format specifier %s for object of type '%s'", quote(spec), v.TypeName())
	}
	rest := spec
	isAlign := func(s string) bool { return s != "" && strings.IndexByte("<>^=", s[0]) >= 0 }
	explicitFill := false
	if _, n := utf8.DecodeRuneInString(rest); n > 0 && isAlign(rest[n:]) {
		f.fill, f.align, rest, explicitFill = rest[:n], rest[n], rest[n+1:], true
	} else if isAlign(rest) {
		f.align, rest = rest[0], rest[1:]
	}
	accept := func(set string) byte {
		if rest != "" && strings.IndexByte(set, rest[0]) >= 0 {
			c := rest[0]
			rest = rest[1:]
			return c
		}
		return 0
	}
	f.sign = accept("+- ")
	if accept("z") != 0 {
		in.fail(NotSupported, "the option z of a format is not supported")
	}
	f.alternate = accept("#") != 0
	if accept("0") != 0 {
		if !explicitFill {
			f.fill = "0"
		}
		if f.align == 0 {
			if _, ok := asString(v); ok {
				f.align = '<' // as Python 3.10 and later do
			} else {
				f.align = '='
			}
		}
	}
	number := func() (int, bool) {
		n := 0
		for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
			n++
		}
		if n == 0 {
			return 0, false
		}
		x, err := strconv.Atoi(rest[:n])
		if err != nil {
			in.fail(ValueError, "Too many decimal digits in format string")
		}
		rest = rest[n:]
		return x, true
	}
	f.width, _ = number()
	f.grouping = accept(",_")
	if f.grouping != 0 && accept(",_") != 0 {
		in.fail(ValueError, "Cannot specify both ',' and '_'.")
	}
	if accept(".") != 0 {
		var ok bool
		if f.precision, ok = number(); !ok {
			in.fail(ValueError, "Format specifier missing precision")
		}
	}
	if rest != "" {
		f.kind, rest = rest[0], rest[1:]
	}
	if rest != "" {
		invalid()
	}
	return f
}

// format is format(v, spec).
func (in *interp) format(v Value, spec string) string {
	if spec == "" {
		return in.str(v)
	}
	if s, ok := asString(v); ok {
		return in.formatString(v, s, spec)
	}
	if !isNumber(v) {
		in.fail(TypeError, "unsupported format string passed to %s.__format__", v.TypeName())
	}
	f := in.parseSpec(spec, v)
	if strings.IndexByte("\x00bcdoxXneEfFgG%", f.kind) < 0 {
		in.fail(ValueError, "Unknown format code '%c' for object of type '%s'", f.kind, v.TypeName())
	}
	_, isFloat := v.(Float)
	if isFloat && strings.IndexByte("bcdoxX", f.kind) >= 0 && f.kind != 0 {
		in.fail(ValueError, "Unknown format code '%c' for object of type 'float'", f.kind)
	}
	if isFloat || strings.IndexByte("eEfFgG%", f.kind) >= 0 && f.kind != 0 {
		return in.formatFloat(f, in.toFloat(v))
	}
	return in.formatInt(f, v)
}

func (in *interp) formatString(v Value, s, spec string) string {
	f := in.parseSpec(spec, v)
	switch {
	case f.kind != 0 && f.kind != 's':
		in.fail(ValueError, "Unknown format code '%c' for object of type 'str'", f.kind)
	case f.sign != 0:
		in.fail(ValueError, "Sign not allowed in string format specifier")
	case f.alternate:
		in.fail(ValueError, "Alternate form (#) not allowed in string format specifier")
	case f.align == '=':
		in.fail(ValueError, "'=' alignment not allowed in string format specifier")
	case f.grouping != 0:
		in.fail(ValueError, "Cannot specify '%c' with 's'.", f.grouping)
	}
	if f.precision >= 0 && f.precision < in.runes(s) {
		s = s[:byteOffset(s, f.precision)]
	}
	if f.align == 0 {
		f.align = '<'
	}
	return in.pad(f, "", s)
}

// pad aligns a body with what must stay before its padding.
func (in *interp) pad(f formatSpec, prefix, body string) string {
	missing := f.width - in.runes(prefix) - in.runes(body)
	if missing <= 0 {
		return in.concat(prefix, body)
	}
	before, between, after := 0, 0, 0
	switch f.align {
	case '<':
		after = missing
	case '^':
		before = missing / 2
		after = missing - before
	case '=':
		between = missing
	default:
		before = missing
	}
	fill := func(n int) string { return in.repeatString(f.fill, n) }
	return in.concat(fill(before), prefix, fill(between), body, fill(after))
}

func (f formatSpec) signOf(negative bool) string {
	switch {
	case negative:
		return "-"
	case f.sign == '+' || f.sign == ' ':
		return string(f.sign)
	}
	return ""
}

// finish groups the digits of a number and pads it. tail is what follows the integer digits.
func (in *interp) finish(f formatSpec, prefix, digits, tail string, every int) string {
	if f.grouping != 0 {
		width := 0
		if f.fill == "0" && f.align == '=' { // the zeros that pad are grouped too
			width = f.width - len(prefix) - len(tail)
		}
		digits = in.group(digits, f.grouping, every, width)
	}
	return in.pad(f, prefix, digits+tail)
}

// group puts a separator between groups of digits, after adding zeros up to a width.
func (in *interp) group(digits string, separator byte, every, width int) string {
	if zeros := width - len(digits); zeros > 0 {
		// n digits in groups take n + (n-1)/every characters; a separator never comes first.
		n := len(digits)
		for n+(n-1)/every < width {
			if width-n > 4096 {
				n += (width - n) / 2
			} else {
				n++
			}
		}
		digits = in.repeatString("0", n-len(digits)) + digits
	}
	in.alloc(2 * len(digits))
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%every == 0 {
			b.WriteByte(separator)
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

func (in *interp) formatInt(f formatSpec, v Value) string {
	z := asBig(v)
	if f.precision >= 0 {
		in.fail(ValueError, "Precision not allowed in integer format specifier")
	}
	if f.align == 0 {
		f.align = '>'
	}
	if f.kind == 'c' {
		if f.sign != 0 || f.alternate || f.grouping != 0 {
			in.fail(ValueError, "Sign, # and grouping are not allowed with integer format specifier 'c'")
		}
		return in.pad(f, "", in.character(z))
	}
	base, every, prefix := 10, 3, ""
	switch f.kind {
	case 'b':
		base, every, prefix = 2, 4, "0b"
	case 'o':
		base, every, prefix = 8, 4, "0o"
	case 'x', 'X':
		base, every, prefix = 16, 4, "0"+string(f.kind)
	}
	if !f.alternate {
		prefix = ""
	}
	if f.grouping == ',' && every == 4 || f.grouping != 0 && f.kind == 'n' {
		in.fail(ValueError, "Cannot specify '%c' with '%c'.", f.grouping, f.kind)
	}
	in.step(z.BitLen())
	digits := new(big.Int).Abs(z).Text(base)
	if base == 10 && len(digits) > maxIntDigits {
		in.fail(ValueError, "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	if f.kind == 'X' {
		digits = strings.ToUpper(digits)
	}
	return in.finish(f, f.signOf(z.Sign() < 0)+prefix, digits, "", every)
}

// character returns the character of a code point.
func (in *interp) character(z *big.Int) string {
	if !z.IsInt64() || z.Int64() < 0 || z.Int64() > utf8.MaxRune || !utf8.ValidRune(rune(z.Int64())) {
		in.fail(OverflowError, "%%c arg not in range(0x110000)")
	}
	return string(rune(z.Int64()))
}

func (in *interp) formatFloat(f formatSpec, x float64) string {
	if f.align == 0 {
		f.align = '>'
	}
	if f.grouping != 0 && f.kind == 'n' {
		in.fail(ValueError, "Cannot specify '%c' with 'n'.", f.grouping)
	}
	in.checkPrecision(f.precision)
	magnitude, tail := in.floatDigits(math.Abs(x), f.kind, f.precision, f.alternate)
	i := strings.IndexFunc(magnitude, func(c rune) bool { return c < '0' || c > '9' })
	if i < 0 {
		i = len(magnitude)
	}
	sign := f.signOf(math.Signbit(x) && !math.IsNaN(x))
	if i == 0 { // inf and nan
		f.grouping = 0
		return in.pad(f, sign, magnitude+tail)
	}
	return in.finish(f, sign, magnitude[:i], magnitude[i:]+tail, 3)
}

// checkPrecision bounds the digits of a float.
func (in *interp) checkPrecision(precision int) {
	if precision > math.MaxInt32 {
		in.fail(ValueError, "precision too big")
	}
	in.alloc(max(precision, 0))
	in.step(max(precision, 0))
}

// floatDigits formats a magnitude by a type of a format, with a percent sign as tail for '%'.
func (in *interp) floatDigits(x float64, kind byte, precision int, alternate bool) (digits, tail string) {
	upper := kind == 'E' || kind == 'F' || kind == 'G'
	if kind == '%' {
		x, tail = float64(x*100), "%"
	}
	if math.IsInf(x, 0) || math.IsNaN(x) {
		digits = strings.TrimPrefix(floatRepr(x), "-")
		if upper {
			digits = strings.ToUpper(digits)
		}
		return digits, tail
	}
	given := precision >= 0
	if !given {
		precision = 6
	}
	switch kind {
	case 'e', 'E':
		digits = strconv.FormatFloat(x, 'e', precision, 64)
		if alternate && precision == 0 {
			digits = strings.Replace(digits, "e", ".e", 1)
		}
	case 'f', 'F', '%':
		digits = strconv.FormatFloat(x, 'f', precision, 64)
		if alternate && precision == 0 {
			digits += "."
		}
	case 'g', 'G', 'n':
		digits = formatGeneral(x, max(precision, 1), max(precision, 1), alternate)
	default: // like g, but with a digit after the point, or like repr
		if !given {
			return floatRepr(x), ""
		}
		precision = max(precision, 1)
		digits = formatGeneral(x, precision, max(precision-1, 0), alternate)
		if !strings.ContainsAny(digits, "e") {
			if !strings.Contains(digits, ".") {
				digits += ".0"
			} else if strings.HasSuffix(digits, ".") {
				digits += "0"
			}
		}
	}
	if upper {
		digits = strings.ToUpper(digits)
	}
	return digits, tail
}
