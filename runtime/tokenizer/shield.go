package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Shield keeps texts from naming control tokens: those that steer a model, such as the marks of turns. It puts a
// mark, a character of the caller's choice that no text has, after the first character of their names, and
// [Tokenizer.Encode] with that mark takes them for text and the mark out. Its methods may be called concurrently.
type Shield struct {
	tokenizer *Tokenizer
	names     *trie // of the control tokens, as the file has them
	// normalized has the names of those that Encode looks for in normalized text, in their normalized form; nil: none.
	normalized *trie
}

// NewShield makes a shield of the special tokens, and of the other added tokens that control reports.
func (t *Tokenizer) NewShield(control func(name string) bool) *Shield {
	s := &Shield{tokenizer: t, names: newTrie()}
	for id, tok := range t.added.tokens {
		if !tok.special && !control(tok.content) {
			continue
		}
		s.names.put(tok.content, id)
		if tok.normalized {
			if s.normalized == nil {
				s.normalized = newTrie()
			}
			s.normalized.put(t.normalize(tok.content), id)
		}
	}
	return s
}

// Text returns a text with marks in the names of control tokens, and in its end where a name may begin there that the
// text after it completes. What is not UTF-8 in it becomes U+FFFD.
func (s *Shield) Text(text string, mark rune) string {
	text = validText(text)
	var out strings.Builder
	done := 0
	for at := range text {
		if whole, part := s.names.covers(text[at:]); whole || part && begins(text[at:]) {
			_, first := utf8.DecodeRuneInString(text[at:])
			out.WriteString(text[done : at+first])
			out.WriteRune(mark)
			done = at + first
		}
	}
	if done > 0 {
		out.WriteString(text[done:])
		text = out.String()
	}
	if s.normalized != nil && s.named(s.tokenizer.normalize(text)) {
		return everywhere(text, mark)
	}
	return text
}

// named reports whether a normalized text has a name that is looked for in such text.
func (s *Shield) named(text string) bool {
	for at := range text {
		if whole, part := s.normalized.covers(text[at:]); whole || part && begins(text[at:]) {
			return true
		}
	}
	return false
}

// begins reports whether the end of a text may be taken for the beginning of a name: not by a letter, a digit or white
// space, by which other words begin too. Programs that look at a text, as templates do, should find those unchanged.
func begins(end string) bool {
	c, _ := utf8.DecodeRuneInString(end)
	return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !unicode.IsSpace(c)
}

// everywhere puts a mark after every character: characters that become a name together do not, one by one.
func everywhere(text string, mark rune) string {
	var out strings.Builder
	for _, c := range text {
		out.WriteRune(c)
		if c != mark {
			out.WriteRune(mark)
		}
	}
	return out.String()
}

// Shield is [Shield.Text] of a shield of its own. Who has many texts makes one with [Tokenizer.NewShield].
func (t *Tokenizer) Shield(text string, mark rune, control func(name string) bool) string {
	return t.NewShield(control).Text(text, mark)
}
