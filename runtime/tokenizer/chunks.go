package tokenizer

import (
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

const (
	// chunkSize is how much of a text EncodeReader reads before it looks for a place to cut, in bytes.
	chunkSize = 256 << 10
	// MaxUncut is how much of a text EncodeReader holds where it finds no place to cut, in bytes.
	MaxUncut = 64 << 20
)

// LengthError is a text that must be encoded as one, and is too long for that.
type LengthError struct {
	Limit int // bytes
	// Why says why it must.
	Why string
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("the text has more than %d bytes that must be encoded together: %s", e.Limit, e.Why)
}

// EncodeReader gives emit the ids that Encode returns for a text, some at a time. The text is cut where that
// changes no id: between words of the pre-tokenizer, or between characters that no merge joins. So the memory that it
// takes does not grow with the text, unless the text has no such place: a chunk of more than [MaxUncut] bytes is a
// [*LengthError], and so is a longer text where the tokenizer is of a kind that is not cut (see [Tokenizer.Uncut]).
// opts.Mark must be 0.
func (t *Tokenizer) EncodeReader(r io.Reader, opts EncodeOptions, emit func(ids []int) error) error {
	return t.encodeReader(r, opts, emit, chunkSize, MaxUncut)
}

func (t *Tokenizer) encodeReader(r io.Reader, opts EncodeOptions, emit func(ids []int) error, size, most int) error {
	if t.Uncut() != "" {
		size = most + 1
	}
	around := func(pieces template) error {
		for _, piece := range pieces {
			if !piece.text && opts.AddSpecial {
				if err := emit(slices.Clone(piece.ids)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	at := slices.IndexFunc(t.template, func(p templatePiece) bool { return p.text })
	if t.textPieces() != 1 { // the text comes twice, or not at all
		b, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
		if err != nil {
			return err
		}
		if len(b) > most {
			return t.tooLong(most)
		}
		return emit(t.Encode(string(b), opts))
	}
	if err := around(t.template[:at]); err != nil {
		return err
	}
	if err := t.encodeChunks(r, opts, emit, size, most); err != nil {
		return err
	}
	return around(t.template[at+1:])
}

// encodeChunks encodes the text itself.
func (t *Tokenizer) encodeChunks(r io.Reader, opts EncodeOptions, emit func(ids []int) error, size, most int) error {
	g := t.mergers.Get().(*merger)
	defer t.mergers.Put(g)
	var text []byte
	encode := func(n int, first bool) error {
		ids := t.encode(make([]int, 0, n/3+8), g, validText(string(text[:n])), opts, first)
		text = append(text[:0], text[n:]...)
		return emit(ids)
	}
	first, looked := true, 0
	for want := size; ; {
		n, err := fill(r, &text, want)
		if err != nil && err != io.EOF {
			return err
		}
		if len(text) > most {
			return t.tooLong(most)
		}
		if err == io.EOF {
			return encode(len(text), first)
		}
		if cut := t.lastCut(text, looked-utf8.UTFMax); cut > 0 {
			if err := encode(cut, first); err != nil {
				return err
			}
			first, looked, want = false, 0, len(text)+size
			continue
		}
		looked, want = n, min(2*n, most+1)
	}
}

// fill reads until there are n bytes. It gives how many there are, and io.EOF where no more come.
func fill(r io.Reader, text *[]byte, n int) (int, error) {
	at := len(*text)
	if n > at {
		*text = slices.Grow(*text, n-at)[:n]
		read, err := io.ReadFull(r, (*text)[at:])
		*text = (*text)[:at+read]
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		return len(*text), err
	}
	return at, nil
}

func (t *Tokenizer) tooLong(most int) error {
	why := t.Uncut()
	if why == "" {
		why = "nowhere in so much text is a place where cutting it changes no token, as between a word and a space"
	}
	return &LengthError{most, why}
}

func (t *Tokenizer) textPieces() (n int) {
	for _, p := range t.template {
		if p.text {
			n++
		}
	}
	return n
}

// Uncut says why texts must be encoded whole, "" where they can be cut.
func (t *Tokenizer) Uncut() string {
	p, m := &t.preTokenizer, t.model
	if t.textPieces() != 1 {
		return "the tokenizer's template does not have the text once"
	}
	for _, token := range t.added.tokens {
		if token.singleWord || token.lstrip || token.rstrip {
			return fmt.Sprintf("the tokenizer has tokens that depend on what is around them, as %q",
				abridge(token.content))
		}
	}
	for _, n := range t.normalizers {
		if !n.composes && !n.character || n.character && p.words != nil {
			return "the tokenizer's normalizers may change what is on both sides of a place"
		}
	}
	switch {
	case p.words != nil:
		return ""
	case p.other || p.byteLevel:
		return "the tokenizer cuts words by rules for which no such places are known"
	case slices.ContainsFunc(t.normalizers, func(n normalizer) bool { return n.composes }):
		return "the tokenizer's normalizers may change what is on both sides of a place"
	case m.pairs == nil || m.whole != nil:
		return "the tokenizer's merges may join any two characters"
	}
	return ""
}

// lastCut returns the last place where a text may be cut, whatever follows it; 0 where there is none.
// Before from there is none.
func (t *Tokenizer) lastCut(text []byte, from int) int {
	next, n := utf8.DecodeLastRune(text)
	for at := len(text) - n; at > max(from, 0); at -= n {
		var before rune
		before, n = utf8.DecodeLastRune(text[:at])
		if before != utf8.RuneError && next != utf8.RuneError && t.mayCut(before, next) {
			return at
		}
		next = before
	}
	return 0
}

// mayCut reports whether a text may be cut between two characters, whatever else is in it: no added token has them side
// by side, and
//
//   - where words are cut by wordRules, a word ends there. Spaces are only ever at the beginning of a match or among
//     other white space; letters and numbers are in no match with the line ends after them; and with lines, white
//     space with a line end in it is cut after the last of them. No rule looks at what is before a match, so that
//     the words after the place are the same, too. All normalizers are NFC, which joins nothing to a space or line
//     end;
//   - else, words are not cut there, and no merge has them side by side. The normalizers replace single characters.
func (t *Tokenizer) mayCut(before, next rune) bool {
	if words := t.preTokenizer.words; words != nil && !words.ends(before, next) {
		return false
	}
	if t.added.beside[[2]rune{before, next}] {
		return false
	}
	normalized := t.normalize(string(next))
	for _, r := range normalized {
		if t.added.inner[r] {
			return false
		}
	}
	if t.preTokenizer.words != nil {
		return true
	}
	a, b := lastCharacter(t.normalize(string(before))), firstCharacter(normalized)
	if slices.Contains(t.preTokenizer.literals, a) || slices.Contains(t.preTokenizer.literals, b) {
		return false
	}
	left, right := t.model.vocab.id(a), t.model.vocab.id(b)
	return left >= 0 && right >= 0 && !t.model.pairs.may(left, right)
}

// ends reports whether a match ends between two characters, whatever else is in the text.
func (sc *scanner) ends(before, next rune) bool {
	switch {
	case next == ' ':
		return !isSpace(before)
	case next == '\n' || next == '\r':
		return '0' <= before && before <= '9' || 'a' <= before|0x20 && before|0x20 <= 'z'
	}
	return before == '\n' && sc.lines && !isSpace(next)
}
