package template

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ParseJSON parses a JSON text as Python's json module does: objects keep the order of their keys (of equal keys
// the last one counts), integers of any size stay integers, and NaN, Infinity and -Infinity are floats. Lone
// surrogates become U+FFFD. An error gives line and column.
func ParseJSON(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("JSON: the text is not UTF-8")
	}
	p := &jsonParser{text: string(data)}
	v, err := p.document()
	if err != nil {
		before := p.text[:p.at]
		line := strings.Count(before, "\n") + 1
		column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
		return nil, fmt.Errorf("JSON line %d column %d: %w", line, column, err)
	}
	return v, nil
}

type jsonParser struct {
	text string
	at   int
}

func (p *jsonParser) document() (Value, error) {
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.at < len(p.text) {
		return nil, errors.New("there is more after the value")
	}
	return v, nil
}

func (p *jsonParser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.at]) >= 0 {
		p.at++
	}
}

// next skips white space and gives the next byte, 0 at the end.
func (p *jsonParser) next() byte {
	p.space()
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

var jsonNames = []struct {
	name  string
	value Value
}{
	{"null", None{}}, {"true", Bool(true)}, {"false", Bool(false)},
	{"NaN", Float(math.NaN())}, {"Infinity", Float(math.Inf(1))}, {"-Infinity", Float(math.Inf(-1))},
}

func (p *jsonParser) value(depth int) (Value, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("values are nested more than %d deep", maxNesting)
	}
	c := p.next()
	switch c {
	case '{':
		return p.object(depth + 1)
	case '[':
		return p.array(depth + 1)
	case '"':
		s, err := p.string()
		return Str(s), err
	}
	for _, n := range jsonNames {
		if strings.HasPrefix(p.text[p.at:], n.name) {
			p.at += len(n.name)
			return n.value, nil
		}
	}
	return p.number()
}

func (p *jsonParser) object(depth int) (Value, error) {
	d := &Dict{}
	p.at++
	if p.next() == '}' {
		p.at++
		return d, nil
	}
	for {
		if p.next() != '"' {
			return nil, errors.New("expected a key in double quotes")
		}
		key, err := p.string()
		if err != nil {
			return nil, err
		}
		if p.next() != ':' {
			return nil, errors.New("expected ':' after a key")
		}
		p.at++
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		d.Set(key, v)
		switch p.next() {
		case ',':
			p.at++
		case '}':
			p.at++
			return d, nil
		default:
			return nil, errors.New("expected ',' or '}' after a value")
		}
	}
}

func (p *jsonParser) array(depth int) (Value, error) {
	l := &List{}
	p.at++
	if p.next() == ']' {
		p.at++
		return l, nil
	}
	for {
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, v)
		switch p.next() {
		case ',':
			p.at++
		case ']':
			p.at++
			return l, nil
		default:
			return nil, errors.New("expected ',' or ']' after a value")
		}
	}
}

// string parses a string; the parser is at its opening quote.
func (p *jsonParser) string() (string, error) {
	p.at++
	var b strings.Builder
	for {
		start := p.at
		for p.at < len(p.text) && p.text[p.at] != '"' && p.text[p.at] != '\\' && p.text[p.at] >= 0x20 {
			p.at++
		}
		b.WriteString(p.text[start:p.at])
		switch {
		case p.at == len(p.text):
			return "", errors.New("the string does not end")
		case p.text[p.at] == '"':
			p.at++
			return b.String(), nil
		case p.text[p.at] != '\\':
			return "", errors.New("a control character in a string; write it as an escape")
		}
		c, err := p.escape()
		if err != nil {
			return "", err
		}
		b.WriteRune(c)
	}
}

// escape parses an escape; the parser is at its backslash.
func (p *jsonParser) escape() (rune, error) {
	if p.at+1 == len(p.text) {
		return 0, errors.New("the string does not end")
	}
	c := p.text[p.at+1]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		p.at += 2
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	if c != 'u' {
		return 0, fmt.Errorf("unknown escape \\%c", c)
	}
	high, err := p.unit()
	if err != nil {
		return 0, err
	}
	if utf16.IsSurrogate(high) && strings.HasPrefix(p.text[p.at:], `\u`) {
		at := p.at
		low, err := p.unit()
		if err != nil {
			return 0, err
		}
		if c := utf16.DecodeRune(high, low); c != utf8.RuneError {
			return c, nil
		}
		p.at = at
	}
	if utf16.IsSurrogate(high) {
		return utf8.RuneError, nil
	}
	return high, nil
}

// unit parses \uXXXX.
func (p *jsonParser) unit() (rune, error) {
	if p.at+6 > len(p.text) {
		return 0, errors.New("\\u wants four hexadecimal digits")
	}
	n, err := strconv.ParseUint(p.text[p.at+2:p.at+6], 16, 16)
	if err != nil || strings.ContainsAny(p.text[p.at+2:p.at+6], "+-_") {
		return 0, errors.New("\\u wants four hexadecimal digits")
	}
	p.at += 6
	return rune(n), nil
}

func (p *jsonParser) number() (Value, error) {
	rest := p.text[p.at:]
	n := 0
	digits := func() int {
		start := n
		for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
			n++
		}
		return n - start
	}
	if strings.HasPrefix(rest, "-") {
		n++
	}
	if strings.HasPrefix(rest[n:], "0") {
		n++
	} else if digits() == 0 {
		return nil, errors.New("expected a value")
	}
	whole := n
	if n < len(rest) && rest[n] == '.' {
		n++
		if digits() == 0 {
			n = whole
		}
	}
	if mantissa := n; n < len(rest) && rest[n]|0x20 == 'e' {
		n++
		if n < len(rest) && (rest[n] == '+' || rest[n] == '-') {
			n++
		}
		if digits() == 0 {
			n = mantissa
		}
	}
	if n > whole {
		p.at += n
		f, _ := strconv.ParseFloat(rest[:n], 64) // out of range is an infinity
		return Float(f), nil
	}
	if whole > maxIntDigits {
		return nil, fmt.Errorf("an integer of %d digits is too long", whole)
	}
	p.at += n
	z, _ := new(big.Int).SetString(rest[:n], 10)
	return makeInt(z), nil
}
