package ucd

import (
	_ "embed"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

//go:embed ucd.txt
var text string

// A Mask is a set of properties, one bit each: the 30 general categories and a few derived properties.
type Mask uint64

// General categories, as Oniguruma 6.9 has them (Unicode 16).
const (
	Cn Mask = 1 << iota // unassigned, and surrogates
	Lu
	Ll
	Lt
	Lm
	Lo
	Mn
	Mc
	Me
	Nd
	Nl
	No
	Pc
	Pd
	Ps
	Pe
	Pi
	Pf
	Po
	Sm
	Sc
	Sk
	So
	Zs
	Zl
	Zp
	Cc
	Cf
	Co
)

// Derived properties.
const (
	Space       Mask = 1 << (32 + iota) // White_Space: \s everywhere, char::is_whitespace
	Word                                // Oniguruma's \w
	RegexWord                           // \w of Rust's regex crate
	Numeric                             // Rust's char::is_numeric
	Punctuation                         // is_punctuation of the unicode_categories crate, and ASCII punctuation
	decomposes                          // has a canonical decomposition
	unsafeNFC                           // not kept by NFC
	unsafeNFKC                          // not kept by NFKC
	backward                            // may compose with a character before it
	nonStarter                          // has a combining class other than 0
)

// Groups of general categories.
const (
	L = Lu | Ll | Lt | Lm | Lo
	M = Mn | Mc | Me
	N = Nd | Nl | No
	P = Pc | Pd | Ps | Pe | Pi | Pf | Po
	S = Sm | Sc | Sk | So
	Z = Zs | Zl | Zp
	C = Cn | Cc | Cf | Co
)

var categoryNames = [...]string{
	"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
	"Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co",
}

// Category returns the mask of a general category or a group of them by its short name: "Lu", "L".
func Category(name string) (Mask, bool) {
	switch name {
	case "L":
		return L, true
	case "M":
		return M, true
	case "N":
		return N, true
	case "P":
		return P, true
	case "S":
		return S, true
	case "Z":
		return Z, true
	case "C":
		return C, true
	}
	for i, n := range categoryNames {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// A Range is the code points Lo to Hi, both included.
type Range struct{ Lo, Hi rune }

// Script returns the code points of \p{name} for the scripts that tokenizers name: Han, Hiragana, Katakana, Hangul.
func Script(name string) ([]Range, bool) {
	r, ok := tables().scripts[name]
	return r, ok
}

// Of returns the properties of r. What is no Unicode scalar value has none but Cn.
func Of(r rune) Mask {
	if uint32(r) > utf8.MaxRune {
		return Cn
	}
	p := tables().properties[r]
	return 1<<(p&31) | Mask(p>>5)<<32
}

// AppendLower appends the lower-case form of r, which may be more than one character.
func AppendLower(dst []byte, r rune) []byte {
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return append(dst, byte(r))
	}
	if l, ok := tables().lower[r]; ok {
		return append(dst, l...)
	}
	return utf8.AppendRune(dst, r)
}

// A data is ucd.txt, read.
type data struct {
	// properties holds, per code point, the general category (5 bits) and above it the derived properties.
	properties [utf8.MaxRune + 1]uint16
	scripts    map[string][]Range
	lower      map[rune]string

	canonical     map[rune]string // full canonical decompositions, without Hangul syllables
	compatibility map[rune]string // full compatibility decompositions, where they differ
	combining     map[rune]uint8  // the rank of the canonical combining class of a mark
	composites    map[[2]rune]rune
}

// tables reads ucd.txt on first use. The file is part of the program, so that what is wrong in it is a panic.
var tables = sync.OnceValue(func() *data {
	d := &data{
		scripts:       map[string][]Range{},
		lower:         map[rune]string{},
		canonical:     map[rune]string{},
		compatibility: map[rune]string{},
		combining:     map[rune]uint8{},
		composites:    map[[2]rune]rune{},
	}
	var primary []rune // those that composition makes again
	for section, fields := range records(text) {
		switch section {
		case "category":
			bit := uint16(0)
			for i, n := range categoryNames {
				if n == fields[1] {
					bit = uint16(i)
				}
			}
			r := parseRange(fields[0])
			for c := r.Lo; c <= r.Hi; c++ {
				d.properties[c] |= bit
			}
		case "space":
			d.mark(parseRange(fields[0]), Space)
		case "word":
			d.mark(parseRange(fields[0]), Word)
		case "regexword":
			d.mark(parseRange(fields[0]), RegexWord)
		case "numeric":
			d.mark(parseRange(fields[0]), Numeric)
		case "punctuation":
			d.mark(parseRange(fields[0]), Punctuation)
		case "Han", "Hiragana", "Katakana", "Hangul":
			d.scripts[section] = append(d.scripts[section], parseRange(fields[0]))
		case "lower":
			d.lower[parseHex(fields[0])] = parseText(fields[1:])
		case "canonical":
			c := parseHex(fields[0])
			if n := len(fields) - 1; fields[n] == "+" {
				fields = fields[:n]
				primary = append(primary, c)
			} else {
				d.mark(Range{c, c}, unsafeNFC|unsafeNFKC)
			}
			d.canonical[c] = parseText(fields[1:])
			d.mark(Range{c, c}, decomposes)
		case "compatibility":
			c := parseHex(fields[0])
			d.compatibility[c] = parseText(fields[1:])
			d.mark(Range{c, c}, unsafeNFKC)
		case "combining":
			r := parseRange(fields[0])
			rank, err := strconv.ParseUint(fields[1], 10, 8)
			if err != nil {
				panic(fmt.Sprintf("ucd.txt: combining class %q is not a number", fields[1]))
			}
			for c := r.Lo; c <= r.Hi; c++ {
				d.combining[c] = uint8(rank)
			}
			d.mark(r, nonStarter)
		default:
			panic(fmt.Sprintf("ucd.txt: section %q is not known", section))
		}
	}
	d.pair(primary)
	d.mark(Range{vBase, vBase + vCount - 1}, backward)
	d.mark(Range{tBase + 1, tBase + tCount - 1}, backward)
	return d
})

func (d *data) mark(r Range, m Mask) {
	for c := r.Lo; c <= r.Hi; c++ {
		d.properties[c] |= uint16(m >> 32 << 5)
	}
}

// pair fills composites. A composite whose full decomposition is a b c was made of (composite of a b) and c.
func (d *data) pair(primary []rune) {
	whole := make(map[string]rune, len(primary))
	for _, c := range primary {
		whole[d.canonical[c]] = c
	}
	for _, c := range primary {
		full := d.canonical[c]
		last, size := utf8.DecodeLastRuneInString(full)
		head := full[:len(full)-size]
		first, size := utf8.DecodeRuneInString(head)
		if size < len(head) {
			first = whole[head]
		}
		d.composites[[2]rune{first, last}] = c
		d.mark(Range{last, last}, backward)
	}
}

// records yields the lines of the file, split into fields, each with the name of its section.
func records(text string) iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		section := ""
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case line == "" || line[0] == '#':
			case line[0] == '[':
				section = strings.Trim(line, "[]")
			case !yield(section, strings.Split(line, " ")):
				return
			}
		}
	}
}

func parseHex(s string) rune {
	v, err := strconv.ParseUint(s, 16, 32)
	if err != nil || v > utf8.MaxRune {
		panic(fmt.Sprintf("ucd.txt: %q is not a code point", s))
	}
	return rune(v)
}

func parseRange(s string) Range {
	lo, hi, ok := strings.Cut(s, "-")
	if !ok {
		hi = lo
	}
	return Range{parseHex(lo), parseHex(hi)}
}

func parseText(fields []string) string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteRune(parseHex(f))
	}
	return b.String()
}
