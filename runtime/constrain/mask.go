package constrain

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
)

// Limits of the cache of masks. A dense mask of 248,320 tokens takes 31 kB.
const (
	maxFrameMasks = 1024
	maxStateMasks = 256
	maxBehind     = 64 // for each frame
)

// masker makes the masks of one grammar over one vocabulary and keeps them by content. It is shared by the matchers of
// that pair; mu guards all of it.
type masker struct {
	mu     sync.Mutex
	m      *machine
	v      *Vocab
	frames map[string]*frameMask // by the content of the innermost frame
	states map[uint64]*tokenSet  // by state
	walked []*state              // scratch: the state at each depth of a walk
	key    []byte
}

// frameMask is what the innermost frame says about tokens, whatever is around it.
type frameMask struct {
	allowed tokenSet
	exits   []int32              // the trie's nodes after which the frame can have ended, where tokens go on
	behind  map[uint64]*tokenSet // the tokens that go on there, by the frames around
}

// tokenSet is a set of tokens: words of bits, or a list where that is shorter.
type tokenSet struct {
	words []uint64
	list  []int32
}

func (t *tokenSet) addTo(dst []uint64) {
	for i, w := range t.words {
		dst[i] |= w
	}
	for _, id := range t.list {
		dst[id>>6] |= 1 << (id & 63)
	}
}

// compact makes a set of a mask, which it may keep.
func compact(words []uint64) tokenSet {
	count := 0
	for _, w := range words {
		count += bits.OnesCount64(w)
	}
	if count >= len(words) {
		return tokenSet{words: words}
	}
	list := make([]int32, 0, count)
	for i, w := range words {
		for ; w != 0; w &= w - 1 {
			list = append(list, int32(i*64+bits.TrailingZeros64(w)))
		}
	}
	return tokenSet{list: list}
}

func newMasker(p *program, v *Vocab) *masker {
	return &masker{
		m: newMachine(p), v: v, frames: map[string]*frameMask{}, states: map[uint64]*tokenSet{},
		walked: make([]*state, v.longest+1),
	}
}

// mask adds the tokens allowed in s to dst, which is zero.
func (k *masker) mask(s *state, dst []uint64) {
	if t := k.states[s.id]; t != nil {
		t.addTo(dst)
		return
	}
	k.m.work = 0
	for from := 0; from < len(s.items); {
		to := from + 1
		for to < len(s.items) && s.items[from].up == s.items[to].up { // they are sorted by it
			to++
		}
		k.maskFrame(s.items[from:to], dst)
		from = to
	}
	if len(k.states) >= maxStateMasks {
		clear(k.states)
	}
	kept := compact(slices.Clone(dst))
	k.states[s.id] = &kept
}

// around returns the frames that continue after the items of one frame: those of the innermost rule that was not made
// for a repetition, and the waiting items of the rules up to it.
func (k *masker) around(items []item) (chain []item, up *frames) {
	at := items[0]
	up = at.up
	for up != nil && up != k.m.outside && len(up.items) == 1 && k.m.rules[k.m.pos[at.pos].rule].inner {
		at = up.items[0]
		chain = append(chain, at)
		up = at.up
	}
	return chain, up
}

// maskFrame adds the tokens that the items of one frame allow.
func (k *masker) maskFrame(items []item, dst []uint64) {
	chain, up := k.around(items)
	f := k.frame(items, chain)
	f.allowed.addTo(dst)
	if len(f.exits) == 0 || up == nil {
		return
	}
	t := f.behind[up.id]
	if t == nil {
		if up.behind == nil {
			for _, it := range up.items {
				k.m.add(it)
			}
			up.behind = k.m.finish()
		}
		words := make([]uint64, len(dst))
		if up.behind != k.m.dead && up.behind != k.m.complex {
			for _, n := range f.exits {
				k.walk(n, up.behind, words, nil)
			}
		}
		kept := compact(words)
		t = &kept
		if len(f.behind) >= maxBehind {
			clear(f.behind)
		}
		f.behind[up.id] = t
	}
	t.addTo(dst)
}

