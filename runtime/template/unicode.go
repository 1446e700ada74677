package template

import "unicode"

// isSpace is str.isspace of one character: also what \s matches and what strip and split take for blanks.
func isSpace(c rune) bool {
	switch {
	case c <= ' ':
		return c == ' ' || '\t' <= c && c <= '\r' || 0x1c <= c && c <= 0x1f
	case c < 0x2000:
		return c == 0x85 || c == 0xa0 || c == 0x1680
	}
	return c <= 0x200a || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000
}

// isLineBreak says whether splitlines splits at c.
func isLineBreak(c rune) bool {
	switch c {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// isWord says whether c can be part of a name, or of what looks like one.
func isWord(c rune) bool {
	if c < 0x80 {
		return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	return isAlnum(c) || isIdentifierPart(c)
}

func isIdentifierStart(c rune) bool {
	return c == '_' || unicode.IsLetter(c) || unicode.Is(unicode.Nl, c) || unicode.Is(unicode.Other_ID_Start, c)
}

func isIdentifierPart(c rune) bool {
	return isIdentifierStart(c) || unicode.In(c, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue)
}

// isIdentifier is str.isidentifier.
func isIdentifier(s string) bool {
	for i, c := range s {
		if i == 0 && !isIdentifierStart(c) || !isIdentifierPart(c) {
			return false
		}
	}
	return s != ""
}

// isAlnum is str.isalnum of one character.
func isAlnum(c rune) bool { return unicode.IsLetter(c) || isNumeric(c) }

// isNumeric is str.isnumeric of one character.
func isNumeric(c rune) bool {
	return unicode.IsNumber(c) || c >= 0x3400 && unicode.Is(numericIdeographs, c)
}

// isDigit is str.isdigit of one character: decimal digits and those in circles, superscripts and the like.
func isDigit(c rune) bool { return unicode.IsDigit(c) || c >= 0xb2 && unicode.Is(otherDigits, c) }
