package tokenizer

import (
	"slices"
	"strings"

	"github.com/etc-ml/etc/runtime/tokenizer/internal/ucd"
)

// A cutter cuts a text that is not empty into pieces that are not empty, and may change them. first says that the text
// is the beginning of what was given to Encode.
type cutter func(s string, first bool, emit func(string))

// A preTokenizer is a row of cutters: each cuts the pieces of the one before.
type preTokenizer struct {
	cutters []cutter
	// byteLevel is set if the last step writes the pieces in the byte-level alphabet. It is left to the model.
	byteLevel bool

	// words are the rules of the first cutter, where it cuts by such; else literals are the single characters that
	// Split cuts at, and other is set if there is any other step.
	words    *scanner
	literals []string
	other    bool
}

// cut cuts a text into words.
func (t *preTokenizer) cut(s string, first bool, word func(string)) {
	if s != "" {
		t.cutFrom(0, s, first, word)
	}
}

func (t *preTokenizer) cutFrom(i int, s string, first bool, word func(string)) {
	switch i {
	case len(t.cutters):
		word(s)
	case len(t.cutters) - 1:
		t.cutters[i](s, first, word)
	default:
		t.cutters[i](s, first, func(s string) { t.cutFrom(i+1, s, false, word) })
	}
}

// read appends the cutters of a component, in order. starts says whether it is known, after the normalizers, that a
// text is the beginning of what was given to Encode. It is long because it is one switch over the kinds, with a short
// case for each.
func (t *preTokenizer) read(v value, starts bool) {
	c := newComponent(v)
	kind := c.oneOf("type", "ByteLevel", "Split", "Sequence", "Digits", "Metaspace", "Whitespace", "WhitespaceSplit",
		"Punctuation", "CharDelimiterSplit", "BertPreTokenizer")
	if t.byteLevel && kind != "Sequence" {
		// Something comes after ByteLevel, which must then write its alphabet.
		t.writeByteLevel()
	}
	t.other = t.other || !slices.Contains([]string{"ByteLevel", "Split", "Sequence"}, kind)
	switch kind {
	case "ByteLevel":
		if c.need("add_prefix_space").boolean() {
			t.cutters = append(t.cutters, func(s string, _ bool, emit func(string)) {
				if !strings.HasPrefix(s, " ") {
					s = " " + s
				}
				emit(s)
			})
			t.other = true
		}
		c.need("trim_offsets").boolean() // offsets are not computed
		if c.flag("use_regex", true) {
			rules := wordRules[gpt2]
			t.cutsWords(rules)
			t.cutters = append(t.cutters, func(s string, _ bool, emit func(string)) { rules.cut(s, emit) })
		}
		t.byteLevel = true
	case "Split":
		p := readPattern(c.need("pattern"))
		behavior, invert := c.oneOf("behavior", behaviors...), c.need("invert").boolean()
		if p.words != nil && (behavior == "Isolated" || behavior == "Removed" && invert) {
			t.cutsWords(p.words)
		} else if p.oneCharacter {
			t.literals = append(t.literals, p.literal)
		} else {
			t.other = true
		}
		t.cutters = append(t.cutters, split(p, behavior, invert))
	case "Sequence":
		for _, item := range c.need("pretokenizers").want(array).items {
			t.read(item, starts)
		}
	case "Digits":
		behavior := "Contiguous"
		if c.need("individual_digits").boolean() {
			behavior = "Isolated"
		}
		t.cutters = append(t.cutters, split(characterPattern(func(r rune) bool { return ucd.Of(r)&ucd.Numeric != 0 }),
			behavior, false))
	case "Metaspace":
		t.readMetaspace(c, starts)
	case "Whitespace":
		t.cutters = append(t.cutters, whitespace)
	case "WhitespaceSplit":
		t.cutters = append(t.cutters, split(characterPattern(isSpace), "Removed", false))
	case "Punctuation":
		behavior := "Isolated"
		if _, ok := c.get("behavior"); ok {
			behavior = c.oneOf("behavior", behaviors...)
		}
		t.cutters = append(t.cutters, split(characterPattern(isPunctuation), behavior, false))
	case "CharDelimiterSplit":
		t.cutters = append(t.cutters, split(literalPattern(string(c.need("delimiter").char())), "Removed", false))
	case "BertPreTokenizer":
		t.cutters = append(t.cutters,
			split(characterPattern(isSpace), "Removed", false),
			split(characterPattern(isPunctuation), "Isolated", false))
	}
	c.done()
}

// cutsWords notes that the next cutter cuts by rules.
func (t *preTokenizer) cutsWords(rules *scanner) {
	if len(t.cutters) == 0 {
		t.words = rules
	} else {
		t.other = true
	}
}

