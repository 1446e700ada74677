package template

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tokenKind is the type of a token. Operators are tokens whose kind is their text.
type tokenKind string

const (
	tokenData     tokenKind = "data"
	tokenOpen     tokenKind = "{{"
	tokenClose    tokenKind = "}}"
	tokenOpenTag  tokenKind = "{%"
	tokenCloseTag tokenKind = "%}"
	tokenName     tokenKind = "name"
	tokenString   tokenKind = "string"
	tokenInteger  tokenKind = "integer"
	tokenFloat    tokenKind = "float"
	tokenEnd      tokenKind = "end of template"
)

type token struct {
	kind tokenKind
	// text is the text of data, a name or a string, with escapes replaced.
	text string
	// value is the value of a number.
	value Value
	line  int
}

// describe names a token in an error.
func (t token) describe() string {
	switch t.kind {
	case tokenName:
		return strconv.Quote(t.text)
	case tokenData:
		return "text"
	case tokenEnd, tokenString, tokenInteger, tokenFloat:
		return string(t.kind)
	}
	return strconv.Quote(string(t.kind))
}

// lexer splits a source into tokens as jinja2 does with trim_blocks and lstrip_blocks: the newline after a tag
// and the blanks between the start of a line and a tag vanish, '-' strips all white space on its side of a tag,
// '+' keeps it.
type lexer struct {
	source string
	at     int
	line   int
	tokens []token
	// lineStart says that what has been read so far ends with a newline, or that nothing has been read.
	lineStart bool
}

// failAt ends the parse with an error.
func failAt(line int, format string, args ...any) {
	panic(&Error{Line: line, Kind: SyntaxError, Message: fmt.Sprintf(format, args...)})
}

// tokenize returns the tokens of a source, the last of kind tokenEnd. Like jinja2 it makes all newlines "\n" and
// drops one at the end.
func tokenize(source string) []token {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	source = strings.TrimSuffix(source, "\n")
	l := &lexer{source: source, line: 1, lineStart: true}
	for l.at < len(source) {
		l.root()
	}
	return append(l.tokens, token{kind: tokenEnd, line: l.line})
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind: kind, text: text, line: l.line})
}

func (l *lexer) data(text string) {
	if text != "" {
		l.emit(tokenData, text)
	}
}

// take moves on by n bytes.
func (l *lexer) take(n int) {
	if n == 0 {
		return
	}
	l.line += strings.Count(l.source[l.at:l.at+n], "\n")
	l.at += n
	l.lineStart = l.source[l.at-1] == '\n'
}

// rest returns the source from where the lexer is.
func (l *lexer) rest() string { return l.source[l.at:] }

// root reads text up to the next tag, and the tag.
func (l *lexer) root() {
	rest := l.rest()
	open := -1
	for i := 0; i+1 < len(rest); i++ {
		j := strings.IndexByte(rest[i:], '{')
		if j < 0 || i+j+1 >= len(rest) {
			break
		}
		if i += j; strings.IndexByte("{%#", rest[i+1]) >= 0 {
			open = i
			break
		}
	}
	if open < 0 {
		l.data(rest)
		l.take(len(rest))
		return
	}
	kind, n := rest[open+1], 2
	sign := byte(0)
	if c := open + 2; c < len(rest) && (rest[c] == '-' || rest[c] == '+') {
		sign = rest[c]
		n++
	}
	raw := 0
	if kind == '%' {
		raw = rawBegin(rest[open+n:])
	}
	l.data(l.strip(rest[:open], sign, kind))
	l.take(open)
	switch {
	case raw > 0:
		l.take(n + raw)
		l.raw()
	case kind == '#':
		l.take(n)
		l.comment()
	case kind == '%':
		l.emit(tokenOpenTag, "")
		l.take(n)
		l.expression(tokenCloseTag)
	default:
		l.emit(tokenOpen, "")
		l.take(n)
		l.expression(tokenClose)
	}
}

