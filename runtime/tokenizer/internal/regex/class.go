package regex

import (
	"slices"
	"unicode/utf8"

	"github.com/etc-ml/etc/runtime/tokenizer/internal/ucd"
)

// A class is a set of characters: the union of ranges, properties and other classes, negated or not, and of that only
// what is in every class of and.
type class struct {
	negated bool
	ranges  []ucd.Range
	any     ucd.Mask // one of these properties is enough
	union   []*class
	and     []*class
}

func (c *class) has(r rune) bool {
	in := ucd.Of(r)&c.any != 0 ||
		slices.ContainsFunc(c.ranges, func(x ucd.Range) bool { return x.Lo <= r && r <= x.Hi }) ||
		slices.ContainsFunc(c.union, func(x *class) bool { return x.has(r) })
	if in {
		in = !slices.ContainsFunc(c.and, func(x *class) bool { return !x.has(r) })
	}
	return in != c.negated
}

func single(r rune) *class { return &class{ranges: []ucd.Range{{Lo: r, Hi: r}}} }

// A set is a class made ready for matching.
type set struct {
	ascii [2]uint64
	other *class
}

func (c *class) compile() set {
	s := set{other: c}
	for r := range rune(utf8.RuneSelf) {
		if c.has(r) {
			s.ascii[r>>6] |= 1 << (r & 63)
		}
	}
	return s
}

func (s *set) has(r rune) bool {
	if r < utf8.RuneSelf {
		return s.ascii[r>>6]>>(r&63)&1 != 0
	}
	return s.other.has(r)
}
