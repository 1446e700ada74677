package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An addedToken is a text that becomes one token. It is cut out of the text before the text around it is tokenized.
// A normalized one is looked for after normalization, all others before. A singleWord one counts only where no word
// character is next to it.
type addedToken struct {
	content    string
	id         int32
	singleWord bool // not next to a word character
	lstrip     bool // takes the white space before it in
	rstrip     bool // takes the white space after it in
	normalized bool // looked for in normalized text, in its normalized form
	special    bool
}

// An addedVocabulary finds added tokens. Those that are normalized are looked for later, in what the others leave.
type addedVocabulary struct {
	tokens     map[int32]*addedToken
	ids        map[string]int32
	special    map[string]bool // the contents of special tokens
	plain      *trie
	normalized *trie
	// beside are the characters that stand side by side in a token, and inner those of tokens that are looked for in
	// normalized text which are not their first: what a text must not be cut between, or before.
	beside map[[2]rune]bool
	inner  map[rune]bool
}

func readAdded(v value) []addedToken {
	var tokens []addedToken
	for _, item := range v.want(array).items {
		c := newComponent(item)
		tokens = append(tokens, addedToken{
			id:         int32(c.need("id").natural()),
			content:    c.need("content").str(),
			singleWord: c.need("single_word").boolean(),
			lstrip:     c.need("lstrip").boolean(),
			rstrip:     c.need("rstrip").boolean(),
			normalized: c.need("normalized").boolean(),
			special:    c.need("special").boolean(),
		})
		c.done()
	}
	return tokens
}

// newAdded returns the tokens ids as the library does, which does not go by those in the file: the one that the model's
// vocabulary has, or the next after it. vocab learns what the tokens are called: in normalized form, if they are
// looked for in it.
func newAdded(tokens []addedToken, vocab *vocabulary, normalize func(string) string,
	at *place) (*addedVocabulary, []string) {
	a := &addedVocabulary{tokens: map[int32]*addedToken{}, ids: map[string]int32{}, special: map[string]bool{},
		beside: map[[2]rune]bool{}, inner: map[rune]bool{}}
	var warnings []string
	next := int32(len(vocab.ids))
	for i, t := range tokens {
		here := &place{up: at, index: i}
		if t.content == "" {
			warnings = append(warnings, fmt.Sprintf("%s: the token is empty and left out", here))
			continue
		}
		id, ok := a.ids[t.content]
		if !ok {
			id, ok = vocab.ids[t.content]
		}
		if !ok {
			id = next
			next++
			if other, taken := vocab.token(id); taken {
				fail(here, "the token %q gets the id %d, the number of tokens before it, but %q has that id",
					abridge(t.content), id, abridge(other))
			}
		}
		if id != t.id {
			warnings = append(warnings, fmt.Sprintf(
				"%s: the token %q says that its id is %d; its id is %d, as the library gives it", here,
				abridge(t.content), t.id, id))
		}
		t.id = id
		a.ids[t.content] = id
		a.tokens[id] = &t
		if t.special {
			a.special[t.content] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.tokens)) {
		t := a.tokens[id]
		text, set := t.content, &a.plain
		if t.normalized {
			text, set = normalize(t.content), &a.normalized
		}
		if *set == nil {
			*set = newTrie()
		}
		if text == "" {
			fail(at, "normalizing leaves nothing of the token %q", abridge(t.content))
		}
		if !(*set).put(text, id) {
			fail(at, "two tokens are %q after normalization", abridge(text))
		}
		vocab.name(text, id)
		characters := []rune(text)
		for i, r := range characters[1:] {
			a.beside[[2]rune{characters[i], r}] = true
			a.inner[r] = a.inner[r] || t.normalized
		}
	}
	return a, warnings
}

// find cuts s at the tokens of one trie. It calls text with what is between them and token with the id of each.
// Special tokens are left in the text unless parseSpecial, and so are names with a mark right after them (0: no mark).
func (a *addedVocabulary) find(
	t *trie, s string, parseSpecial bool, mark rune, text func(begin, end int), token func(id int32),
) {
	done := 0
	spaceFrom, spaceTo := 0, -1 // white space that a token took in; what it is made of may be tokens too
	for at := 0; t != nil && at < len(s); {
		id, n := t.longest(s[at:])
		if n == 0 {
			at++
			continue
		}
		begin, end := at, at+n
		at = end
		tok := a.tokens[id]
		if !parseSpecial && a.special[tok.content] || mark != 0 && strings.HasPrefix(s[end:], string(mark)) {
			continue
		}
		if tok.singleWord && (endsWithWord(s[:begin]) || beginsWithWord(s[end:])) {
			continue
		}
		if tok.lstrip {
			if begin = max(begin, done); done < begin {
				begin = done + spaceAtEnd(s[done:begin])
			}
		}
		if tok.rstrip {
			if end < spaceFrom || end > spaceTo {
				spaceFrom, spaceTo = end, end+spaceAtStart(s[end:])
			}
			end = spaceTo
		}
		if done < begin {
			text(done, begin)
		}
		if begin < end { // else the white space before it was all taken by the token before, and it with it
			token(id)
		}
		done = end
	}
	if done != len(s) {
		text(done, len(s))
	}
}
