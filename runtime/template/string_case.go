package template

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// mapRunes replaces every character of s. Mappings of Unicode make a string at most three times as long.
func (in *interp) mapRunes(s string, f func(b *strings.Builder, c rune)) string {
	in.alloc(len(s))
	var b strings.Builder
	b.Grow(len(s))
	for _, c := range s {
		f(&b, c)
	}
	in.alloc(max(b.Len()-len(s), 0))
	return b.String()
}

func writeUpper(b *strings.Builder, c rune) {
	if s, ok := specialUpper[c]; c >= 0x80 && ok {
		b.WriteString(s)
		return
	}
	b.WriteRune(unicode.ToUpper(c))
}

func writeTitle(b *strings.Builder, c rune) {
	if s, ok := specialTitle[c]; c >= 0x80 && ok {
		b.WriteString(s)
		return
	}
	b.WriteRune(unicode.ToTitle(c))
}

// writeLower writes the lower case of the character c of s that starts at the offset at.
func writeLower(b *strings.Builder, s string, at int, c rune) {
	switch c {
	case 'İ':
		b.WriteString("i̇")
	case 'Σ':
		if finalSigma(s, at) {
			b.WriteRune('ς')
		} else {
			b.WriteRune('σ')
		}
	default:
		b.WriteRune(unicode.ToLower(c))
	}
}

// finalSigma says whether the capital sigma at an offset ends a word (Unicode 3.13, table 3-17): a cased letter is
// before it and none after it, those that case ignores not counted.
func finalSigma(s string, at int) bool {
	before := strings.TrimRightFunc(s[:at], caseIgnorable)
	c, n := utf8.DecodeLastRuneInString(before)
	if n == 0 || !isCased(c) {
		return false
	}
	after := strings.TrimLeftFunc(s[at+len("Σ"):], caseIgnorable)
	c, n = utf8.DecodeRuneInString(after)
	return n == 0 || !isCased(c)
}

func isLower(c rune) bool { return unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c) }

func isUpper(c rune) bool { return unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c) }

func isCased(c rune) bool { return isLower(c) || isUpper(c) || unicode.IsTitle(c) }

// caseIgnorable is the property Case_Ignorable (DerivedCoreProperties.txt).
func caseIgnorable(c rune) bool {
	return unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:^`·‧·՟״‘’․︓﹒﹕＇．：", c)
}

func (in *interp) upper(s string) string { return in.mapRunes(s, writeUpper) }

func (in *interp) lower(s string) string {
	at := 0
	sigmas := 0
	return in.mapRunes(s, func(b *strings.Builder, c rune) {
		if c == 'Σ' {
			if sigmas++; sigmas > 1 {
				in.step(len(s) / 64) // looking around each of them must not be free
			}
		}
		writeLower(b, s, at, c)
		at += utf8.RuneLen(c)
	})
}

// capitalize is str.capitalize: the first character in title case, the others in lower case.
func (in *interp) capitalize(s string) string {
	at := 0
	return in.mapRunes(s, func(b *strings.Builder, c rune) {
		if at == 0 {
			writeTitle(b, c)
		} else {
			writeLower(b, s, at, c)
		}
		at += utf8.RuneLen(c)
	})
}

// title is str.title: letters after a letter with case in lower case, others in title case.
func (in *interp) title(s string) string {
	at, cased := 0, false
	return in.mapRunes(s, func(b *strings.Builder, c rune) {
		if cased {
			writeLower(b, s, at, c)
		} else {
			writeTitle(b, c)
		}
		cased = isCased(c)
		at += utf8.RuneLen(c)
	})
}

func (in *interp) swapCase(s string) string {
	at := 0
	return in.mapRunes(s, func(b *strings.Builder, c rune) {
		switch {
		case isUpper(c):
			writeLower(b, s, at, c)
		case isLower(c):
			writeUpper(b, c)
		default:
			b.WriteRune(c)
		}
		at += utf8.RuneLen(c)
	})
}

// caseFold is str.casefold (CaseFolding.txt, status C and F). It is the lower case of the upper case but for
// the dotless i, the capital sharp s and Cherokee, whose letters fold to upper case.
func (in *interp) caseFold(s string) string {
	return in.mapRunes(s, func(b *strings.Builder, c rune) {
		switch {
		case c == 'ı':
			b.WriteRune(c)
		case c == 'ẞ':
			b.WriteString("ss")
		case 0x13a0 <= c && c <= 0x13fd || 0xab70 <= c && c <= 0xabbf:
			b.WriteRune(unicode.ToUpper(c))
		case c < 0x80:
			b.WriteRune(unicode.ToLower(c))
		default:
			var upper strings.Builder
			writeUpper(&upper, c)
			for _, u := range upper.String() {
				if u == 'İ' {
					b.WriteString("i̇")
				} else {
					b.WriteRune(unicode.ToLower(u))
				}
			}
		}
	})
}

// isLowerString is str.islower: there is a cased character and none is upper or title case; isUpperString likewise.
func isLowerString(s string) bool {
	cased := false
	for _, c := range s {
		if isUpper(c) || unicode.IsTitle(c) {
			return false
		}
		cased = cased || isLower(c)
	}
	return cased
}

func isUpperString(s string) bool {
	cased := false
	for _, c := range s {
		if isLower(c) || unicode.IsTitle(c) {
			return false
		}
		cased = cased || isUpper(c)
	}
	return cased
}

// isTitleString is str.istitle: upper case follows only what has no case, lower case only what has.
func isTitleString(s string) bool {
	cased, previous := false, false
	for _, c := range s {
		switch {
		case isUpper(c) || unicode.IsTitle(c):
			if previous {
				return false
			}
			cased, previous = true, true
		case isLower(c):
			if !previous {
				return false
			}
			cased, previous = true, true
		default:
			previous = false
		}
	}
	return cased
}
