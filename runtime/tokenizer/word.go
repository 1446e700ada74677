package tokenizer

import (
	"math"
	"unicode/utf8"
)

// A merger turns words into ids. It holds the memory that this takes, for one goroutine at a time.
type merger struct {
	model *bpe
	ids   []int32
	ranks []int32
	links []link
	queue []queued
}

// word appends the ids of a word to out. Before any merge, a word is its characters; then the best merge is applied
// until there is none. The time is O(n log n).
func (g *merger) word(out []int, word string) []int {
	m := g.model
	if m.whole != nil {
		if id, ok := m.whole[word]; ok {
			return append(out, int(id))
		}
	}
	if m.byteLevel {
		g.ids = m.splitBytes(g.ids[:0], word)
	} else {
		g.ids = m.splitCharacters(g.ids[:0], word)
	}
	for from, to := 0, 1; from < len(g.ids); to++ {
		if to == len(g.ids) || m.pairs != nil && !m.pairs.may(g.ids[to-1], g.ids[to]) {
			for _, id := range g.merge(g.ids[from:to]) {
				out = append(out, int(id))
			}
			from = to
		}
	}
	return out
}

// A splitter collects initial symbols. An unknown character is pending until it is clear that no other is to be fused
// with it: the library writes it before the next character that is known, and so after byte tokens in between.
type splitter struct {
	m       *bpe
	ids     []int32
	pending bool
}

func (p *splitter) add(s symbols) {
	switch {
	case s.unknown:
		if p.pending && !p.m.fuseUnknown {
			p.ids = append(p.ids, p.m.unknown)
		}
		p.pending = true
		return
	case s.known:
		p.flush()
	}
	p.ids = append(p.ids, s.ids...)
}

func (p *splitter) flush() {
	if p.pending {
		p.ids = append(p.ids, p.m.unknown)
		p.pending = false
	}
}

// splitBytes appends the initial symbols of a word of bytes.
func (m *bpe) splitBytes(ids []int32, word string) []int32 {
	p := splitter{m: m, ids: ids}
	for i := range len(word) {
		if s := &m.bytes[word[i]]; s.known && !p.pending {
			p.ids = append(p.ids, s.ids[0])
		} else {
			p.add(*s)
		}
	}
	p.flush()
	return p.ids
}

// splitCharacters appends the initial symbols of a word.
func (m *bpe) splitCharacters(ids []int32, word string) []int32 {
	p := splitter{m: m, ids: ids}
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		s := word[i : i+n]
		if i > 0 && m.prefix != "" {
			s = m.prefix + s
		}
		if i += n; i == len(word) && m.suffix != "" {
			s += m.suffix
		}
		id := int32(-1)
		if len(s) == 1 {
			id = m.ascii[s[0]]
		} else {
			id = m.vocab.id(s)
		}
		if id >= 0 {
			p.flush()
			p.ids = append(p.ids, id)
		} else {
			p.add(m.symbolsOf(s))
		}
	}
	p.flush()
	return p.ids
}

// shortWord is up to how many symbols looking through all of them beats a queue.
const shortWord = 48

func (g *merger) merge(ids []int32) []int32 {
	switch {
	case len(ids) < 2:
		return ids
	case len(ids) <= shortWord && !g.model.uneven:
		return g.mergeShort(ids)
	default:
		return g.mergeLong(ids)
	}
}

// mergeShort merges in place, each time looking for the best pair among all.
func (g *merger) mergeShort(ids []int32) []int32 {
	merges := g.model.merges
	const none = math.MaxInt32
	rank := func(i int) int32 {
		if i < 0 || i+1 >= len(ids) {
			return none
		}
		if m := merges.get(ids[i], ids[i+1]); m.rank >= 0 {
			return m.rank
		}
		return none
	}
	ranks := g.ranks[:0]
	for i := range ids {
		ranks = append(ranks, rank(i))
	}
	g.ranks = ranks
	for {
		best, at := int32(none), 0
		for i, r := range ranks {
			if r < best {
				best, at = r, i
			}
		}
		if best == none {
			return ids
		}
		ids[at] = merges.get(ids[at], ids[at+1]).id
		ids = append(ids[:at+1], ids[at+2:]...)
		ranks = append(ranks[:at+1], ranks[at+2:]...)
		ranks[at] = rank(at)
		if at > 0 {
			ranks[at-1] = rank(at - 1)
		}
	}
}

// A link is a symbol in a list: the indices of its neighbours, -1 at the ends. A symbol that has become part of the
// one on its left is gone.
type link struct {
	id         int32
	prev, next int32
	gone       bool
}

// A queued is a merge that was possible for the symbol at pos and the one after it.
type queued struct {
	merge
	pos int32
}

func (a queued) before(b queued) bool { return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos }

// mergeLong merges with a queue of the possible merges.
func (g *merger) mergeLong(ids []int32) []int32 {
	merges := g.model.merges
	links := g.links[:0]
	for i, id := range ids {
		links = append(links, link{id: id, prev: int32(i) - 1, next: int32(i) + 1})
	}
	links[len(links)-1].next = -1
	g.links, g.queue = links, g.queue[:0]
	for i := range len(ids) - 1 {
		if m := merges.get(ids[i], ids[i+1]); m.rank >= 0 {
			g.queue = append(g.queue, queued{m, int32(i)})
		}
	}
	for i := len(g.queue)/2 - 1; i >= 0; i-- {
		g.sink(i)
	}
	push := func(pos int32) {
		if next := links[pos].next; next >= 0 {
			if m := merges.get(links[pos].id, links[next].id); m.rank >= 0 {
				g.push(queued{m, pos})
			}
		}
	}
	for len(g.queue) > 0 {
		q := g.pop()
		left := &links[q.pos]
		if left.gone || left.next < 0 {
			continue
		}
		right := &links[left.next]
		// What was queued may be out of date. The library asks whether what is there now has the same product.
		if merges.get(left.id, right.id).id != q.id {
			continue
		}
		left.id, left.next = q.id, right.next
		right.gone = true
		if left.next >= 0 {
			links[left.next].prev = q.pos
		}
		if left.prev >= 0 {
			push(left.prev)
		}
		push(q.pos)
	}
	out := ids[:0]
	for i := int32(0); i >= 0; i = links[i].next {
		out = append(out, links[i].id)
	}
	return out
}

func (g *merger) push(q queued) {
	g.queue = append(g.queue, q)
	for i := len(g.queue) - 1; i > 0; {
		up := (i - 1) / 2
		if !g.queue[i].before(g.queue[up]) {
			return
		}
		g.queue[i], g.queue[up] = g.queue[up], g.queue[i]
		i = up
	}
}

func (g *merger) pop() queued {
	top := g.queue[0]
	last := len(g.queue) - 1
	g.queue[0] = g.queue[last]
	g.queue = g.queue[:last]
	g.sink(0)
	return top
}

func (g *merger) sink(i int) {
	q := g.queue
	for {
		down := 2*i + 1
		if down >= len(q) {
			return
		}
		if right := down + 1; right < len(q) && q[right].before(q[down]) {
			down = right
		}
		if !q[down].before(q[i]) {
			return
		}
		q[i], q[down] = q[down], q[i]
		i = down
	}
}