// frame returns the mask of items, as far as it does not depend on what follows chain.
func (k *masker) frame(items, chain []item) *frameMask {
	key := binary.AppendUvarint(k.key[:0], uint64(len(chain)))
	for _, it := range chain {
		key = k.appendItem(key, it)
	}
	for _, it := range items {
		key = k.appendItem(key, it)
	}
	k.key = key
	if f := k.frames[string(key)]; f != nil {
		return f
	}
	up := k.m.outside
	for _, it := range slices.Backward(chain) {
		k.m.frames = append(k.m.frames[:0], item{it.pos, k.clamp(it), up})
		up = k.m.internFrames()
	}
	for _, it := range items {
		k.m.add(item{it.pos, k.clamp(it), up})
	}
	// What the items call is items of other frames of the same state, so it is not begun again.
	s := k.m.bare()
	words := make([]uint64, k.v.MaskWords())
	f := &frameMask{behind: map[uint64]*tokenSet{}}
	k.walkAll(s, words, &f.exits)
	f.allowed = compact(words)
	if len(k.frames) >= maxFrameMasks {
		clear(k.frames)
	}
	k.frames[string(key)] = f
	return f
}

func (k *masker) appendItem(key []byte, it item) []byte {
	key = binary.AppendUvarint(key, uint64(it.pos))
	return binary.AppendUvarint(key, uint64(k.clamp(it)))
}

// clamp returns the least count that no token can tell from the item's: a turn takes at least a byte, so a token has at
// most as many turns as bytes.
func (k *masker) clamp(it item) int32 {
	r := &k.m.rules[k.m.pos[it.pos].rule]
	longest := int64(k.v.longest)
	count, least := int64(it.count), max(int64(r.min), 1)
	switch {
	case !r.counted:
		return 0
	case count+longest < least:
		return 0
	case count >= least && (r.max == unbounded || count+longest <= int64(r.max)):
		return int32(least)
	}
	return it.count
}

// walkAll adds the tokens that lead somewhere from s.
func (k *masker) walkAll(s *state, dst []uint64, exits *[]int32) {
	k.walked[0] = s
	k.walkRange(0, int32(len(k.v.char)), dst, exits)
}

// walk adds the tokens after node n of the trie that lead somewhere, if s is the state there.
func (k *masker) walk(n int32, s *state, dst []uint64, exits *[]int32) {
	k.walked[k.v.depth[n]] = s
	k.walkRange(n+1, k.v.skip[n], dst, exits)
}

func (k *masker) walkRange(from, to int32, dst []uint64, exits *[]int32) {
	v, m := k.v, k.m
	for i := from; i < to && m.work <= maxWork; {
		d := v.depth[i]
		b := v.char[i]
		at := k.walked[d-1]
		s := at.next[m.classOf[b]]
		if s == nil {
			s = m.step(at, b)
		}
		if s == m.dead || s == m.complex {
			i = v.skip[i]
			continue
		}
		k.walked[d] = s
		if s.escapes && exits != nil && v.skip[i] > i+1 {
			*exits = append(*exits, i)
		}
		if t := v.token[i]; t >= 0 {
			dst[t>>6] |= 1 << (t & 63)
			for _, t := range v.same[i] {
				dst[t>>6] |= 1 << (t & 63)
			}
		}
		i++
		if len(s.items) == 0 {
			i = v.skip[i-1]
		}
	}
}

// bare makes a state of the items noted alone, without the rules that they call.
func (m *machine) bare() *state {
	items := slices.DeleteFunc(m.items, func(it item) bool { return len(m.pos[it.pos].edges) == 0 || !m.turns(&it) })
	s := m.internState(items, false, false)
	m.items = m.items[:0]
	clear(m.known)
	return s
}
