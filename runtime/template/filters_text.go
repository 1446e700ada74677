package template

import (
	"math"
	"strconv"
	"strings"
)

func filterCenter(in *interp, v Value, a []Value) Value {
	width := a[0]
	if width == nil {
		width = Int(80)
	}
	return in.invoke("center", stringMethods["center"], in.softString(v), callArgs{positional: []Value{width}})
}

func filterFormat(in *interp, v Value, args callArgs) Value {
	if len(args.positional) > 0 && len(args.names) > 0 {
		in.fail(FilterError, "can't handle positional and keyword arguments at the same time")
	}
	v = in.softString(v)
	var values Value = newTuple(args.positional...)
	if len(args.names) > 0 {
		d := &Dict{}
		for i, name := range args.names {
			in.insert(d, Str(name), args.named[i])
		}
		values = d
	}
	s, _ := asString(v)
	return like(v, in.percent(v, s, values))
}

func filterIndent(in *interp, v Value, a []Value) Value {
	indent := "    "
	if s, ok := asString2(a[0]); ok {
		indent = s
	} else if a[0] != nil {
		in.checkDefined(a[0])
		n, ok := in.clampedIndex(a[0])
		if !ok {
			in.fail(TypeError, "can't multiply sequence by non-int of type '%s'", a[0].TypeName())
		}
		indent = in.repeatString(" ", n)
	}
	in.checkDefined(v)
	s, ok := asString(v)
	if !ok {
		in.fail(TypeError, "unsupported operand type(s) for +=: '%s' and 'str'", v.TypeName())
	}
	in.look(2 * len(s))
	lines := splitLines(s+"\n", false)
	in.alloc(16 * len(lines))
	out := output{in: in}
	for i, line := range lines {
		if i > 0 {
			out.write("\n")
		}
		if i == 0 && boolArg(a[1]) || i > 0 && (line != "" || boolArg(a[2])) {
			out.write(indent)
		}
		out.write(line)
	}
	return like(v, out.String())
}

// asString2 is asString for a value that may be absent.
func asString2(v Value) (string, bool) {
	if v == nil {
		return "", false
	}
	return asString(v)
}

func filterReplace(in *interp, v Value, a []Value) Value {
	count := -1
	if !absent(a[2]) {
		in.checkDefined(a[2])
		count = in.argInt(a[2])
	}
	return Str(in.replace(in.str(v), in.str(a[0]), in.str(a[1]), count))
}

func filterTrim(in *interp, v Value, a []Value) Value {
	return strip(true, true)(in, in.softString(v), a)
}

// titleFilter is the filter title, which differs from str.title: a word starts after a hyphen, white space or an
// opening bracket, and nowhere else.
func (in *interp) titleFilter(s string) string {
	isBreak := func(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) }
	var b strings.Builder
	for s != "" {
		word := strings.TrimLeftFunc(s, isBreak)
		b.WriteString(s[:len(s)-len(word)])
		s = strings.TrimLeftFunc(word, func(c rune) bool { return !isBreak(c) })
		word = word[:len(word)-len(s)]
		n := byteOffset(word, 1)
		b.WriteString(in.upper(word[:n]))
		b.WriteString(in.lower(word[n:]))
	}
	return b.String()
}

func filterTruncate(in *interp, v Value, a []Value) Value {
	var limit, leeway, end Value = Int(255), Int(5), Str("...")
	if a[0] != nil {
		limit = a[0]
	}
	if a[2] != nil {
		end = a[2]
	}
	if !absent(a[3]) {
		leeway = a[3]
	}
	endLength := Int(in.length(end))
	if in.less("<", limit, endLength) {
		in.fail(AssertionError, "expected length >= %d, got %s", int(endLength), in.repr(limit))
	}
	if in.less("<", leeway, Int(0)) {
		in.fail(AssertionError, "expected leeway >= 0, got %s", in.repr(leeway))
	}
	if in.less("<=", Int(in.length(v)), in.binary("+", limit, leeway)) {
		return v
	}
	part := in.slice(v, sliceValue{None{}, in.binary("-", limit, endLength), None{}})
	if boolArg(a[1]) {
		return in.binary("+", part, end)
	}
	s, ok := asString(part)
	if !ok {
		in.fail(TypeError, "'%s' object has no attribute 'rsplit'", v.TypeName())
	}
	if i := strings.LastIndexByte(s, ' '); i >= 0 {
		s = s[:i]
	}
	return in.binary("+", like(part, s), end)
}

func filterWordCount(in *interp, v Value, _ []Value) Value {
	s := in.str(v)
	in.look(4 * len(s))
	words, inside := 0, false
	for _, c := range s {
		word := c == '_' || isAlnum(c)
		if word && !inside {
			words++
		}
		inside = word
	}
	return Int(words)
}

