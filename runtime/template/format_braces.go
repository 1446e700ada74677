package template

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// braceFormat formats a string by str.format: the sandbox's formatter, so that fields look up attributes and
// items as templates do.
type braceFormat struct {
	in     *interp
	escape bool // the string is a Markup
	args   []Value
	named  Value // a mapping; anything where no field has a name
	// auto is the number of the next field without one; manual says that fields have numbers.
	auto   int
	manual bool
}

func formatMethod(in *interp, self Value, args callArgs) Value {
	named := &Dict{}
	for i, name := range args.names {
		in.insert(named, Str(name), args.named[i])
	}
	return in.formatBraces(self, args.positional, named)
}

func formatMap(in *interp, self Value, a []Value) Value {
	return in.formatBraces(self, nil, a[0])
}

func (in *interp) formatBraces(self Value, args []Value, named Value) Value {
	b := &braceFormat{in: in, args: args, named: named}
	_, b.escape = self.(markup)
	s, _ := asString(self)
	return like(self, b.format(s, 2))
}

// format replaces the fields of a format; depth is how many levels of fields may be in each other.
func (b *braceFormat) format(s string, depth int) string {
	in := b.in
	if depth < 0 {
		in.fail(ValueError, "Max string recursion exceeded")
	}
	out := output{in: in}
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			out.write(s)
			break
		}
		out.write(s[:i])
		c := s[i]
		s = s[i+1:]
		if s != "" && s[0] == c {
			out.write(s[:1])
			s = s[1:]
			continue
		}
		if c == '}' {
			in.fail(ValueError, "Single '}' encountered in format string")
		}
		if s == "" {
			in.fail(ValueError, "Single '{' encountered in format string")
		}
		end := fieldEnd(s)
		if end < 0 {
			in.fail(ValueError, "expected '}' before end of string")
		}
		out.write(b.field(s[:end], depth))
		s = s[end+1:]
	}
	return out.String()
}

// fieldEnd is where the brace is that closes the field at the start of s, or -1. Braces count in pairs, but not
// in the brackets of an index.
func fieldEnd(s string) int {
	depth, bracket, spec := 1, false, false
	for i := range len(s) {
		switch c := s[i]; {
		case bracket:
			bracket = c != ']'
		case c == '[' && !spec:
			bracket = true
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i
			}
		case c == ':' || c == '!':
			spec = true
		}
	}
	return -1
}

// field formats one field: name, conversion and specification.
func (b *braceFormat) field(s string, depth int) string {
	in := b.in
	name, conversion, spec := s, "", ""
	bracket := false
	for i := range len(s) {
		c := s[i]
		if bracket {
			bracket = c != ']'
			continue
		}
		if c == '[' {
			bracket = true
		}
		if c == '{' {
			in.fail(ValueError, "unexpected '{' in field name")
		}
		if c != ':' && c != '!' {
			continue
		}
		name = s[:i]
		if c == ':' {
			spec = s[i+1:]
			break
		}
		_, n := utf8.DecodeRuneInString(s[i+1:])
		conversion = s[i+1 : i+1+n]
		rest := s[i+1+n:]
		if n == 0 {
			in.fail(ValueError, "end of string while looking for conversion specifier")
		}
		if rest != "" && rest[0] != ':' {
			in.fail(ValueError, "expected ':' after conversion specifier")
		}
		spec = strings.TrimPrefix(rest, ":")
		break
	}
	v := b.value(b.number(name))
	switch conversion {
	case "":
	case "s":
		v = Str(in.str(v))
	case "r":
		v = Str(in.repr(v))
	case "a":
		v = Str(in.ascii(v))
	default:
		in.fail(ValueError, "Unknown conversion specifier %s", conversion)
	}
	spec = b.format(spec, depth-1)
	if !b.escape {
		return in.format(v, spec)
	}
	if m, ok := v.(markup); ok {
		if spec != "" {
			in.fail(ValueError, "Unsupported format specification for Markup.")
		}
		return string(m)
	}
	return in.escape(in.format(v, spec))
}

// number gives a field that starts with no name its number.
func (b *braceFormat) number(name string) string {
	switch {
	case name == "":
		if b.manual {
			b.in.fail(ValueError, "cannot switch from manual field specification to automatic field numbering")
		}
		b.auto++
		return strconv.Itoa(b.auto - 1)
	case strings.IndexFunc(name, func(c rune) bool { return !isDigit(c) }) < 0:
		if b.auto > 0 {
			b.in.fail(ValueError, "cannot switch from manual field specification to automatic field numbering")
		}
		b.manual = true
	}
	return name
}

// value looks up a field: a number or a name, then attributes and items.
func (b *braceFormat) value(path string) Value {
	in := b.in
	first := len(path)
	if i := strings.IndexAny(path, ".["); i >= 0 {
		first = i
	}
	v := b.first(path[:first])
	for path = path[first:]; path != ""; {
		if path[0] == '.' {
			end := len(path)
			if i := strings.IndexAny(path[1:], ".["); i >= 0 {
				end = i + 1
			}
			if end == 1 {
				in.fail(ValueError, "Empty attribute in format string")
			}
			v = in.getAttribute(v, path[1:end])
			path = path[end:]
			continue
		}
		end := strings.IndexByte(path, ']')
		if path[0] != '[' {
			in.fail(ValueError, "Only '.' or '[' may follow ']' in format field specifier")
		}
		if end < 0 {
			in.fail(ValueError, "Missing ']' in format string")
		}
		if end == 1 {
			in.fail(ValueError, "Empty attribute in format string")
		}
		v = in.getItem(v, b.key(path[1:end]))
		path = path[end+1:]
	}
	return v
}

// key is an integer or a string.
func (b *braceFormat) key(s string) Value {
	if strings.IndexFunc(s, func(c rune) bool { return c < '0' || c > '9' }) >= 0 || s == "" {
		return Str(s)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		b.in.fail(ValueError, "Too many decimal digits in format string")
	}
	return Int(n)
}

func (b *braceFormat) first(s string) Value {
	switch k := b.key(s).(type) {
	case Int:
		if int(k) >= len(b.args) {
			b.in.fail(IndexError, "Replacement index %d out of range for positional args tuple", int(k))
		}
		return b.args[k]
	}
	d, ok := b.named.(*Dict)
	if !ok {
		b.in.checkDefined(b.named)
		b.in.fail(TypeError, "'%s' object is not a mapping", b.named.TypeName())
	}
	v, ok := d.Get(s)
	if !ok {
		b.in.fail(KeyError, "%s", quote(s))
	}
	return v
}
