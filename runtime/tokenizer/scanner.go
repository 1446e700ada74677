package tokenizer

import (
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/etc-ml/etc/runtime/tokenizer/internal/ucd"
)

// gpt2 is the regular expression of GPT-2, which the pre-tokenizer ByteLevel has built in.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// A scanner cuts text as the regular expression of GPT-2 and its descendants do, without a regular expression: in one
// pass, several times faster. The descendants differ in what the fields say. All of them match every text without
// gaps.
type scanner struct {
	fold    bool     // contractions in any case: (?i:'s|...)
	prefix  bool     // one character that is no letter, number or line end may begin a word: [^\r\n\p{L}\p{N}]?
	letters ucd.Mask // what words are of: \p{L}, or [\p{L}\p{M}]
	digits  int      // at most how many digits are a piece; 0: any number, with a space before them
	lines   bool     // line ends end punctuation and white space: [\r\n]* and \s*[\r\n]+
}

// wordRules are the regular expressions that scanners are for.
var wordRules = map[string]*scanner{
	gpt2: {letters: ucd.L},
	// cl100k, Llama 3
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: {
		fold: true, prefix: true, letters: ucd.L, digits: 3, lines: true,
	},
	// Qwen 2 and 3
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: {
		fold: true, prefix: true, letters: ucd.L, digits: 1, lines: true,
	},
	// Qwen 3.5
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: {
		fold: true, prefix: true, letters: ucd.L | ucd.M, digits: 1, lines: true,
	},
}

func (sc *scanner) cut(s string, yield func(string)) {
	for at := 0; at < len(s); {
		end := sc.next(s, at)
		yield(s[at:end])
		at = end
	}
}

func (sc *scanner) all(s string) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for at := 0; at < len(s); {
			end := sc.next(s, at)
			if !yield(at, end) {
				return
			}
			at = end
		}
	}
}

// next returns the end of the match that begins at at. The alternatives are tried in the order of the expression.
func (sc *scanner) next(s string, at int) int {
	r, n := utf8.DecodeRuneInString(s[at:])
	if r == '\'' {
		if end := sc.contraction(s, at); end > 0 {
			return end
		}
	}
	if end := sc.word(s, at, r, n); end > at {
		return end
	}
	if end := sc.number(s, at, r, n); end > at {
		return end
	}
	if end := sc.punctuation(s, at, r); end > at {
		return end
	}
	return sc.space(s, at)
}

// word returns the end of the letters that begin at at, after a character r of n bytes that may stand before them;
// at where there are none.
func (sc *scanner) word(s string, at int, r rune, n int) int {
	switch {
	case sc.prefix && r != '\r' && r != '\n' && ucd.Of(r)&(ucd.L|ucd.N) == 0, r == ' ':
		if end := run(s, at+n, sc.letters); end > at+n {
			return end
		}
	}
	// Without the prefix: it may be a mark, which is among the letters.
	return run(s, at, sc.letters)
}

// number returns the end of the digits that begin at at with the character r of n bytes; at where there are none.
func (sc *scanner) number(s string, at int, r rune, n int) int {
	if sc.digits == 0 {
		begin := at
		if r == ' ' {
			begin++
		}
		if end := run(s, begin, ucd.N); end > begin {
			return end
		}
		return at
	}
	if ucd.Of(r)&ucd.N == 0 {
		return at
	}
	end := at + n
	for range sc.digits - 1 {
		r, n := utf8.DecodeRuneInString(s[end:])
		if n == 0 || ucd.Of(r)&ucd.N == 0 {
			break
		}
		end += n
	}
	return end
}

// punctuation returns the end of what is no letter, digit or space from at on, after a space; at where there is none.
func (sc *scanner) punctuation(s string, at int, r rune) int {
	begin := at
	if r == ' ' {
		begin++
	}
	if end := runWithout(s, begin, ucd.Space|sc.letters|ucd.N); end > begin {
		for sc.lines && end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	return at
}

// space returns the end of white space: up to the last line end; or all of it but the last character, which goes with
// the word after it; or all of it.
func (sc *scanner) space(s string, at int) int {
	end := run(s, at, ucd.Space)
	if sc.lines {
		if last := strings.LastIndexAny(s[at:end], "\r\n"); last >= 0 {
			return at + last + 1
		}
	}
	if end < len(s) {
		if _, n := utf8.DecodeLastRuneInString(s[at:end]); end-n > at {
			return end - n
		}
	}
	return end
}

// run returns the end of the characters from at that have one of the properties.
func run(s string, at int, of ucd.Mask) int {
	for at < len(s) {
		r, n := utf8.DecodeRuneInString(s[at:])
		if ucd.Of(r)&of == 0 {
			break
		}
		at += n
	}
	return at
}

// runWithout returns the end of the characters from at that have none of the properties.
func runWithout(s string, at int, of ucd.Mask) int {
	for at < len(s) {
		r, n := utf8.DecodeRuneInString(s[at:])
		if ucd.Of(r)&of != 0 {
			break
		}
		at += n
	}
	return at
}

// contraction returns the end of 's, 't, 're, 've, 'm, 'll or 'd at at, or 0.
func (sc *scanner) contraction(s string, at int) int {
	rest := s[at+1:]
	lower := func(i int) byte {
		if i >= len(rest) {
			return 0
		}
		if c := rest[i]; sc.fold && 'A' <= c && c <= 'Z' {
			return c | 0x20
		}
		return rest[i]
	}
	switch lower(0) {
	case 's', 't', 'm', 'd':
		return at + 2
	case 'r', 'v':
		if lower(1) == 'e' {
			return at + 3
		}
	case 'l':
		if lower(1) == 'l' {
			return at + 3
		}
	}
	if sc.fold && strings.HasPrefix(rest, "ſ") { // the long s is an s in another case
		return at + 1 + len("ſ")
	}
	return 0
}
