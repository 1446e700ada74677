package template

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// percentFormat formats a string by the operator %.
type percentFormat struct {
	escape  bool // the string is a Markup, which escapes what it takes in
	values  Value
	args    []Value // of a tuple, or the one value
	mapping bool    // the values may be a mapping: then no value is left over
	next    int
	output
}

// percent is format % values.
func (in *interp) percent(self Value, format string, values Value) string {
	p := &percentFormat{output: output{in: in}, values: values}
	_, p.escape = self.(markup)
	switch v := values.(type) {
	case *tuple:
		p.args = v.items
	case Str, markup:
		p.args = []Value{v}
	default:
		p.args = []Value{v}
		p.mapping = subscriptable(v)
	}
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			p.write(format)
			break
		}
		p.write(format[:i])
		format = p.directive(format[i+1:])
	}
	if p.next < len(p.args) && !p.mapping {
		in.fail(TypeError, "not all arguments converted during string formatting")
	}
	return p.String()
}

// subscriptable says whether the type of v has __getitem__.
func subscriptable(v Value) bool {
	switch v.(type) {
	case *Dict, *List, rangeValue, *undefined, *templateReference:
		return true
	}
	return false
}

func (p *percentFormat) take() Value {
	if p.next >= len(p.args) {
		p.in.fail(TypeError, "not enough arguments for format string")
	}
	p.next++
	return p.args[p.next-1]
}

// directive formats what follows a percent sign, and gives what follows the directive.
func (p *percentFormat) directive(s string) string {
	f := formatSpec{fill: " ", align: '>', precision: -1}
	keyed, s := p.mappingKey(s)
	left, zero, s := percentFlags(&f, s)
	if f.width, s = p.number("width", s); f.width < 0 {
		left, f.width = true, -f.width
	}
	if strings.HasPrefix(s, ".") {
		f.precision, s = p.number("precision", s[1:])
		f.precision = max(f.precision, 0)
	}
	if s != "" && strings.IndexByte("hlL", s[0]) >= 0 {
		s = s[1:]
	}
	if s == "" {
		p.in.fail(ValueError, "incomplete format")
	}
	if left {
		f.align = '<'
	}
	c, n := utf8.DecodeRuneInString(s)
	if c == '%' {
		p.write("%")
		return s[n:]
	}
	if keyed == nil {
		keyed = p.take()
	}
	p.write(p.convert(f, c, zero && !left, keyed))
	return s[n:]
}

// mappingKey returns the value of the key in parentheses that a directive may begin with, else nil, and what follows.
func (p *percentFormat) mappingKey(s string) (Value, string) {
	if !strings.HasPrefix(s, "(") {
		return nil, s
	}
	depth, end := 0, -1
	for i := range len(s) {
		if s[i] == '(' {
			depth++
		} else if s[i] == ')' {
			if depth--; depth == 0 {
				end = i
				break
			}
		}
	}
	if !p.mapping {
		p.in.fail(TypeError, "format requires a mapping")
	}
	if end < 0 {
		p.in.fail(ValueError, "incomplete format key")
	}
	return p.key(s[1:end]), s[end+1:]
}

// percentFlags reads the flags of a directive, and gives what follows them.
func percentFlags(f *formatSpec, s string) (left, zero bool, rest string) {
	for s != "" && strings.IndexByte("#0- +", s[0]) >= 0 {
		switch s[0] {
		case '#':
			f.alternate = true
		case '0':
			zero = true
		case '-':
			left = true
		case '+':
			f.sign = '+'
		case ' ':
			if f.sign == 0 {
				f.sign = ' '
			}
		}
		s = s[1:]
	}
	return left, zero, s
}

// number reads a width or a precision, which may be an asterisk for the next argument, and gives what follows it.
func (p *percentFormat) number(what, s string) (int, string) {
	if strings.HasPrefix(s, "*") {
		v := p.take()
		if !isInt(v) {
			p.in.fail(TypeError, "* wants int")
		}
		return p.in.argInt(v), s[1:]
	}
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	x, err := strconv.Atoi("0" + s[:n])
	if err != nil {
		p.in.fail(ValueError, "%s too big", what)
	}
	return x, s[n:]
}

// key is the value of a key of the mapping.
func (p *percentFormat) key(key string) Value {
	in := p.in
	p.next = len(p.args)
	in.checkDefined(p.values)
	v, ok := in.item(p.values, Str(key))
	if !ok {
		if _, isDict := p.values.(*Dict); isDict {
			in.fail(KeyError, "%s", quote(key))
		}
		in.fail(TypeError, "%s indices must be integers or slices, not str", p.values.TypeName())
	}
	return v
}

// convert formats one value.
func (p *percentFormat) convert(f formatSpec, kind rune, zero bool, v Value) string {
	in := p.in
	switch kind {
	case 's', 'r', 'a':
		s := ""
		switch {
		case kind == 's' && p.escape:
			s = in.escapeText(v)
		case kind == 's':
			s = in.str(v)
		case kind == 'r' && p.escape:
			s = in.escape(in.repr(v))
		case kind == 'r':
			s = in.repr(v)
		default:
			s = in.ascii(v)
		}
		if f.precision >= 0 && f.precision < in.runes(s) {
			s = s[:byteOffset(s, f.precision)]
		}
		return in.pad(f, "", s)
	case 'c':
		if s, ok := asString(v); ok && in.runes(s) == 1 {
			return in.pad(f, "", s)
		}
		if !isInt(v) {
			in.fail(TypeError, "%%c requires int or char")
		}
		return in.pad(f, "", in.character(asBig(v)))
	case 'd', 'i', 'u', 'o', 'x', 'X':
		return p.integer(f, byte(kind), zero, v)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		in.checkDefined(v)
		if !isNumber(v) {
			in.fail(TypeError, "must be real number, not %s", v.TypeName())
		}
		x := in.toFloat(v)
		in.checkPrecision(f.precision)
		digits, _ := in.floatDigits(math.Abs(x), byte(kind), f.precision, f.alternate)
		if zero {
			f.align, f.fill = '=', "0"
		}
		return in.pad(f, f.signOf(math.Signbit(x) && !math.IsNaN(x)), digits)
	}
	in.fail(ValueError, "unsupported format character '%c' (0x%x)", kind, kind)
	return ""
}

func (p *percentFormat) integer(f formatSpec, kind byte, zero bool, v Value) string {
	in := p.in
	in.checkDefined(v)
	if !isNumber(v) {
		in.fail(TypeError, "%%%c format: a real number is required, not %s", kind, v.TypeName())
	}
	base, prefix := 10, ""
	switch kind {
	case 'o':
		base, prefix = 8, "0o"
	case 'x', 'X':
		base, prefix = 16, "0"+string(kind)
	}
	if _, isFloat := v.(Float); isFloat {
		if base != 10 {
			in.fail(TypeError, "%%%c format: an integer is required, not float", kind)
		}
		n, failure := in.toInt(v)
		if failure != "" {
			in.fail(failure, "cannot convert float %s to integer", in.repr(v))
		}
		v = n
	}
	z := asBig(v)
	in.step(z.BitLen())
	digits := new(big.Int).Abs(z).Text(base)
	if base == 10 && len(digits) > maxIntDigits {
		in.fail(ValueError, "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	digits = in.repeatString("0", f.precision-len(digits)) + digits
	if kind == 'X' {
		digits = strings.ToUpper(digits)
	}
	if !f.alternate {
		prefix = ""
	}
	if zero {
		f.align, f.fill = '=', "0"
	}
	return in.pad(f, f.signOf(z.Sign() < 0)+prefix, digits)
}
