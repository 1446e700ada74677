package constrain

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
)

// encoder makes an expression of one character out of ranges.
type encoder func(ranges []rune) *expr

// parseRegex compiles a regular expression of RE2's syntax that the whole text has to match.
func parseRegex(text string) (*source, error) {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, &Error{Kind: Regex, Reason: err.Error()}
	}
	c := &regexCompiler{encode: runes, dot: anyButNewline}
	e, err := c.edges(re, true, true, nil)
	if err != nil {
		return nil, &Error{Kind: Regex, Reason: err.Error()}
	}
	s := &source{}
	s.add("the regular expression")
	s.bodies[0] = e
	return s, nil
}

var (
	anyRune       = []rune{0, unicode.MaxRune}
	anyButNewline = []rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}
)

// regexCompiler makes an expression of a parsed regular expression.
type regexCompiler struct {
	encode encoder
	dot    []rune // what . stands for
}

// edges compiles re where it touches the start or the end of the text. pad is what may stand around a match there, nil
// if nothing may.
func (c *regexCompiler) edges(re *syntax.Regexp, first, last bool, pad *expr) (*expr, error) {
	around := func(e *expr) *expr {
		if pad != nil && first {
			e = cat(pad, e)
		}
		if pad != nil && last {
			e = cat(e, pad)
		}
		return e
	}
	switch re.Op {
	case syntax.OpCapture:
		return c.edges(re.Sub[0], first, last, pad)
	case syntax.OpAlternate:
		var alts []*expr
		for _, sub := range re.Sub {
			e, err := c.edges(sub, first, last, pad)
			if err != nil {
				return nil, err
			}
			alts = append(alts, e)
		}
		return alt(alts...), nil
	case syntax.OpConcat, syntax.OpBeginText, syntax.OpEndText:
		return c.concat(re, first, last, pad)
	}
	e, err := c.plain(re)
	if err != nil {
		return nil, err
	}
	return around(e), nil
}

// concat compiles a row of parts; anchors may be at its ends.
func (c *regexCompiler) concat(re *syntax.Regexp, first, last bool, pad *expr) (*expr, error) {
	subs := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		subs = re.Sub
	}
	begin, end := false, false
	for first && len(subs) > 0 && subs[0].Op == syntax.OpBeginText {
		subs, begin = subs[1:], true
	}
	for last && len(subs) > 0 && subs[len(subs)-1].Op == syntax.OpEndText {
		subs, end = subs[:len(subs)-1], true
	}
	var parts []*expr
	if len(subs) == 0 {
		if pad != nil && (first && !begin || last && !end) {
			parts = append(parts, pad)
		}
		return cat(parts...), nil
	}
	for i, sub := range subs {
		f, l := first && !begin && i == 0, last && !end && i == len(subs)-1
		compile := func() (*expr, error) { return c.edges(sub, f, l, pad) }
		if sub.Op == syntax.OpBeginText || sub.Op == syntax.OpEndText {
			compile = func() (*expr, error) { return c.plain(sub) } // an anchor that is not at an end
		}
		e, err := compile()
		if err != nil {
			return nil, err
		}
		parts = append(parts, e)
	}
	return cat(parts...), nil
}

