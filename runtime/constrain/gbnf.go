package constrain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNesting bounds the depth of groups of a grammar and of values of a schema.
const maxNesting = 200

// gbnfParser reads a grammar in llama.cpp's notation.
type gbnfParser struct {
	text  string
	at    int
	rules source
	ids   map[string]int32
	where map[string]int // where a rule was first named
	is    map[string]bool
}

// parseGBNF compiles a grammar in llama.cpp's notation.
func parseGBNF(text string) (*source, error) {
	if !utf8.ValidString(text) {
		return nil, &Error{Kind: GBNF, Reason: "it is not UTF-8"}
	}
	p := &gbnfParser{text: text, ids: map[string]int32{}, where: map[string]int{}, is: map[string]bool{}}
	p.rule("root")
	p.space(true)
	for p.at < len(p.text) {
		if err := p.definition(); err != nil {
			return nil, err
		}
	}
	for _, name := range p.rules.names {
		if !p.is[name] && name == "root" {
			return nil, &Error{Kind: GBNF, Reason: "there is no rule root; it is the whole text"}
		}
		if !p.is[name] {
			p.at = p.where[name]
			return nil, p.fail("there is no rule %q", name)
		}
	}
	return &p.rules, nil
}

// fail makes an error at the current place.
func (p *gbnfParser) fail(format string, args ...any) error {
	before := p.text[:p.at]
	line := strings.Count(before, "\n")
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return &Error{
		Kind: GBNF, Path: fmt.Sprintf("line %d, column %d", line+1, column+1), Reason: fmt.Sprintf(format, args...),
	}
}

// rule returns the number of a rule.
func (p *gbnfParser) rule(name string) int32 {
	id, ok := p.ids[name]
	if !ok {
		id = p.rules.add(name)
		p.ids[name] = id
		p.where[name] = p.at
	}
	return id
}

// space skips blanks and comments, and with lines also ends of lines.
func (p *gbnfParser) space(lines bool) {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '#':
			for p.at < len(p.text) && p.text[p.at] != '\n' && p.text[p.at] != '\r' {
				p.at++
			}
		case c == ' ' || c == '\t' || lines && (c == '\n' || c == '\r'):
			p.at++
		default:
			return
		}
	}
}

// take skips s if it is next.
func (p *gbnfParser) take(s string) bool {
	if strings.HasPrefix(p.text[p.at:], s) {
		p.at += len(s)
		return true
	}
	return false
}

func (p *gbnfParser) name() string {
	start := p.at
	for p.at < len(p.text) {
		c := p.text[p.at]
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			break
		}
		p.at++
	}
	return p.text[start:p.at]
}

// definition reads a rule.
func (p *gbnfParser) definition() error {
	start := p.at
	name := p.name()
	if name == "" {
		return p.fail("expected the name of a rule, found %s", p.found())
	}
	if p.is[name] {
		p.at = start
		return p.fail("rule %q is defined twice", name)
	}
	id := p.rule(name)
	p.is[name] = true
	p.space(false)
	if !p.take("::=") {
		return p.fail("expected ::= after the name %s, found %s", name, p.found())
	}
	p.space(true)
	e, err := p.alternatives(0)
	if err != nil {
		return err
	}
	p.rules.bodies[id] = e
	if p.at < len(p.text) && p.text[p.at] != '\n' && p.text[p.at] != '\r' {
		return p.fail("expected the end of the line, found %s", p.found())
	}
	p.space(true)
	return nil
}