func filterFileSize(in *interp, v Value, a []Value) Value {
	size := in.mustFloat(v)
	base, suffix := 1000.0, "B"
	prefixes := "kMGTPEZY"
	if boolArg(a[0]) {
		base, suffix, prefixes = 1024, "iB", "KMGTPEZY"
	}
	if size == 1 {
		return Str("1 Byte")
	}
	if size < base {
		n, failure := in.toInt(Float(size))
		if failure != "" {
			in.fail(failure, "cannot convert float %s to integer", floatRepr(size))
		}
		return Str(in.str(n) + " Bytes")
	}
	unit := base
	for i := range len(prefixes) {
		unit = powExact(base, i+2)
		if size < unit || i == len(prefixes)-1 {
			digits, _ := in.floatDigits(float64(base*size)/unit, 'f', 1, false)
			return Str(digits + " " + prefixes[i:i+1] + suffix)
		}
	}
	return nil
}

// mustFloat is float(v).
func (in *interp) mustFloat(v Value) float64 {
	in.checkDefined(v)
	if s, ok := asString(v); ok {
		f, ok := parseFloat(s)
		if !ok {
			in.fail(ValueError, "could not convert string to float: %s", quote(s))
		}
		return f
	}
	if !isNumber(v) {
		in.fail(TypeError, "float() argument must be a string or a real number, not '%s'", v.TypeName())
	}
	return in.toFloat(v)
}

func filterFloat(in *interp, v Value, a []Value) Value {
	in.checkDefined(v)
	if s, ok := asString(v); ok {
		in.look(len(s))
		if f, ok := parseFloat(s); ok {
			return Float(f)
		}
	} else if isNumber(v) {
		return Float(in.toFloat(v))
	}
	if a[0] == nil {
		return Float(0)
	}
	return a[0]
}

func filterInt(in *interp, v Value, a []Value) Value {
	var fallback Value = Int(0)
	if a[0] != nil {
		fallback = a[0]
	}
	in.checkDefined(v)
	if s, ok := asString(v); ok {
		base := 10
		if a[1] != nil {
			// A wrong base is an error of Python that the filter catches.
			if b, ok := smallInt(a[1]); ok {
				base = int(b)
			} else {
				base = -1
			}
		}
		if n, ok := in.parseInt(s, base); ok {
			return n
		}
		f, ok := parseFloat(s)
		if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
			return fallback
		}
		v = Float(f)
	}
	if !isNumber(v) {
		return fallback
	}
	n, failure := in.toInt(v)
	switch failure {
	case "":
		return n
	case OverflowError:
		in.fail(OverflowError, "cannot convert float infinity to integer")
	}
	return fallback
}

func filterURLEncode(in *interp, v Value, _ []Value) Value {
	_, isText := asString(v)
	if d, ok := v.(*Dict); ok {
		v = &view{d, viewItems}
	}
	next := in.tryIterate(v)
	if isText || next == nil {
		return Str(in.quoteURL(v, "/"))
	}
	var parts []string
	for x, ok := next(); ok; x, ok = next() {
		pair := in.unpack(x, 2)
		parts = append(parts, in.quoteURL(pair[0], "")+"="+in.quoteURL(pair[1], ""))
	}
	return Str(strings.Join(parts, "&"))
}

// quoteURL is urllib's quote; without a safe slash it is for a query, where blanks are plus signs.
func (in *interp) quoteURL(v Value, safe string) string {
	s := in.str(v)
	in.alloc(3 * len(s))
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x80 && (digitValue(c) >= 0 || strings.IndexByte("_.-~"+safe, c) >= 0):
			b.WriteByte(c)
		case c == ' ' && safe == "":
			b.WriteByte('+')
		default:
			b.WriteByte('%')
			if c < 16 {
				b.WriteByte('0')
			}
			b.WriteString(strings.ToUpper(strconv.FormatUint(uint64(c), 16)))
		}
	}
	return b.String()
}

func filterXMLAttr(in *interp, v Value, a []Value) Value {
	in.checkDefined(v)
	d, ok := v.(*Dict)
	if !ok {
		in.fail(TypeError, "'%s' object has no attribute 'items'", v.TypeName())
	}
	var parts []string
	for i, k := range d.keys {
		switch d.values[i].(type) {
		case None, *undefined:
			continue
		}
		key := in.mustText("the name of an XML attribute", k)
		if strings.ContainsAny(key, " \t\n\r\f\v/>=") {
			in.fail(ValueError, "Invalid character in attribute name: %s", quote(key))
		}
		parts = append(parts, in.escapeText(k)+`="`+in.escapeText(d.values[i])+`"`)
	}
	text := strings.Join(parts, " ")
	if text != "" && (a[0] == nil || truth(a[0])) {
		text = " " + text
	}
	return Str(text)
}
