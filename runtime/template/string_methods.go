package template

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// stringMethods are the methods of str; markupMethods those that Markup has besides or does otherwise.
var stringMethods, markupMethods map[string]*builtin

// The methods by name, with their parameters. It is long because it is a table.
func init() {
	mapping := func(f func(in *interp, s string) string) *builtin {
		return define("/", func(in *interp, self Value, _ []Value) Value {
			s, _ := asString(self)
			return like(self, f(in, s))
		})
	}
	predicate := func(f func(s string) bool) *builtin {
		return define("/", func(in *interp, self Value, _ []Value) Value {
			s, _ := asString(self)
			in.look(len(s))
			return Bool(f(s))
		})
	}
	every := func(f func(c rune) bool) *builtin {
		return predicate(func(s string) bool {
			return s != "" && strings.IndexFunc(s, func(c rune) bool { return !f(c) }) < 0
		})
	}
	refused := func(what string) *builtin {
		return variadic(func(in *interp, _ Value, _ callArgs) Value {
			in.fail(NotSupported, "%s", what)
			return nil
		})
	}
	stringMethods = map[string]*builtin{
		"capitalize": mapping((*interp).capitalize),
		"casefold":   mapping((*interp).caseFold),
		"center": define("/ width fill?",
			pad(func(missing, width int) int { return missing/2 + missing&width&1 })),
		"count":        define("/ sub start? end?", stringCount),
		"encode":       refused("str.encode gives bytes, which are not supported"),
		"endswith":     define("/ suffix start? end?", affix("endswith", strings.HasSuffix)),
		"expandtabs":   define("tabsize?", expandTabs),
		"find":         define("/ sub start? end?", find(false, false)),
		"format":       variadic(formatMethod),
		"format_map":   define("/ mapping", formatMap),
		"index":        define("/ sub start? end?", find(false, true)),
		"isalnum":      every(isAlnum),
		"isalpha":      every(unicode.IsLetter),
		"isascii":      predicate(isASCII),
		"isdecimal":    every(unicode.IsDigit),
		"isdigit":      every(isDigit),
		"isidentifier": predicate(isIdentifier),
		"islower":      predicate(isLowerString),
		"isnumeric":    every(isNumeric),
		"isprintable": predicate(func(s string) bool {
			return strings.IndexFunc(s,
				func(c rune) bool { return !isPrintable(c) }) < 0
		}),
		"isspace":      every(isSpace),
		"istitle":      predicate(isTitleString),
		"isupper":      predicate(isUpperString),
		"join":         define("/ iterable", joinMethod),
		"ljust":        define("/ width fill?", pad(func(int, int) int { return 0 })),
		"lower":        mapping((*interp).lower),
		"lstrip":       define("/ chars?", strip(true, false)),
		"maketrans":    define("/ x y? z?", makeTranslation),
		"partition":    define("/ sep", partition(false)),
		"removeprefix": define("/ prefix", removeAffix(strings.TrimPrefix)),
		"removesuffix": define("/ suffix", removeAffix(strings.TrimSuffix)),
		"replace":      define("/ old new count?", replaceMethod),
		"rfind":        define("/ sub start? end?", find(true, false)),
		"rindex":       define("/ sub start? end?", find(true, true)),
		"rjust":        define("/ width fill?", pad(func(missing, _ int) int { return missing })),
		"rpartition":   define("/ sep", partition(true)),
		"rsplit":       define("sep? maxsplit?", split(true)),
		"rstrip":       define("/ chars?", strip(false, true)),
		"split":        define("sep? maxsplit?", split(false)),
		"splitlines":   define("keepends?", splitLinesMethod),
		"startswith":   define("/ prefix start? end?", affix("startswith", strings.HasPrefix)),
		"strip":        define("/ chars?", strip(true, true)),
		"swapcase":     mapping((*interp).swapCase),
		"title":        mapping((*interp).title),
		"translate":    define("/ table", translate),
		"upper":        mapping((*interp).upper),
		"zfill":        define("/ width", zeroFill),
	}
	markupMethods = map[string]*builtin{
		"striptags": define("", func(in *interp, self Value, _ []Value) Value {
			s, _ := asString(self)
			return Str(in.stripTags(s))
		}),
		"unescape": define("", func(in *interp, self Value, _ []Value) Value {
			s, _ := asString(self)
			return Str(in.unescapeHTML(s))
		}),
		"escape": define("/ s", func(in *interp, _ Value, a []Value) Value { return in.escapeValue(a[0]) }),
	}
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// pad is str.center, ljust and rjust: before gives how many of the missing characters come first.
func pad(before func(missing, width int) int) func(in *interp, self Value, a []Value) Value {
	return func(in *interp, self Value, a []Value) Value {
		s, _ := asString(self)
		width := in.intArg(a[0], 0)
		fill := in.textArg("the fill character", a[1], " ")
		if _, ok := self.(markup); ok {
			fill = in.escape(fill)
		}
		if utf8.RuneCountInString(fill) != 1 {
			in.fail(TypeError, "The fill character must be exactly one character long")
		}
		missing := width - in.runes(s)
		if missing <= 0 {
			return like(self, s)
		}
		n := before(missing, width)
		return like(self, in.concat(in.repeatString(fill, n), s, in.repeatString(fill, missing-n)))
	}
}

func zeroFill(in *interp, self Value, a []Value) Value {
	s, _ := asString(self)
	zeros := in.repeatString("0", in.intArg(a[0], 0)-in.runes(s))
	if s != "" && (s[0] == '+' || s[0] == '-') {
		return like(self, in.concat(s[:1], zeros, s[1:]))
	}
	return like(self, in.concat(zeros, s))
}

func expandTabs(in *interp, self Value, a []Value) Value {
	s, _ := asString(self)
	size := in.intArg(a[0], 8)
	out := output{in: in}
	column := 0
	for _, c := range s {
		switch c {
		case '\t':
			if size > 0 {
				n := size - column%size
				out.write(in.repeatString(" ", n))
				column += n
			}
		case '\n', '\r':
			column = 0
			out.write(string(c))
		default:
			column++
			out.write(string(c))
		}
	}
	return like(self, out.String())
}

func joinMethod(in *interp, self Value, a []Value) Value {
	separator, _ := asString(self)
	_, escapes := self.(markup)
	next := in.tryIterate(a[0])
	if next == nil {
		in.fail(TypeError, "can only join an iterable")
	}
	var parts []string
	size := 0
	for {
		v, ok := next()
		if !ok {
			break
		}
		if escapes {
			v = in.escapeValue(v)
		}
		s, ok := asString(v)
		if !ok {
			in.fail(TypeError, "sequence item %d: expected str instance, %s found", len(parts), v.TypeName())
		}
		in.alloc(16)
		size += len(s) + len(separator)
		parts = append(parts, s)
	}
	in.allocString(size)
	return like(self, strings.Join(parts, separator))
}

func removeAffix(trim func(s, affix string) string) func(in *interp, self Value, a []Value) Value {
	return func(in *interp, self Value, a []Value) Value {
		s, _ := asString(self)
		return like(self, trim(s, in.mustText("the affix", a[0])))
	}
}

func replaceMethod(in *interp, self Value, a []Value) Value {
	s, _ := asString(self)
	old, with := in.mustText("the text to replace", a[0]), in.mustText("the replacement", a[1])
	if _, ok := self.(markup); ok {
		with = in.escapeText(a[1])
	}
	return like(self, in.replace(s, old, with, in.intArg(a[2], -1)))
}

// replace is str.replace; a negative count replaces all.
func (in *interp) replace(s, old, with string, count int) string {
	in.look(len(s))
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	if n == 0 {
		return s
	}
	if len(with) > 0 && n > math.MaxInt32 {
		in.fail(LimitError, "replacing %d times makes too long a string", n)
	}
	in.allocString(len(s) + n*(len(with)-len(old)))
	return strings.Replace(s, old, with, n)
}

func splitLinesMethod(in *interp, self Value, a []Value) Value {
	s, _ := asString(self)
	in.look(len(s))
	return in.strings(self, splitLines(s, in.flagArg(a[0])))
}

// makeTranslation is str.maketrans: a table for translate.
func makeTranslation(in *interp, _ Value, a []Value) Value {
	table := &Dict{}
	if a[1] == nil {
		d, ok := a[0].(*Dict)
		if !ok {
			in.fail(TypeError, "if you give only one argument to maketrans it must be a dict")
		}
		for i, k := range d.keys {
			if s, ok := asString(k); ok {
				c, n := utf8.DecodeRuneInString(s)
				if n == 0 || n != len(s) {
					in.fail(ValueError, "string keys in translate table must be of length 1")
				}
				k = Int(c)
			} else if !isInt(k) {
				in.fail(TypeError, "keys in translate table must be strings or integers")
			}
			in.insert(table, k, d.values[i])
		}
		return table
	}
	from, to := []rune(in.mustText("the first maketrans argument", a[0])),
		[]rune(in.mustText("the second maketrans argument", a[1]))
	if len(from) != len(to) {
		in.fail(ValueError, "the first two maketrans arguments must have equal length")
	}
	for i, c := range from {
		in.insert(table, Int(c), Int(to[i]))
	}
	if a[2] != nil {
		for _, c := range in.mustText("the third maketrans argument", a[2]) {
			in.insert(table, Int(c), None{})
		}
	}
	return table
}

// translate is str.translate: the table maps code points to code points, strings or None.
func translate(in *interp, self Value, a []Value) Value {
	s, _ := asString(self)
	out := output{in: in}
	for _, c := range s {
		in.step(1)
		v, ok := in.item(a[0], Int(c))
		if !ok {
			out.write(string(c))
			continue
		}
		switch v := v.(type) {
		case None:
		case Str, markup:
			text, _ := asString(v)
			out.write(text)
		case *bigInt:
			in.fail(ValueError, "character mapping must be in range(0x110000)")
		case Int:
			if v < 0 || v > unicode.MaxRune || !utf8.ValidRune(rune(v)) {
				in.fail(ValueError, "character mapping must be in range(0x110000)")
			}
			out.write(string(rune(v)))
		default:
			in.fail(TypeError, "character mapping must return integer, None or str")
		}
	}
	return like(self, out.String())
}
