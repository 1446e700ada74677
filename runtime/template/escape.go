package template

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// unescape replaces the escapes of a string literal. As in jinja2 characters outside ASCII are first escaped
// themselves, so that a backslash before one of them escapes that escape's backslash.
func (l *lexer) unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for s != "" {
		if s[0] != '\\' {
			n := strings.IndexByte(s, '\\')
			if n < 0 {
				n = len(s)
			}
			b.WriteString(s[:n])
			s = s[n:]
			continue
		}
		c, n := utf8.DecodeRuneInString(s[1:])
		s = s[1+n:]
		if simple, ok := simpleEscapes[c]; ok {
			b.WriteString(simple)
			continue
		}
		switch {
		case c == 'x':
			s = l.hexEscape(&b, s, 2)
		case c == 'u':
			s = l.hexEscape(&b, s, 4)
		case c == 'U':
			s = l.hexEscape(&b, s, 8)
		case c == 'N':
			failAt(l.line, `the escape \N{…} is not supported; write the character itself`)
		case '0' <= c && c <= '7':
			digits := 0
			for digits < 2 && digits < len(s) && '0' <= s[digits] && s[digits] <= '7' {
				digits++
			}
			code, _ := strconv.ParseUint(string(c)+s[:digits], 8, 32)
			b.WriteRune(rune(code))
			s = s[digits:]
		case c >= 0x80:
			escaped := strconv.FormatUint(uint64(c), 16)
			switch {
			case c < 0x100:
				b.WriteString(`\x` + escaped)
			case c < 0x10000:
				b.WriteString(`\u` + strings.Repeat("0", 4-len(escaped)) + escaped)
			default:
				b.WriteString(`\U` + strings.Repeat("0", 8-len(escaped)) + escaped)
			}
		default:
			b.WriteByte('\\')
			b.WriteRune(c)
		}
	}
	return b.String()
}

var simpleEscapes = map[rune]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n",
	'r': "\r", 't': "\t", 'v': "\v",
}

// hexEscape writes the character that n hexadecimal digits name and gives what follows them.
func (l *lexer) hexEscape(b *strings.Builder, s string, n int) string {
	if len(s) < n {
		failAt(l.line, "an escape in a string has fewer than %d hexadecimal digits", n)
	}
	code, err := strconv.ParseUint(s[:n], 16, 32)
	if err != nil || strings.ContainsAny(s[:n], "_+-") {
		failAt(l.line, "an escape in a string has fewer than %d hexadecimal digits", n)
	}
	if !utf8.ValidRune(rune(code)) || code > utf8.MaxRune {
		failAt(l.line, "the escape %s in a string is no Unicode character", s[:n])
	}
	b.WriteRune(rune(code))
	return s[n:]
}