// writeByteLevel makes the last step, ByteLevel, write its alphabet.
func (t *preTokenizer) writeByteLevel() {
	t.byteLevel = false
	t.cutters = append(t.cutters, func(s string, _ bool, emit func(string)) { emit(toByteLevel(s)) })
}

func isPunctuation(r rune) bool { return ucd.Of(r)&ucd.Punctuation != 0 }

// readMetaspace reads SentencePiece's way with spaces: each becomes a replacement, which begins a piece.
func (t *preTokenizer) readMetaspace(c *component, starts bool) {
	replacement, scheme, cut := metaspaceSettings(c)
	if scheme == "first" && (!starts || len(t.cutters) > 0) {
		fail(c.at, "prepend_scheme first is supported only as the first pre-tokenizer, without normalizers that "+
			"remove the start of the text and without normalized added tokens under a normalizer")
	}
	isReplacement := literalPattern(replacement)
	pieces := split(isReplacement, "MergedWithNext", false)
	t.cutters = append(t.cutters, func(s string, first bool, emit func(string)) {
		s = strings.ReplaceAll(s, " ", replacement)
		if scheme == "always" || scheme == "first" && first {
			if !strings.HasPrefix(s, replacement) {
				s = replacement + s
			}
		}
		if cut {
			pieces(s, false, emit)
		} else {
			emit(s)
		}
	})
}

// metaspaceSettings reads what the pre-tokenizer and the decoder Metaspace have in common.
func metaspaceSettings(c *component) (replacement, scheme string, cut bool) {
	replacement, scheme = string(c.need("replacement").char()), "always"
	if _, ok := c.get("prepend_scheme"); ok {
		scheme = c.oneOf("prepend_scheme", "always", "first", "never")
	}
	if v, ok := c.get("add_prefix_space"); ok && !v.boolean() && scheme != "never" { // the older form
		fail(v.at, "found false, which contradicts prepend_scheme %s", scheme)
	}
	c.get("str_rep") // repeats replacement
	return replacement, scheme, c.flag("split", true)
}

// whitespace cuts at white space and between words and the rest: \w+|[^\w\s]+ of Rust's regex crate.
func whitespace(s string, _ bool, emit func(string)) {
	const (
		space = iota
		word
		other
	)
	kindOf := func(r rune) int {
		switch m := ucd.Of(r); {
		case m&ucd.RegexWord != 0:
			return word
		case m&ucd.Space != 0:
			return space
		default:
			return other
		}
	}
	begin, kind := 0, space
	for i, r := range s {
		if k := kindOf(r); k != kind {
			if kind != space {
				emit(s[begin:i])
			}
			begin, kind = i, k
		}
	}
	if kind != space {
		emit(s[begin:])
	}
}

// behaviors are what Split may do with the matches: drop them, make each a piece, join each to the piece before or
// after, or make runs of them a piece.
var behaviors = []string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}

// split returns a cutter that cuts at the matches of a pattern. With invert, what is between them counts as matches.
func split(p *pattern, behavior string, invert bool) cutter {
	switch {
	case p.cut != nil && (behavior == "Isolated" || behavior == "Removed" && invert):
		return func(s string, _ bool, emit func(string)) { p.cut(s, emit) }
	case behavior == "Isolated":
		return func(s string, _ bool, emit func(string)) {
			done := 0
			for begin, end := range p.all(s) {
				if done < begin {
					emit(s[done:begin])
				}
				if begin < end {
					emit(s[begin:end])
				}
				done = end
			}
			if done < len(s) {
				emit(s[done:])
			}
		}
	}
	return func(s string, _ bool, emit func(string)) {
		spans := p.spans(s)
		if invert {
			for i := range spans {
				spans[i].match = !spans[i].match
			}
		}
		for _, x := range fold(spans, behavior) {
			if x.begin < x.end {
				emit(s[x.begin:x.end])
			}
		}
	}
}

// fold joins spans as a behavior wants it.
func fold(spans []span, behavior string) []span {
	var out []span
	switch behavior {
	case "Removed":
		return slices.DeleteFunc(spans, func(x span) bool { return x.match })
	case "Contiguous":
		before := false
		for _, x := range spans {
			if x.match == before && len(out) > 0 {
				out[len(out)-1].end = x.end
			} else {
				out = append(out, x)
			}
			before = x.match
		}
	case "MergedWithPrevious":
		before := false
		for _, x := range spans {
			if x.match && !before && len(out) > 0 {
				out[len(out)-1].end = x.end
			} else {
				out = append(out, x)
			}
			before = x.match
		}
	case "MergedWithNext":
		before := false
		for _, x := range slices.Backward(spans) {
			if x.match && !before && len(out) > 0 {
				out[len(out)-1].begin = x.begin
			} else {
				out = append(out, x)
			}
			before = x.match
		}
		slices.Reverse(out)
	}
	return out
}
