package constrain

import (
	"math"
	"slices"
)

// op is the kind of an expression.
type op uint8

const (
	opNone   op = iota // no string at all
	opBytes            // the bytes of lit
	opRange            // one byte from lo to hi
	opCat              // the subs, one after another
	opAlt              // any one of the subs
	opRepeat           // sub 0, min to max times
	opRef              // what rule says
	opDFA              // what dfa accepts
)

// unbounded is the max of a repetition without an upper bound.
const unbounded = math.MaxInt32

// expr is an expression of the intermediate grammar, over bytes. Front ends build it, build.go makes positions of it.
// An expression is never changed after it was made, so it may be shared.
type expr struct {
	op       op
	lo, hi   byte
	lit      string
	subs     []*expr
	min, max int32
	rule     int32
	dfa      *dfa
}

var (
	none  = &expr{op: opNone}
	empty = &expr{op: opBytes}
)

// lit returns the bytes of s.
func lit(s string) *expr { return &expr{op: opBytes, lit: s} }

// byteRange is one byte from lo to hi.
func byteRange(lo, hi byte) *expr { return &expr{op: opRange, lo: lo, hi: hi} }

// cat returns the subs one after another.
func cat(subs ...*expr) *expr {
	var out []*expr
	for _, s := range subs {
		switch {
		case s.op == opNone:
			return none
		case s.op == opBytes && s.lit == "":
		case s.op == opCat:
			out = append(out, s.subs...)
		default:
			out = append(out, s)
		}
	}
	switch len(out) {
	case 0:
		return empty
	case 1:
		return out[0]
	}
	return &expr{op: opCat, subs: out}
}

// alt is any one of the subs.
func alt(subs ...*expr) *expr {
	var out []*expr
	for _, s := range subs {
		switch s.op {
		case opNone:
		case opAlt:
			out = append(out, s.subs...)
		default:
			out = append(out, s)
		}
	}
	switch len(out) {
	case 0:
		return none
	case 1:
		return out[0]
	}
	return &expr{op: opAlt, subs: out}
}

// repeat is s, at least min times and at most max times.
func repeat(s *expr, minimum, maximum int32) *expr {
	switch {
	case minimum > maximum:
		return none
	case maximum == 0 || s.op == opBytes && s.lit == "":
		return empty
	case s.op == opNone && minimum == 0:
		return empty
	case s.op == opNone:
		return none
	case minimum == 1 && maximum == 1:
		return s
	}
	return &expr{op: opRepeat, subs: []*expr{s}, min: minimum, max: maximum}
}

// oneOfTexts is any one of the texts, as a tree of their beginnings, so that a text has one reading.
func oneOfTexts(texts []string) *expr {
	texts = slices.Compact(slices.Sorted(slices.Values(texts)))
	var tree func(texts []string, depth int) *expr
	tree = func(texts []string, depth int) *expr {
		first, last := texts[0], texts[len(texts)-1]
		end := depth
		for end < len(first) && end < len(last) && first[end] == last[end] {
			end++
		}
		head := lit(first[depth:end])
		var alts []*expr
		if len(first) == end {
			alts = append(alts, empty)
			texts = texts[1:]
		}
		for len(texts) > 0 {
			n := 1
			for n < len(texts) && texts[n][end] == texts[0][end] {
				n++
			}
			alts = append(alts, tree(texts[:n], end))
			texts = texts[n:]
		}
		return cat(head, alt(alts...))
	}
	if len(texts) == 0 {
		return none
	}
	return tree(texts, 0)
}

func star(s *expr) *expr { return repeat(s, 0, unbounded) }
func opt(s *expr) *expr  { return repeat(s, 0, 1) }

// ref refers to rule i.
func ref(i int32) *expr { return &expr{op: opRef, rule: i} }

// size is about the number of positions of e, up to limit.
func (e *expr) size(limit int) int {
	n := 0
	switch e.op {
	case opBytes:
		n = len(e.lit)
	case opRange, opRef:
		n = 1
	case opDFA:
		n = len(e.dfa.accept)
	case opCat, opAlt:
		for _, s := range e.subs {
			if n += s.size(limit); n >= limit {
				return limit
			}
		}
	case opRepeat:
		n = e.subs[0].size(limit)
		if times := int(e.max); e.max != unbounded && n > 0 {
			n = min(limit, times) * n
		}
	}
	return min(n, limit)
}

// calls reports whether e refers to rules.
func (e *expr) calls() bool {
	if e.op == opRef {
		return true
	}
	for _, s := range e.subs {
		if s.calls() {
			return true
		}
	}
	return false
}

// runes is one character out of ranges (pairs of first and last), as UTF-8. Surrogates are left out: no UTF-8 has them.
func runes(ranges []rune) *expr {
	var alts []*expr
	for i := 0; i+1 < len(ranges); i += 2 {
		lo, hi := max(ranges[i], 0), min(ranges[i+1], 0x10FFFF)
		for _, part := range [][2]rune{{lo, min(hi, 0xD7FF)}, {max(lo, 0xE000), hi}} {
			if part[0] <= part[1] {
				alts = append(alts, utf8Range(part[0], part[1])...)
			}
		}
	}
	return alt(alts...)
}

// utf8Range splits the characters from lo to hi into products of byte ranges.
func utf8Range(lo, hi rune) []*expr {
	for _, last := range []rune{0x7F, 0x7FF, 0xFFFF} {
		if lo <= last && last < hi {
			return append(utf8Range(lo, last), utf8Range(last+1, hi)...)
		}
	}
	a, b := []byte(string(lo)), []byte(string(hi))
	return byteProducts(a, b)
}

// byteProducts returns the strings from a to b, of one length, whose bytes after the first run from 0x80 to 0xBF.
func byteProducts(a, b []byte) []*expr {
	if len(a) == 1 {
		return []*expr{byteRange(a[0], b[0])}
	}
	if a[0] == b[0] {
		return []*expr{cat(byteRange(a[0], a[0]), alt(byteProducts(a[1:], b[1:])...))}
	}
	first, last := make([]byte, len(a)-1), make([]byte, len(a)-1)
	for i := range first {
		first[i], last[i] = 0x80, 0xBF
	}
	var out []*expr
	from, to := int(a[0]), int(b[0])
	if string(a[1:]) != string(first) {
		out = append(out, cat(byteRange(a[0], a[0]), alt(byteProducts(a[1:], last)...)))
		from++
	}
	var tail []*expr
	if string(b[1:]) != string(last) {
		tail = append(tail, cat(byteRange(b[0], b[0]), alt(byteProducts(first, b[1:])...)))
		to--
	}
	if from <= to {
		out = append(out, cat(byteRange(byte(from), byte(to)), alt(byteProducts(first, last)...)))
	}
	return append(out, tail...)
}