// plain compiles re inside of a text, where no anchor can hold.
func (c *regexCompiler) plain(re *syntax.Regexp) (*expr, error) {
	switch re.Op {
	case syntax.OpNoMatch:
		return none, nil
	case syntax.OpEmptyMatch:
		return empty, nil
	case syntax.OpLiteral:
		var parts []*expr
		for _, r := range re.Rune {
			parts = append(parts, c.encode(folded(r, re.Flags&syntax.FoldCase != 0)))
		}
		return cat(parts...), nil
	case syntax.OpCharClass:
		return c.encode(re.Rune), nil
	case syntax.OpAnyCharNotNL:
		return c.encode(c.dot), nil
	case syntax.OpAnyChar:
		return c.encode(anyRune), nil
	case syntax.OpCapture:
		return c.plain(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		e, err := c.plain(re.Sub[0])
		if err != nil {
			return nil, err
		}
		low, high := repetition(re)
		return repeat(e, low, high), nil
	case syntax.OpConcat, syntax.OpAlternate:
		var subs []*expr
		for _, sub := range re.Sub {
			e, err := c.plain(sub)
			if err != nil {
				return nil, err
			}
			subs = append(subs, e)
		}
		if re.Op == syntax.OpConcat {
			return cat(subs...), nil
		}
		return alt(subs...), nil
	case syntax.OpBeginText, syntax.OpEndText:
		return nil, fmt.Errorf("an anchor (^, $) is only supported at the ends of the expression")
	case syntax.OpBeginLine, syntax.OpEndLine:
		return nil, fmt.Errorf("anchors of lines ((?m)^, (?m)$) are not supported; write \\n")
	}
	return nil, fmt.Errorf("%s is not supported", re)
}

func repetition(re *syntax.Regexp) (low, high int32) {
	switch re.Op {
	case syntax.OpStar:
		return 0, unbounded
	case syntax.OpPlus:
		return 1, unbounded
	case syntax.OpQuest:
		return 0, 1
	}
	low, high = int32(re.Min), int32(re.Max)
	if re.Max < 0 {
		high = unbounded
	}
	return low, high
}

// folded returns r, and with fold the characters that differ from it in case only.
func folded(r rune, fold bool) []rune {
	out := []rune{r, r}
	for f := unicode.SimpleFold(r); fold && f != r; f = unicode.SimpleFold(f) {
		out = append(out, f, f)
	}
	return out
}

// ecmaDot are the characters that . matches in ECMA-262.
var ecmaDot = []rune{0, '\n' - 1, '\n' + 1, '\r' - 1, '\r' + 1, 0x2027, 0x202A, unicode.MaxRune}

// reading says what a pattern is taken to match where ECMA-262 and RE2 differ, in what is white space and an end of
// line.
type reading bool

const (
	narrow reading = false // what both match
	wide   reading = true  // what either matches
)

// parsePattern compiles a pattern of a JSON schema: the common part of ECMA-262 and RE2, not anchored.
func parsePattern(pattern string, how reading, encode encoder) (*expr, error) {
	text, err := ecmaToRE2(pattern, how)
	if err != nil {
		return nil, err
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("only the part of ECMA-262 is supported that RE2 has: %w", err)
	}
	c := &regexCompiler{encode: encode, dot: ecmaDot}
	if how == wide {
		c.dot = anyButNewline
	}
	return c.edges(re, true, true, star(encode(anyRune)))
}

// Characters whose escapes, after a backslash, mean the same in ECMA-262 and RE2. Escaped punctuation, which stands for
// itself, is not listed.
const (
	commonEscapes = "dDwWsStnrfvpPx"
	punctuation   = `^$\.*+?()[]{}|/-"'#&,:;<=>@_%!~` + "` "
)

// White space of RE2 and of ECMA-262, for use in a class.
const (
	fewSpaces = `\t\n\f\r `
	allSpaces = `\t\n\v\f\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
)

// spaces returns the white space of a dialect as a character class, for use inside of a class or outside.
func (r reading) spaces(inside bool) string {
	if bool(r) == inside {
		return allSpaces
	}
	return fewSpaces
}

// ecmaToRE2 checks that a pattern means the same to ECMA-262 and to RE2 and writes the former's escapes as the latter
// has them. What only one of them has, or both have with different meanings, is an error.
func ecmaToRE2(p string, how reading) (string, error) {
	var out strings.Builder
	inClass, negated := false, false
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch {
		case c == '\\':
			n, err := ecmaEscape(&out, p[i:], how, inClass, negated)
			if err != nil {
				return "", err
			}
			i += n - 1
			continue
		case inClass && c == '[':
			out.WriteString(`\[`)
			continue
		case inClass && c == ']':
			inClass = false
		case !inClass && c == '[':
			inClass, negated = true, strings.HasPrefix(p[i+1:], "^")
			if rest := p[i+1:]; strings.HasPrefix(rest, "]") || strings.HasPrefix(rest, "^]") {
				return "", fmt.Errorf("an empty class ([] or [^]) is not supported")
			}
		case !inClass && strings.HasPrefix(p[i:], "(?") && !strings.HasPrefix(p[i:], "(?:") && !isNamedGroup(p[i:]):
			return "", fmt.Errorf("the group %q... is not supported: no look-around and no flags",
				p[i:min(i+3, len(p))])
		case !inClass && c == '{' && !isCount(p[i:]):
			return "", fmt.Errorf("a brace that is no count has to be written \\{")
		}
		out.WriteByte(c)
	}
	return out.String(), nil
}

func isNamedGroup(s string) bool {
	return strings.HasPrefix(s, "(?<") && !strings.HasPrefix(s, "(?<=") && !strings.HasPrefix(s, "(?<!")
}

// isCount reports whether s begins with a count: {2}, {2,} or {2,3}.
func isCount(s string) bool {
	body, _, ok := strings.Cut(s[1:], "}")
	low, high, _ := strings.Cut(body, ",")
	digits := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
	return ok && low != "" && digits(low) && digits(high)
}

// ecmaEscape writes the escape that p begins with and gives its length in p.
func ecmaEscape(out *strings.Builder, p string, how reading, inClass, negated bool) (int, error) {
	if len(p) < 2 {
		return 0, fmt.Errorf("it ends with a backslash")
	}
	hex := func(digits int) (int, error) {
		if len(p) < 2+digits || strings.Trim(p[2:2+digits], "0123456789abcdefABCDEF") != "" {
			return 0, fmt.Errorf("the escape %q needs %d hexadecimal digits", p[:2], digits)
		}
		if digits == 4 && surrogate(p[2:6]) {
			return 0, fmt.Errorf("the escape %q of half a character is not supported; write the character", p[:6])
		}
		fmt.Fprintf(out, `\x{%s}`, p[2:2+digits])
		return 2 + digits, nil
	}
	switch c := p[1]; {
	case c == 'S' && inClass:
		return 0, fmt.Errorf("\\S in a class is not supported; list the characters")
	case c == 'S':
		out.WriteString("[^" + how.spaces(false) + "]")
	case c == 's' && inClass:
		out.WriteString(how.spaces(!negated))
	case c == 's':
		out.WriteString("[" + how.spaces(true) + "]")
	case c == 'u' && strings.HasPrefix(p, `\u{`):
		end := strings.IndexByte(p, '}')
		if end < 4 {
			return 0, fmt.Errorf("the escape \\u{ has no end")
		}
		out.WriteString(`\x` + p[2:end+1])
		return end + 1, nil
	case c == 'u':
		return hex(4)
	case c == 'x':
		return hex(2)
	case c == '0' && (len(p) == 2 || p[2] < '0' || p[2] > '9'):
		out.WriteString(`\x{0}`)
	case strings.IndexByte(commonEscapes, c) >= 0, strings.IndexByte(punctuation, c) >= 0:
		if c == '_' || c == ' ' {
			out.WriteByte(c)
		} else {
			out.WriteString(p[:2])
		}
	default:
		return 0, fmt.Errorf("the escape %q is not supported", p[:2])
	}
	return 2, nil
}

// surrogate reports whether four hexadecimal digits are half of a pair of UTF-16.
func surrogate(digits string) bool { return strings.EqualFold(digits[:1], "d") && digits[1] >= '8' }