// strip applies the sign of the tag that follows a text, or lstrip_blocks.
func (l *lexer) strip(text string, sign, kind byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == '+' || kind == '{' {
		return text
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if (start > 0 || l.lineStart) && strings.TrimRightFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

// rawBegin returns the length of what follows "{%" in "{% raw %}", or 0.
func rawBegin(s string) int {
	t := strings.TrimLeftFunc(s, isSpace)
	t, ok := strings.CutPrefix(t, "raw")
	if !ok {
		return 0
	}
	t = strings.TrimLeftFunc(t, isSpace)
	if u, ok := strings.CutPrefix(t, "-%}"); ok {
		return len(s) - len(strings.TrimLeftFunc(u, isSpace))
	}
	if u, ok := strings.CutPrefix(t, "%}"); ok {
		return len(s) - len(u)
	}
	return 0
}

// raw reads the text of a raw block up to its end.
func (l *lexer) raw() {
	rest := l.rest()
	for i := 0; ; i += 2 {
		j := strings.Index(rest[i:], "{%")
		if j < 0 {
			break
		}
		i += j
		after := rest[i+2:]
		sign := byte(0)
		if after != "" && (after[0] == '-' || after[0] == '+') {
			sign, after = after[0], after[1:]
		}
		after, ok := strings.CutPrefix(strings.TrimLeftFunc(after, isSpace), "endraw")
		if !ok {
			continue
		}
		n := tagEnd(strings.TrimLeftFunc(after, isSpace), '%')
		if n == 0 {
			continue
		}
		l.data(l.strip(rest[:i], sign, '%'))
		l.take(len(rest) - len(strings.TrimLeftFunc(after, isSpace)) + n)
		return
	}
	if rest != "" {
		failAt(l.line, "the raw block has no {%% endraw %%}")
	}
}

// tagEnd returns the length of the end of a tag at the start of s with the white space that it takes, or 0.
func tagEnd(s string, kind byte) int {
	end := string(kind) + "}"
	if u, ok := strings.CutPrefix(s, "-"+end); ok {
		return len(s) - len(strings.TrimLeftFunc(u, isSpace))
	}
	if kind != '}' {
		if strings.HasPrefix(s, "+"+end) {
			return 3
		}
		if strings.HasPrefix(s, end+"\n") {
			return 3
		}
	}
	if strings.HasPrefix(s, end) {
		return 2
	}
	return 0
}

// comment skips a comment.
func (l *lexer) comment() {
	rest := l.rest()
	i := strings.Index(rest, "#}")
	if i < 0 {
		if rest != "" {
			failAt(l.line, "the comment has no #}")
		}
		return
	}
	if i > 0 && (rest[i-1] == '-' || rest[i-1] == '+') {
		i--
	}
	l.take(i + tagEnd(rest[i:], '#'))
}

// expression reads the tokens of a tag up to its end.
func (l *lexer) expression(end tokenKind) {
	var open []byte // the brackets that are open, as their closing ones
	for l.at < len(l.source) {
		rest := l.rest()
		if len(open) == 0 {
			if n := tagEnd(rest, end[0]); n > 0 {
				l.emit(end, "")
				l.take(n)
				return
			}
		}
		if space := len(rest) - len(strings.TrimLeftFunc(rest, isSpace)); space > 0 {
			l.take(space)
			continue
		}
		if n := l.number(rest); n > 0 {
			l.take(n)
			continue
		}
		if n := nameLength(rest); n > 0 {
			if !isIdentifier(rest[:n]) {
				failAt(l.line, "%q is not a name", rest[:n])
			}
			l.emit(tokenName, rest[:n])
			l.take(n)
			continue
		}
		if n := stringLength(rest); n > 0 {
			l.emit(tokenString, l.unescape(rest[1:n-1]))
			l.take(n)
			continue
		}
		n := operatorLength(rest)
		if n == 0 {
			c, _ := utf8.DecodeRuneInString(rest)
			if c == '"' || c == '\'' {
				failAt(l.line, "the string that starts with %c does not end", c)
			}
			failAt(l.line, "unexpected character %q", c)
		}
		open = l.bracket(open, rest[0])
		l.emit(tokenKind(rest[:n]), "")
		l.take(n)
	}
}

// bracket keeps account of the open brackets.
func (l *lexer) bracket(open []byte, c byte) []byte {
	switch c {
	case '(':
		return append(open, ')')
	case '[':
		return append(open, ']')
	case '{':
		return append(open, '}')
	case ')', ']', '}':
		if len(open) == 0 {
			failAt(l.line, "%q closes nothing", c)
		}
		if want := open[len(open)-1]; want != c {
			failAt(l.line, "found %q where %q was expected", c, want)
		}
		return open[:len(open)-1]
	}
	return open
}

// operatorLength returns the length of the operator at the start of s, or 0.
func operatorLength(s string) int {
	if len(s) >= 2 {
		switch s[:2] {
		case "//", "**", "==", "!=", ">=", "<=":
			return 2
		}
	}
	if strings.IndexByte("+-/*%~[](){}><=.:|,;", s[0]) >= 0 {
		return 1
	}
	return 0
}

// nameLength returns the length of the word at the start of s, or 0.
func nameLength(s string) int {
	for i, c := range s {
		if !isWord(c) {
			return i
		}
	}
	return len(s)
}

// stringLength returns the length of the quoted string at the start of s, or 0.
func stringLength(s string) int {
	if s[0] != '\'' && s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return 0
}

// number emits the number at the start of s and gives its length, or 0 if there is none.
func (l *lexer) number(s string) int {
	if l.at == 0 || l.source[l.at-1] != '.' {
		if n := floatLength(s); n > 0 {
			f, err := strconv.ParseFloat(strings.ReplaceAll(s[:n], "_", ""), 64)
			if err != nil && f == 0 {
				failAt(l.line, "%s is not a number", s[:n])
			}
			l.tokens = append(l.tokens, token{kind: tokenFloat, value: Float(f), line: l.line})
			return n
		}
	}
	n, base := integerLength(s)
	if n == 0 {
		return 0
	}
	digits := strings.ReplaceAll(s[:n], "_", "")
	if base != 10 {
		digits = digits[2:]
	}
	if len(digits) > maxIntDigits {
		failAt(l.line, "an integer of %d digits is too long", len(digits))
	}
	z, ok := new(big.Int).SetString(digits, base)
	if !ok {
		failAt(l.line, "%s is not a number", s[:n])
	}
	l.tokens = append(l.tokens, token{kind: tokenInteger, value: makeInt(z), line: l.line})
	return n
}

// digitsLength returns the length of the decimal digits at the start of s, with single underscores between them.
func digitsLength(s string) int { return groupedLength(s, 0, 10) }

// groupedLength returns the length from start of digits below base with single underscores between them.
func groupedLength(s string, start, base int) int {
	n := start
	for i := start; i < len(s); i++ {
		if s[i] == '_' && i > start && s[i-1] != '_' {
			continue
		}
		if d := digitValue(s[i]); d < 0 || d >= base {
			break
		}
		n = i + 1
	}
	return n
}

func digitValue(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'Z':
		return int(c-'A') + 10
	}
	return -1
}

// floatLength returns the length of the float at the start of s, or 0: digits, then a fraction, an exponent or both.
func floatLength(s string) int {
	n := digitsLength(s)
	if n == 0 {
		return 0
	}
	end := 0
	if n < len(s) && s[n] == '.' {
		fraction := digitsLength(s[n+1:])
		if fraction == 0 {
			return 0
		}
		n += 1 + fraction
		end = n
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		e := n + 1
		if e < len(s) && (s[e] == '+' || s[e] == '-') {
			e++
		}
		if exponent := digitsLength(s[e:]); exponent > 0 {
			return e + exponent
		}
	}
	return end
}

// integerLength returns the length of the integer at the start of s, or 0, and its base.
func integerLength(s string) (n, base int) {
	if len(s) > 2 && s[0] == '0' {
		base := map[byte]int{'b': 2, 'B': 2, 'o': 8, 'O': 8, 'x': 16, 'X': 16}[s[1]]
		if base != 0 {
			start := 2
			if s[2] == '_' {
				start = 3
			}
			if n := groupedLength(s, start, base); n > start {
				return n, base
			}
		}
	}
	if s[0] == '0' {
		return groupedLength(s, 0, 1), 10
	}
	return digitsLength(s), 10
}
