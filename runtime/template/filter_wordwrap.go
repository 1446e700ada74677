package template

import (
	"math"
	"slices"
	"strings"
	"unicode"
)

// filterWordWrap wraps every line of a text as Python's textwrap does without expanding tabs.
func filterWordWrap(in *interp, v Value, a []Value) Value {
	in.checkDefined(v)
	s, ok := asString(v)
	if !ok {
		in.fail(TypeError, "'%s' object has no attribute 'splitlines'", v.TypeName())
	}
	w := wrapper{in: in, width: 79, breakLong: a[1] == nil || truth(a[1]), breakHyphens: a[3] == nil || truth(a[3])}
	if f, ok := a[0].(Float); ok { // Python compares with it, and only fails where it would cut a word
		w.fraction = true
		w.width = int(math.Floor(min(max(float64(f), -1), math.MaxInt32)))
	} else if a[0] != nil {
		in.checkDefined(a[0])
		n, ok := in.clampedIndex(a[0])
		if !ok {
			in.fail(TypeError, "'<=' not supported between instances of '%s' and 'int'", a[0].TypeName())
		}
		w.width = min(n, math.MaxInt32)
	}
	w.splitHyphens = a[3] == nil || a[3] == (Value)(Bool(true))
	newline := in.textArg("the string between lines", a[2], "\n")
	in.step(len(s))
	var lines []string
	for _, line := range splitLines(s, false) {
		if w.width <= 0 {
			in.fail(ValueError, "invalid width %d (must be > 0)", w.width)
		}
		in.alloc(4 * len(line))
		wrapped := w.wrap([]rune(line))
		in.allocString(len(line) + len(newline)*len(wrapped))
		lines = append(lines, strings.Join(wrapped, newline))
		in.alloc(16 + 16*len(wrapped))
	}
	in.allocString(len(s) + len(newline)*len(lines))
	return Str(strings.Join(lines, newline))
}

// wrapper wraps lines of text.
type wrapper struct {
	in                      *interp
	width                   int
	fraction                bool // the width is a float
	breakLong, breakHyphens bool
	// splitHyphens says that words with hyphens are made of parts.
	splitHyphens bool
}

// wrap puts the chunks of a text into lines.
func (w wrapper) wrap(text []rune) []string {
	chunks := w.chunks(text)
	blank := func(c []rune) bool { return !slices.ContainsFunc(c, func(r rune) bool { return !isSpace(r) }) }
	var lines []string
	for len(chunks) > 0 {
		var line []rune
		last := 0 // where the last chunk of the line starts
		if len(lines) > 0 && blank(chunks[0]) {
			chunks = chunks[1:]
		}
		for len(chunks) > 0 && len(line)+len(chunks[0]) <= w.width {
			last = len(line)
			line = append(line, chunks[0]...)
			chunks = chunks[1:]
		}
		if len(chunks) > 0 && len(chunks[0]) > w.width {
			if w.breakLong {
				if w.fraction {
					w.in.fail(TypeError, "slice indices must be integers or None or have an __index__ method")
				}
				n := w.breakAt(chunks[0], w.width-len(line))
				last = len(line)
				line = append(line, chunks[0][:n]...)
				chunks[0] = chunks[0][n:]
			} else if len(line) == 0 {
				last = 0
				line = append(line, chunks[0]...)
				chunks = chunks[1:]
			}
		}
		if len(line) > 0 && blank(line[last:]) {
			line = line[:last]
		}
		if len(line) > 0 {
			lines = append(lines, string(line))
		}
	}
	return lines
}

// breakAt is how much of a long chunk goes into the space that is left of a line: up to the last hyphen that
// fits, if there is something else before it.
func (w wrapper) breakAt(chunk []rune, space int) int {
	if w.breakHyphens && len(chunk) > space {
		for i := space - 1; i > 0; i-- {
			if chunk[i] != '-' {
				continue
			}
			if slices.ContainsFunc(chunk[:i], func(c rune) bool { return c != '-' }) {
				return i + 1
			}
			break
		}
	}
	return space
}

// chunks splits a text into white space, words and, at hyphens and dashes, parts of words.
func (w wrapper) chunks(text []rune) [][]rune {
	var chunks [][]rune
	for i := 0; i < len(text); {
		end := i + 1
		switch {
		case isWrapSpace(text[i]):
			for end < len(text) && isWrapSpace(text[end]) {
				end++
			}
		case !w.splitHyphens:
			for end < len(text) && !isWrapSpace(text[end]) {
				end++
			}
		case i > 0 && isWordPunctuation(text[i-1]) && dash(text, i) > 0:
			end = i + dash(text, i)
		default:
			end = wordEnd(text, i)
		}
		chunks = append(chunks, text[i:end:end])
		i = end
	}
	return chunks
}

// wordEnd is where the word, or the part of a word up to a hyphen, ends that starts at i.
func wordEnd(text []rune, i int) int {
	for j := i + 1; ; j++ {
		if j == len(text) || isWrapSpace(text[j]) {
			return j
		}
		if text[j] != '-' {
			continue
		}
		letter := func(k int) bool { return 0 <= k && k < len(text) && isLetter(text[k]) }
		before := letter(j-1) && letter(j-2) ||
			letter(j-3) && text[j-2] == '-' && isWordPunctuation(text[j-1])
		after := letter(j+1) && (letter(j+2) || j+2 < len(text) && text[j+2] == '-' && letter(j+3))
		if before && after {
			return j + 1
		}
		if isWordPunctuation(text[j-1]) && dash(text, j) > 0 {
			return j
		}
	}
}

// dash returns the length of the two or more hyphens at i that a word follows, or 0.
func dash(text []rune, i int) int {
	n := 0
	for i+n < len(text) && text[i+n] == '-' {
		n++
	}
	if n < 2 || i+n == len(text) || !isWordRune(text[i+n]) {
		return 0
	}
	return n
}

func isWrapSpace(c rune) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// isWordRune reports whether \w matches c.
func isWordRune(c rune) bool { return c == '_' || isAlnum(c) }

// isLetter reports whether [^\d\W] matches c.
func isLetter(c rune) bool { return isWordRune(c) && !unicode.IsDigit(c) }

func isWordPunctuation(c rune) bool { return isWordRune(c) || strings.ContainsRune(`!"'&.,?`, c) }
