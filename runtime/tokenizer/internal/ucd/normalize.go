package ucd

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A Form is one of the four normalization forms of Unicode Standard Annex 15.
type Form uint8

// The normalization forms.
const (
	NFC Form = iota
	NFD
	NFKC
	NFKD
)

// changed returns the set of properties that make a character other than a plain starter: one that the form keeps, that
// begins a new combining sequence and composes with nothing before it.
func (f Form) changed() Mask {
	switch f {
	case NFC:
		return nonStarter | backward | unsafeNFC
	case NFD:
		return nonStarter | decomposes
	case NFKC:
		return nonStarter | backward | unsafeNFKC
	default:
		return nonStarter | decomposes | unsafeNFKC
	}
}

// Hangul syllables are computed (The Unicode Standard, section 3.12).
const (
	sBase, lBase, vBase, tBase = 0xAC00, 0x1100, 0x1161, 0x11A7
	lCount, vCount, tCount     = 19, 21, 28
	nCount                     = vCount * tCount
	sCount                     = lCount * nCount
)

func isSyllable(r rune) bool { return sBase <= r && r < sBase+sCount }

// String returns s, which must be valid UTF-8, in the form f. The time is that of a sort of the longest run of marks.
func (f Form) String(s string) string {
	changed := f.changed()
	plain := func(r rune) bool {
		if r < utf8.RuneSelf {
			return true
		}
		return Of(r)&changed == 0 && (f == NFC || f == NFKC || !isSyllable(r))
	}
	var out strings.Builder
	var sequence []mark
	done := 0    // s[:done] is written
	starter := 0 // where the last plain starter begins
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if plain(r) {
			starter = i
			i += size
			continue
		}
		// A sequence runs from the plain starter before this character to the next one.
		end := i
		for end < len(s) {
			r, size := utf8.DecodeRuneInString(s[end:])
			if plain(r) {
				break
			}
			end += size
		}
		out.WriteString(s[done:starter])
		sequence = f.decompose(sequence[:0], s[starter:end])
		if f == NFC || f == NFKC {
			sequence = compose(sequence)
		}
		for _, m := range sequence {
			out.WriteRune(m.r)
		}
		done, starter, i = end, end, end
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// A mark is a character with the rank of its combining class, 0 for a starter.
type mark struct {
	r     rune
	class uint8
}

// decompose appends the characters of s, decomposed and with their marks in canonical order.
func (f Form) decompose(dst []mark, s string) []mark {
	d := tables()
	add := func(r rune) { dst = append(dst, mark{r, d.combining[r]}) }
	for _, r := range s {
		full, ok := "", false
		if f == NFKC || f == NFKD {
			full, ok = d.compatibility[r]
		}
		if !ok {
			full, ok = d.canonical[r]
		}
		switch {
		case ok:
			for _, r := range full {
				add(r)
			}
		case isSyllable(r):
			i := r - sBase
			add(lBase + i/nCount)
			add(vBase + i%nCount/tCount)
			if t := i % tCount; t != 0 {
				add(tBase + t)
			}
		default:
			add(r)
		}
	}
	for i := 0; i < len(dst); {
		j := i + 1
		if dst[i].class != 0 {
			for j < len(dst) && dst[j].class != 0 {
				j++
			}
			slices.SortStableFunc(dst[i:j], func(a, b mark) int { return int(a.class) - int(b.class) })
		}
		i = j
	}
	return dst
}

// compose composes in place: each mark with the last starter unless one of the same or a higher class, or another
// starter, stands between them.
func compose(s []mark) []mark {
	starter := -1 // where in out the last starter is
	out := s[:0]
	for _, m := range s {
		if starter >= 0 {
			last := out[len(out)-1]
			blocked := len(out)-1 > starter && (last.class == 0 || last.class >= m.class)
			if c, ok := compositeOf(out[starter].r, m.r); ok && !blocked {
				out[starter].r = c
				continue
			}
		}
		if m.class == 0 {
			starter = len(out)
		}
		out = append(out, m)
	}
	return out
}

func compositeOf(a, b rune) (rune, bool) {
	switch {
	case lBase <= a && a < lBase+lCount && vBase <= b && b < vBase+vCount:
		return sBase + (a-lBase)*nCount + (b-vBase)*tCount, true
	case isSyllable(a) && (a-sBase)%tCount == 0 && tBase < b && b < tBase+tCount:
		return a + b - tBase, true
	}
	c, ok := tables().composites[[2]rune{a, b}]
	return c, ok
}