// found describes the next character for an error message.
func (p *gbnfParser) found() string {
	if p.at >= len(p.text) {
		return "the end"
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return strconv.QuoteRune(r)
}

// alternatives reads rows with | between them. Inside of a group, ends of lines are blanks.
func (p *gbnfParser) alternatives(depth int) (*expr, error) {
	if depth > maxNesting {
		return nil, p.fail("groups are nested more than %d deep", maxNesting)
	}
	var alts []*expr
	for {
		e, err := p.row(depth)
		if err != nil {
			return nil, err
		}
		alts = append(alts, e)
		if !p.take("|") {
			return alt(alts...), nil
		}
		p.space(true)
	}
}

// row reads parts that follow one another.
func (p *gbnfParser) row(depth int) (*expr, error) {
	var parts []*expr
	for p.at < len(p.text) {
		e, err := p.part(depth)
		if err != nil {
			return nil, err
		}
		if e == nil {
			break
		}
		p.space(depth > 0)
		for {
			times, err := p.repeated(e)
			if err != nil {
				return nil, err
			}
			if times == nil {
				break
			}
			e = times
			p.space(depth > 0)
		}
		parts = append(parts, e)
	}
	return cat(parts...), nil
}

// part reads a literal, a class, a group or the name of a rule; nil if none is next.
func (p *gbnfParser) part(depth int) (*expr, error) {
	switch c := p.text[p.at]; c {
	case '"':
		p.at++
		var out strings.Builder
		for !p.take(`"`) {
			r, err := p.char()
			if err != nil {
				return nil, err
			}
			out.WriteRune(r)
		}
		return lit(out.String()), nil
	case '[':
		p.at++
		return p.class()
	case '.':
		p.at++
		return runes(anyRune), nil
	case '(':
		p.at++
		p.space(true)
		e, err := p.alternatives(depth + 1)
		if err != nil {
			return nil, err
		}
		if !p.take(")") {
			return nil, p.fail("expected ), found %s", p.found())
		}
		return e, nil
	case '<', '!':
		return nil, p.fail("tokens (<...>) are not supported; write the text")
	}
	start := p.at
	name := p.name()
	if name == "" {
		return nil, nil
	}
	end := p.at
	p.at = start
	id := p.rule(name)
	p.at = end
	return ref(id), nil
}

// class reads a character class after its opening bracket.
func (p *gbnfParser) class() (*expr, error) {
	negated := p.take("^")
	var ranges []rune
	for !p.take("]") {
		lo, err := p.char()
		if err != nil {
			return nil, err
		}
		hi := lo
		if strings.HasPrefix(p.text[p.at:], "-") && !strings.HasPrefix(p.text[p.at:], "-]") {
			p.at++
			if hi, err = p.char(); err != nil {
				return nil, err
			}
		}
		if hi < lo {
			return nil, p.fail("the range from %q to %q has no character", lo, hi)
		}
		ranges = append(ranges, lo, hi)
	}
	if negated {
		ranges = complement(ranges)
	}
	return runes(ranges), nil
}

// complement returns the characters outside of ranges.
func complement(ranges []rune) []rune {
	var out []rune
	for next := rune(0); ; {
		// The first character from next on that is in a range, and the end of that range, after which the search
		// continues.
		lo, hi := rune(unicode.MaxRune+1), rune(0)
		for i := 0; i < len(ranges); i += 2 {
			if ranges[i+1] >= next && max(ranges[i], next) < lo {
				lo, hi = max(ranges[i], next), ranges[i+1]
			}
		}
		if next < lo {
			out = append(out, next, lo-1)
		}
		if lo > unicode.MaxRune {
			return out
		}
		next = hi + 1
	}
}

// char reads a character of a literal or a class, which may be an escape.
func (p *gbnfParser) char() (rune, error) {
	if p.at >= len(p.text) {
		return 0, p.fail("a literal or a class has no end")
	}
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
	if r != '\\' {
		return r, nil
	}
	if p.at >= len(p.text) {
		return 0, p.fail("an escape has no end")
	}
	c := p.text[p.at]
	p.at++
	digits := 0
	switch c {
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case '\\', '"', '[', ']', '-', '^':
		return rune(c), nil
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		p.at--
		return 0, p.fail("the escape \\%c is not supported", c)
	}
	if len(p.text) < p.at+digits {
		return 0, p.fail("the escape \\%c needs %d hexadecimal digits", c, digits)
	}
	v, err := strconv.ParseUint(p.text[p.at:p.at+digits], 16, 32)
	if err != nil || v > unicode.MaxRune || !utf8.ValidRune(rune(v)) {
		return 0, p.fail("the escape \\%c%s is no character", c, p.text[p.at:p.at+digits])
	}
	p.at += digits
	return rune(v), nil
}

// repeated reads *, +, ? or a count after e; it returns nil if none follows.
func (p *gbnfParser) repeated(e *expr) (*expr, error) {
	switch {
	case p.take("*"):
		return star(e), nil
	case p.take("+"):
		return repeat(e, 1, unbounded), nil
	case p.take("?"):
		return opt(e), nil
	case !p.take("{"):
		return nil, nil
	}
	p.space(false)
	low, ok := p.number()
	if !ok {
		return nil, p.fail("expected a number in a count, found %s", p.found())
	}
	high := low
	p.space(false)
	if p.take(",") {
		p.space(false)
		if high, ok = p.number(); !ok {
			high = unbounded
		}
		p.space(false)
	}
	if !p.take("}") {
		return nil, p.fail("expected } after a count, found %s", p.found())
	}
	if high < low {
		return nil, p.fail("a count from %d to %d", low, high)
	}
	return repeat(e, low, high), nil
}

// number reads a number below a million; a larger one is taken for none.
func (p *gbnfParser) number() (int32, bool) {
	start := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	n, err := strconv.ParseInt(p.text[start:p.at], 10, 32)
	if err != nil || n >= 1_000_000 {
		p.at = start
		return 0, false
	}
	return int32(n), true
}
