package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/etc-ml/etc/runtime/tokenizer/internal/ucd"
)

// A normalizer changes a text before it is cut into words.
type normalizer struct {
	apply func(string) string
	// growth is how many times longer a text that is not empty can become.
	growth float64
	// keepsStart is set if the first character of the result stands for the first of the text. (The library finds out
	// from its alignments; it matters to Metaspace.)
	keepsStart bool
	// composes is set for NFC, character if every character is changed by itself, and seen by itself.
	composes, character bool
}

// maxGrowth bounds how many times longer normalizers or decoders together can make a text, so that no file makes a
// short text fill the memory. Those in use stay below 40.
const maxGrowth = 1 << 12

// readNormalizers appends the normalizers of a component, in order.
func readNormalizers(list []normalizer, v value) []normalizer {
	c := newComponent(v)
	kind := c.oneOf("type", "NFC", "NFD", "NFKC", "NFKD", "Replace", "Prepend", "Strip", "Lowercase",
		"ByteLevel", "Sequence")
	n := normalizer{growth: 1, keepsStart: true}
	form := func(f ucd.Form, growth float64) {
		n.apply, n.growth = f.String, growth
	}
	switch kind {
	case "NFC":
		form(ucd.NFC, 3) // U+FB2C and others; see Unicode Standard Annex 15, table 7
		n.composes = true
	case "NFD":
		form(ucd.NFD, 4)
	case "NFKC", "NFKD":
		form(map[string]ucd.Form{"NFKC": ucd.NFKC, "NFKD": ucd.NFKD}[kind], 11)
	case "Replace":
		p := readPattern(c.need("pattern"))
		content := c.need("content").str()
		n.apply, n.growth = p.replacer(content), p.growth(content)
		n.keepsStart = p.oneCharacter && content != ""
		n.character = n.keepsStart
	case "Prepend":
		prefix := c.need("prepend").str()
		n.growth = 1 + float64(len(prefix))
		n.apply = func(s string) string {
			if s == "" {
				return s
			}
			return prefix + s
		}
	case "Strip":
		left, right := c.need("strip_left").boolean(), c.need("strip_right").boolean()
		n.keepsStart = !left
		n.apply = func(s string) string {
			if left {
				s = s[spaceAtStart(s):]
			}
			if right {
				s = s[:spaceAtEnd(s)]
			}
			return s
		}
	case "Lowercase":
		n.apply, n.growth = lowercase, 3
	case "ByteLevel":
		n.apply, n.growth = toByteLevel, 2
	case "Sequence":
		for _, item := range c.need("normalizers").want(array).items {
			list = readNormalizers(list, item)
		}
		c.done()
		return list
	}
	c.done()
	return append(list, n)
}

func lowercase(s string) string {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		out = ucd.AppendLower(out, r)
	}
	return string(out)
}

// spaceAtStart returns where the white space at the start of s ends.
func spaceAtStart(s string) int {
	return len(s) - len(strings.TrimLeftFunc(s, isSpace))
}

// spaceAtEnd returns where the white space at the end of s begins.
func spaceAtEnd(s string) int {
	return len(strings.TrimRightFunc(s, isSpace))
}

func isSpace(r rune) bool { return ucd.Of(r)&ucd.Space != 0 }

// isWord says whether r is a \w of Rust's regex crate.
func isWord(r rune) bool { return ucd.Of(r)&ucd.RegexWord != 0 }

func beginsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

func endsWithWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}
