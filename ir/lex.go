package ir

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenName
	tokenNumber
	tokenString
	tokenPunct
)

type token struct {
	kind tokenKind
	line int32
	text string // for a string: the unquoted text
}

func (t token) String() string {
	if t.kind == tokenEnd {
		return "the end of the text"
	}
	return strconv.Quote(t.text)
}

// lex splits the text form into tokens. Names start with a letter or '_'; numbers with a digit.
func lex(text string) ([]token, error) {
	var out []token
	line := int32(1)
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(text[i:], "//"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '"':
			quoted, err := strconv.QuotedPrefix(text[i:])
			if err != nil {
				return nil, fmt.Errorf("line %d: a string that does not end or has a bad escape", line)
			}
			s, err := strconv.Unquote(quoted)
			if err != nil || strings.ContainsRune(quoted, '\n') {
				return nil, fmt.Errorf("line %d: bad string %s", line, quoted)
			}
			out = append(out, token{tokenString, line, s})
			i += len(quoted)
		case c >= '0' && c <= '9':
			j := i
			for j < len(text) && (isNameRune(rune(text[j])) ||
				(text[j] == '-' || text[j] == '+') && (text[j-1] == 'e' || text[j-1] == 'E')) {
				j++
			}
			out = append(out, token{tokenNumber, line, text[i:j]})
			i = j
		case isNameRune(rune(c)):
			j := i
			for j < len(text) && isNameRune(rune(text[j])) {
				j++
			}
			out = append(out, token{tokenName, line, text[i:j]})
			i = j
		case strings.IndexByte("{}()[]<>,:=@^%+-*", c) >= 0:
			out = append(out, token{tokenPunct, line, text[i : i+1]})
			i++
		default:
			r, _ := utf8.DecodeRuneInString(text[i:])
			return nil, fmt.Errorf("line %d: unexpected character %q", line, r)
		}
	}
	return append(out, token{kind: tokenEnd, line: line}), nil
}
