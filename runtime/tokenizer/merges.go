package tokenizer

import (
	"math/bits"
	"math/rand/v2"
)

// A merge is what becomes of two symbols that follow each other: of all pairs in a word that have one, the one with
// the lowest rank, and of these the leftmost, is made one symbol first.
type merge struct{ rank, id int32 }

// noMerge is of a pair that stays.
var noMerge = merge{rank: -1, id: -1}

// A mergeTable finds the merge of a pair of ids: a hash table of open addressing, several times faster than a map,
// which is most of what tokenizing costs. The multiplier is random, so that no file is slow for everyone; what is
// found does not depend on it.
type mergeTable struct {
	slots      []mergeSlot // a power of two, at most half of them used
	shift      uint8
	multiplier uint64
}

type mergeSlot struct {
	pair  uint64 // left<<32 | right, plus one: 0 is a free slot
	merge merge
}

func newMergeTable(n int) *mergeTable {
	size := bits.Len(uint(2*n + 1))
	return &mergeTable{
		slots:      make([]mergeSlot, 1<<size),
		shift:      uint8(64 - size),
		multiplier: rand.Uint64() | 1,
	}
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) + 1 }

func (t *mergeTable) slot(pair uint64) *mergeSlot {
	mask := uint64(len(t.slots) - 1)
	for i := pair * t.multiplier >> t.shift; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.pair == pair || s.pair == 0 {
			return s
		}
	}
}

// put enters a merge. It says whether it replaced one of the same pair.
func (t *mergeTable) put(left, right int32, m merge) bool {
	s := t.slot(pairKey(left, right))
	replaced := s.pair != 0
	*s = mergeSlot{pairKey(left, right), m}
	return replaced
}

func (t *mergeTable) get(left, right int32) merge {
	if s := t.slot(pairKey(left, right)); s.pair != 0 {
		return s.merge
	}
	return noMerge
}

// A pairFilter says of two initial symbols whether any token may contain them side by side. It never says no wrongly.
// Where it says no, no merge reaches across, and a word is two words.
type pairFilter struct {
	bits       []uint64
	shift      uint8
	multiplier uint64
}

// newPairFilter returns a filter for the pairs of n merges.
func newPairFilter(n int) *pairFilter {
	size := max(bits.Len(uint(n))+4, 6)
	return &pairFilter{bits: make([]uint64, 1<<(size-6)), shift: uint8(64 - size), multiplier: rand.Uint64() | 1}
}

func (f *pairFilter) place(left, right int32) (word, bit uint64) {
	h := pairKey(left, right) * f.multiplier >> f.shift
	return h >> 6, 1 << (h & 63)
}

func (f *pairFilter) add(left, right int32) {
	word, bit := f.place(left, right)
	f.bits[word] |= bit
}

func (f *pairFilter) may(left, right int32) bool {
	word, bit := f.place(left, right)
	return f.bits[word]&bit != 0
}
