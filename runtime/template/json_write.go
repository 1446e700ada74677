package template

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// filterToJSON is transformers' tojson: json.dumps, by default without ASCII escapes.
func filterToJSON(in *interp, v Value, a []Value) Value {
	w := &jsonWriter{output: output{in: in}, ascii: boolArg(a[0]), sortKeys: boolArg(a[3]), item: ", ", key: ": "}
	_, isString := asString(v) // for which Python looks at no separators
	if !absent(a[1]) {
		w.pretty, w.item = true, ","
		if s, ok := asString(a[1]); ok {
			w.indent = s
		} else if !isString {
			in.checkDefined(a[1])
			n, ok := in.clampedIndex(a[1])
			if !ok {
				in.fail(TypeError, "can't multiply sequence by non-int of type '%s'", a[1].TypeName())
			}
			w.indent = in.repeatString(" ", n)
		}
	}
	if !absent(a[2]) {
		pair := in.unpack(a[2], 2)
		if !isString {
			w.item, w.key = in.mustText("a separator", pair[0]), in.mustText("a separator", pair[1])
		}
	}
	w.value(v, 0)
	return Str(w.String())
}

// jsonWriter writes values as Python's json.dumps does.
type jsonWriter struct {
	output
	ascii, sortKeys bool
	// item and key are the separators after elements and keys.
	item, key string
	pretty    bool
	indent    string
}

func (w *jsonWriter) value(v Value, depth nested) {
	switch v := v.(type) {
	case None:
		w.write("null")
	case Bool:
		w.write(strings.ToLower(w.in.str(v)))
	case Int, *bigInt:
		w.write(w.in.str(v))
	case Float:
		w.write(jsonFloat(float64(v)))
	case Str:
		w.quoted(string(v))
	case markup:
		w.quoted(string(v))
	case *List:
		w.list(v.items, depth)
	case *tuple:
		w.list(v.items, depth)
	case *Dict:
		w.dict(v, depth)
	default:
		w.in.fail(TypeError, "Object of type %s is not JSON serializable", v.TypeName())
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

// newline starts a line of a pretty print.
func (w *jsonWriter) newline(depth nested) {
	if w.pretty {
		w.write("\n")
		w.write(w.in.repeatString(w.indent, int(depth)))
	}
}

func (w *jsonWriter) list(items []Value, depth nested) {
	inner := w.in.deeper(depth)
	if len(items) == 0 {
		w.write("[]")
		return
	}
	w.write("[")
	for i, x := range items {
		if i > 0 {
			w.write(w.item)
		}
		w.newline(inner)
		w.value(x, inner)
	}
	w.newline(depth)
	w.write("]")
}

func (w *jsonWriter) dict(d *Dict, depth nested) {
	inner := w.in.deeper(depth)
	if d.Len() == 0 {
		w.write("{}")
		return
	}
	pairs := w.in.collect(&view{d, viewItems})
	if w.sortKeys {
		pairs = w.in.sortBy(pairs, func(v Value) Value { return v.(*tuple).items[0] }, false)
	}
	w.write("{")
	for i, p := range pairs {
		if i > 0 {
			w.write(w.item)
		}
		w.newline(inner)
		pair := p.(*tuple).items
		w.dictKey(pair[0])
		w.write(w.key)
		w.value(pair[1], inner)
	}
	w.newline(depth)
	w.write("}")
}

// dictKey writes a key, which JSON wants as a string.
func (w *jsonWriter) dictKey(k Value) {
	switch k := k.(type) {
	case Str, markup:
		w.value(k, 0)
	case None, Bool, Int, *bigInt, Float:
		w.write(`"`)
		w.value(k, 0)
		w.write(`"`)
	default:
		w.in.fail(TypeError, "keys must be str, int, float, bool or None, not %s", k.TypeName())
	}
}

func (w *jsonWriter) quoted(s string) {
	w.write(`"`)
	plain := 0 // where what needs no escape starts
	for i, c := range s {
		escape := jsonEscapes[c]
		switch {
		case escape != "":
		case c < 0x20 || w.ascii && c >= 0x7f && c < 0x10000:
			escape = fmt.Sprintf(`\u%04x`, c)
		case w.ascii && c >= 0x10000:
			high, low := utf16.EncodeRune(c)
			escape = fmt.Sprintf(`\u%04x\u%04x`, high, low)
		default:
			continue
		}
		w.write(s[plain:i])
		w.write(escape)
		plain = i + utf8.RuneLen(c)
	}
	w.write(s[plain:])
	w.write(`"`)
}

var jsonEscapes = map[rune]string{
	'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\f': `\f`, '\b': `\b`,
}
