package tokenizer

import (
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/etc-ml/etc/runtime/tokenizer/internal/regex"
)

// A pattern finds its matches in a text that is not empty.
type pattern struct {
	// all yields the begin and end of every match, from left to right.
	all func(s string) iter.Seq2[int, int]
	// literal is the text that a pattern without operators matches, else "".
	literal string
	// oneCharacter is set if every match is one certain character.
	oneCharacter bool
	// cut, if not nil, yields the matches of a pattern that leaves nothing between them.
	cut func(s string, yield func(string))
	// words are the rules of cut.
	words *scanner
}

// readPattern reads {"String": literal} or {"Regex": regular expression}.
func readPattern(v value) *pattern {
	c := newComponent(v)
	literal, isLiteral := c.get("String")
	expression, isRegex := c.get("Regex")
	if isLiteral == isRegex {
		fail(v.at, "expected either String or Regex")
	}
	c.done()
	if isLiteral && literal.str() != "" {
		return literalPattern(literal.text)
	}
	if isLiteral {
		expression = literal // the empty one, which matches between all characters
	}
	if rules, ok := wordRules[expression.str()]; ok {
		return &pattern{all: rules.all, cut: rules.cut, words: rules}
	}
	re, err := regex.Compile(expression.text)
	if err != nil {
		fail(expression.at, "%v", err)
	}
	return &pattern{all: re.All}
}

func literalPattern(literal string) *pattern {
	return &pattern{
		literal:      literal,
		oneCharacter: utf8.RuneCountInString(literal) == 1,
		all: func(s string) iter.Seq2[int, int] {
			return func(yield func(int, int) bool) {
				for at := 0; ; {
					i := strings.Index(s[at:], literal)
					if i < 0 || !yield(at+i, at+i+len(literal)) {
						return
					}
					at += i + len(literal)
				}
			}
		},
	}
}

// characterPattern matches each character for which is says yes.
func characterPattern(is func(rune) bool) *pattern {
	return &pattern{all: func(s string) iter.Seq2[int, int] {
		return func(yield func(int, int) bool) {
			for i, r := range s {
				if is(r) && !yield(i, i+utf8.RuneLen(r)) {
					return
				}
			}
		}
	}}
}

// replacer returns a function that puts content in the place of every match.
func (p *pattern) replacer(content string) func(string) string {
	if p.literal != "" {
		return func(s string) string { return strings.ReplaceAll(s, p.literal, content) }
	}
	return func(s string) string {
		if s == "" {
			return s // the library looks for no matches in an empty text, not even empty ones
		}
		var out strings.Builder
		done := 0
		for begin, end := range p.all(s) {
			out.WriteString(s[done:begin])
			out.WriteString(content)
			done = end
		}
		if done == 0 && out.Len() == 0 {
			return s
		}
		out.WriteString(s[done:])
		return out.String()
	}
}

// growth is how many times longer replacing can make a text.
func (p *pattern) growth(content string) float64 {
	if p.literal != "" {
		return max(1, float64(len(content))/float64(len(p.literal)))
	}
	return 2*float64(len(content)) + 1 // a match may be empty: one before each character, and one at the end
}

// A span is a part of a text: a match, or what is between two.
type span struct {
	begin, end int
	match      bool
}

// spans covers s with the matches and what is between them.
func (p *pattern) spans(s string) []span {
	var out []span
	done := 0
	for begin, end := range p.all(s) {
		if done != begin {
			out = append(out, span{done, begin, false})
		}
		out = append(out, span{begin, end, true})
		done = end
	}
	if done != len(s) {
		out = append(out, span{done, len(s), false})
	}
	return out
}
