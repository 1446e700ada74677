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

// isIdentifierStart is the property XID_Start (DerivedCoreProperties.txt), or an underscore.
func isIdentifierStart(c rune) bool {
	return c == '_' || (unicode.IsLetter(c) || unicode.In(c, unicode.Nl, unicode.Other_ID_Start)) &&
		!(c >= 0x37a && unicode.Is(unstableStart, c))
}

// isIdentifierPart is the property XID_Continue.
func isIdentifierPart(c rune) bool {
	switch c {
	case 0xe33, 0xeb3, 0xff9e, 0xff9f:
		return true
	}
	return isIdentifierStart(c) || unicode.In(c, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc,
		unicode.Other_ID_Continue)
}

// unstableStart are the characters of ID_Start that are not of XID_Start, as their compatibility forms start no
// identifier (Unicode Standard Annex 31, section 5.1).
var unstableStart = &unicode.RangeTable{R16: []unicode.Range16{
	{0x37a, 0x37a, 1}, {0xe33, 0xe33, 1}, {0xeb3, 0xeb3, 1}, {0x2e2f, 0x2e2f, 1}, {0x309b, 0x309c, 1},
	{0xfc5e, 0xfc63, 1}, {0xfdfa, 0xfdfb, 1}, {0xfe70, 0xfe7e, 2}, {0xff9e, 0xff9f, 1},
}}

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
