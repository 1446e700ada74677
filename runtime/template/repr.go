package template

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is str(v): what printing a value gives.
func (in *interp) str(v Value) string {
	switch v := v.(type) {
	case Str:
		return string(v)
	case markup:
		return string(v)
	case *undefined:
		return ""
	}
	return in.repr(v)
}

// repr is repr(v).
func (in *interp) repr(v Value) string {
	w := &reprWriter{output: output{in: in}}
	w.value(v, 0)
	return w.String()
}

// reprWriter writes values as Python's repr does, and counts what it writes.
type reprWriter struct {
	output
	// inside are the namespaces that are being written; only they can hold themselves.
	inside []*namespace
}

// value writes the repr of a value. It is long because it is one switch over the kinds, with a short case for each.
func (w *reprWriter) value(v Value, depth nested) {
	switch v := v.(type) {
	case None:
		w.write("None")
	case Bool:
		if v {
			w.write("True")
		} else {
			w.write("False")
		}
	case Int:
		w.write(strconv.FormatInt(int64(v), 10))
	case *bigInt:
		w.write(w.in.decimal(v.z))
	case Float:
		w.write(floatRepr(float64(v)))
	case Str:
		w.write(quote(string(v)))
	case markup:
		w.write("Markup(" + quote(string(v)) + ")")
	case *List:
		w.items("[", "]", v.items, depth)
	case *tuple:
		if len(v.items) == 1 {
			w.items("(", ",)", v.items, depth)
		} else {
			w.items("(", ")", v.items, depth)
		}
	case *Dict:
		w.dict(v, depth)
	case *view:
		w.write(v.TypeName() + "([")
		depth = w.in.deeper(depth)
		for i := range v.dict.keys {
			if i > 0 {
				w.write(", ")
			}
			w.value(v.at(i), depth)
		}
		w.write("])")
	case rangeValue:
		w.write(v.repr())
	case sliceValue:
		w.items("slice(", ")", []Value{v.start, v.stop, v.step}, depth)
	case *undefined:
		w.write("Undefined")
	case *namespace:
		if slices.Contains(w.inside, v) {
			w.write("<Namespace {...}>")
			return
		}
		w.inside = append(w.inside, v)
		w.write("<Namespace ")
		w.dict(v.attributes, depth)
		w.write(">")
		w.inside = w.inside[:len(w.inside)-1]
	case interface{ repr(in *interp) string }:
		w.write(v.repr(w.in))
	default:
		// Python prints an address here.
		w.write(fmt.Sprintf("<%s object>", v.TypeName()))
	}
}

func (w *reprWriter) items(open, end string, items []Value, depth nested) {
	depth = w.in.deeper(depth)
	w.write(open)
	for i, x := range items {
		if i > 0 {
			w.write(", ")
		}
		w.value(x, depth)
	}
	w.write(end)
}

func (w *reprWriter) dict(d *Dict, depth nested) {
	depth = w.in.deeper(depth)
	w.write("{")
	for i, k := range d.keys {
		if i > 0 {
			w.write(", ")
		}
		w.value(k, depth)
		w.write(": ")
		w.value(d.values[i], depth)
	}
	w.write("}")
}

// decimal writes an integer, which Python refuses beyond a number of digits.
func (in *interp) decimal(z *big.Int) string {
	in.step(z.BitLen())
	s := z.Text(10)
	if len(strings.TrimPrefix(s, "-")) > maxIntDigits {
		in.fail(ValueError, "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	return s
}

// quote is repr of a str.
func quote(s string) string {
	mark := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = '"'
	}
	b := make([]byte, 0, len(s)+2)
	b = append(b, mark)
	for _, c := range s {
		switch {
		case c == rune(mark) || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case isPrintable(c):
			b = utf8.AppendRune(b, c)
		case c < 0x100:
			b = fmt.Appendf(b, `\x%02x`, c)
		case c < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = fmt.Appendf(b, `\U%08x`, c)
		}
	}
	return string(append(b, mark))
}

// ascii is ascii(v): repr with everything outside ASCII escaped.
func (in *interp) ascii(v Value) string {
	s := in.repr(v)
	in.alloc(6 * len(s))
	var b []byte
	for _, c := range s {
		switch {
		case c < 0x80:
			b = append(b, byte(c))
		case c < 0x100:
			b = fmt.Appendf(b, `\x%02x`, c)
		case c < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = fmt.Appendf(b, `\U%08x`, c)
		}
	}
	return string(b)
}

// isPrintable is str.isprintable of one character: not a control, format, surrogate, private or unassigned
// character, nor a separator other than the space.
func isPrintable(c rune) bool { return unicode.IsPrint(c) }
