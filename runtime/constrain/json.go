package constrain

import (
	"fmt"
	"strings"
)

// What the numbers and the layout of generated JSON are held to. A model that may go on for ever sometimes does.
const (
	maxDigits = 40 // digits of a number before its point, and after it
	maxIndent = 64 // blanks after an end of line
)

// jsonRules are the rules that all JSON constraints share, made when they are first asked for.
type jsonRules struct {
	source
	shared map[string]int32
}

// rule returns the shared rule of a name; body makes it, and may refer to it.
func (j *jsonRules) rule(name string, body func() *expr) *expr {
	id, ok := j.shared[name]
	if !ok {
		id = j.add(name)
		if j.shared == nil {
			j.shared = map[string]int32{}
		}
		j.shared[name] = id
		j.bodies[id] = body()
	}
	return ref(id)
}

// jsonObjectSource returns the constraint of any JSON object.
func jsonObjectSource(text string) (*source, error) {
	if text != "" {
		return nil, &Error{Kind: JSONObject, Reason: "it takes no text; for a schema, use the kind JSONSchema"}
	}
	j := &jsonRules{}
	j.add("the object")
	j.bodies[0] = j.anyObject()
	return &j.source, nil
}

var (
	digit    = byteRange('0', '9')
	hexDigit = alt(digit, byteRange('a', 'f'), byteRange('A', 'F'))
)

// freeChar is one character of a JSON string in any of its spellings. Halves of surrogate pairs stand in pairs only.
func freeChar() *expr {
	hex := func(n int32) *expr { return repeat(hexDigit, n, n) }
	d := alt(lit("d"), lit("D"))
	notD := alt(digit, byteRange('a', 'c'), byteRange('A', 'C'), byteRange('e', 'f'), byteRange('E', 'F'))
	return alt(
		runes([]rune{' ', '!', '#', '[', ']', 0x10FFFF}),
		cat(lit(`\`), alt(
			lit(`"`), lit(`\`), lit("/"), lit("b"), lit("f"), lit("n"), lit("r"), lit("t"),
			cat(lit("u"), notD, hex(3)),
			cat(lit("u"), d, byteRange('0', '7'), hex(2)),
			cat(lit("u"), d, alt(lit("8"), lit("9"), lit("a"), lit("b"), lit("A"), lit("B")), hex(2),
				lit(`\u`), d, alt(byteRange('c', 'f'), byteRange('C', 'F')), hex(2)),
		)),
	)
}

// plainChar is one character out of ranges as a JSON string holds it, in one spelling: as it is, and where JSON asks
// for an escape, the shortest one, with hexadecimal digits in lower case.
func plainChar(ranges []rune) *expr {
	var raw []rune
	var alts []*expr
	for i := 0; i+1 < len(ranges); i += 2 {
		from := ranges[i]
		for r := ranges[i]; r <= min(ranges[i+1], '\\'); r++ {
			if s := escaped(r); s != "" {
				alts = append(alts, lit(s))
				if from < r {
					raw = append(raw, from, r-1)
				}
				from = r + 1
			}
		}
		if from <= ranges[i+1] {
			raw = append(raw, from, ranges[i+1])
		}
	}
	return alt(append(alts, runes(raw))...)
}

// escaped returns the escape of a character that needs one, or "".
func escaped(r rune) string {
	switch r {
	case '"', '\\':
		return `\` + string(r)
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if r < ' ' {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return ""
}

// plainString returns a JSON string in the one spelling of plainChar, without quotes.
func plainString(s string) string {
	var out strings.Builder
	for _, r := range s {
		if e := escaped(r); e != "" {
			out.WriteString(e)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// quoted puts quotes around what a string holds.
func quoted(e *expr) *expr { return cat(lit(`"`), e, lit(`"`)) }

// ws returns the white space allowed between the tokens of JSON: nothing, a blank, or an end of line and an
// indentation.
func (j *jsonRules) ws() *expr {
	return j.rule("whitespace", func() *expr {
		return opt(alt(lit(" "), cat(lit("\n"), repeat(alt(lit(" "), lit("\t")), 0, maxIndent))))
	})
}

// comma separates members and elements.
func (j *jsonRules) comma() *expr { return cat(j.ws(), lit(","), j.ws()) }

// colon separates a name from its value.
func (j *jsonRules) colon() *expr { return cat(j.ws(), lit(":"), j.ws()) }

// freeString returns a string of low to high characters, in any spelling.
func (j *jsonRules) freeString(low, high int32) *expr {
	return j.rule(fmt.Sprintf("string of %d to %d", low, high), func() *expr {
		return quoted(repeat(freeChar(), low, high))
	})
}

func (j *jsonRules) anyString() *expr { return j.freeString(0, unbounded) }

func anyInteger() *expr {
	return cat(opt(lit("-")), alt(lit("0"), cat(byteRange('1', '9'), repeat(digit, 0, maxDigits-1))))
}

func (j *jsonRules) integer() *expr { return j.rule("integer", anyInteger) }

func (j *jsonRules) number() *expr {
	return j.rule("number", func() *expr {
		return cat(anyInteger(), opt(cat(lit("."), repeat(digit, 1, maxDigits))),
			opt(cat(alt(lit("e"), lit("E")), opt(alt(lit("+"), lit("-"))), repeat(digit, 1, 2))))
	})
}

func (j *jsonRules) boolean() *expr { return alt(lit("true"), lit("false")) }

func (j *jsonRules) anyValue() *expr {
	return j.rule("value", func() *expr {
		return alt(j.anyObject(), j.anyArray(), j.anyString(), j.number(), j.boolean(), lit("null"))
	})
}

func (j *jsonRules) anyObject() *expr {
	return j.rule("object", func() *expr {
		member := cat(j.anyString(), j.colon(), j.anyValue())
		return cat(lit("{"), j.ws(), opt(cat(member, star(cat(j.comma(), member)), j.ws())), lit("}"))
	})
}

func (j *jsonRules) anyArray() *expr {
	return j.rule("array", func() *expr {
		return cat(lit("["), j.ws(), opt(cat(j.anyValue(), star(cat(j.comma(), j.anyValue())), j.ws())), lit("]"))
	})
}
