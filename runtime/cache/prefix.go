package cache

import (
	"container/list"
	"crypto/sha256"
	"math"
)

// Prefix is a radix tree over token ids. An edge has the ids of one block, so that a node owns one block; the
// last node of a stored sequence may have fewer ids and then no children. For layouts with state that is
// overwritten (Layout.Checkpoints) nodes have checkpoints, and a sequence resumes only there; every leaf has
// one. For other layouts a sequence resumes at any node.
//
// What a node holds may be shared with running sequences. The tree gives back the longest unused first.
type Prefix struct {
	mem   *Memory
	limit int64 // bytes that the tree may hold beyond what sequences use
	tier  Tier
	root  *node
	nodes *list.List // all *node, the latest used first; a parent is before its children
	marks *list.List // each *node with a checkpoint that is not spare, the latest used first
	spare *list.List // each *node with a spare checkpoint (see InsertSpare), the latest stored first
	most  int        // the largest number of spare checkpoints
}

type node struct {
	parent   *node
	key      string // the ids of the edge
	pos      int    // positions at the end of the node
	full     bool   // the edge has the ids of a whole block
	block    int32  // -1 for layouts without full attention
	children map[string]*node
	mark     *checkpoint
	sum      [sha256.Size]byte // of the whole prefix
	elem     *list.Element     // in nodes
}

// checkpoint has everything that a sequence needs at a position except for the blocks of full attention.
type checkpoint struct {
	slot  int32 // -1 for layouts without recurrent state
	rings []Span
	elem  *list.Element // in marks, or in spare
	spare bool
}

// NewPrefix returns an empty tree. limit is the number of bytes that it may hold beyond what running
// sequences use; 0 switches it off. tier, which may be nil, gets what it evicts.
func NewPrefix(m *Memory, limit int64, tier Tier) *Prefix {
	return &Prefix{mem: m, limit: limit, tier: tier, nodes: list.New(), marks: list.New(), spare: list.New(),
		most: math.MaxInt, root: &node{block: -1, full: true, children: map[string]*node{}}}
}

// Hit says how much of a prompt the tree has.
type Hit struct {
	Pos     int // positions at which a sequence resumes: so many cached tokens
	Matched int // positions whose ids are in the tree, at least Pos; a checkpoint at Matched would have served
}

// Open returns a table at the longest prefix of tokens that a sequence can resume at. A caller that needs
// the logits of the last token leaves it out of tokens.
func (p *Prefix) Open(tokens []int32) (*Table, Hit) {
	p.fetch(tokens)
	path, hit := p.lookup(tokens)
	t := p.mem.NewTable()
	t.pos = hit.Pos
	if len(path) == 0 {
		return t, hit
	}
	l := p.mem.layout
	last := path[len(path)-1]
	if l.BlockBytes > 0 {
		for _, n := range path {
			t.blocks = append(t.blocks, n.block)
		}
	}
	if c := last.mark; c != nil {
		for i, r := range c.rings {
			t.rings[i] = Span{First: r.First, Blocks: append([]int32(nil), r.Blocks...)}
		}
		if c.slot >= 0 {
			t.states = []State{{Pos: hit.Pos, Slot: c.slot}}
		}
		p.use(last)
	}
	t.each(p.mem.retain)
	p.touch(last)
	return t, hit
}

// Lookup tells what Open would find in memory, and changes nothing.
func (p *Prefix) Lookup(tokens []int32) Hit {
	_, hit := p.lookup(tokens)
	return hit
}

// lookup returns the nodes up to the position where a sequence resumes.
func (p *Prefix) lookup(tokens []int32) ([]*node, Hit) {
	path := p.walk(tokens)
	var hit Hit
	if len(path) > 0 {
		hit.Matched = path[len(path)-1].pos
	}
	if !p.mem.layout.Checkpoints() {
		hit.Pos = hit.Matched
		return path, hit
	}
	// A node with fewer ids than a block is a sibling of the whole node that starts with the same ids.
	for depth := len(path); depth >= 0; depth-- {
		at := p.root
		if depth > 0 {
			at = path[depth-1]
		}
		if n := p.partial(at, tokens); n != nil {
			hit.Pos = n.pos
			return append(path[:depth:depth], n), hit
		}
		if at.mark != nil {
			hit.Pos = at.pos
			return path[:depth], hit
		}
	}
	return nil, hit
}

// walk returns the nodes along tokens, as deep as the tree has them.
func (p *Prefix) walk(tokens []int32) []*node {
	rows := p.mem.layout.BlockRows
	var path []*node
	at := p.root
	for at.pos+rows <= len(tokens) {
		next := at.children[key(tokens[at.pos:at.pos+rows])]
		if next == nil {
			break
		}
		path, at = append(path, next), next
	}
	if n := p.partial(at, tokens); n != nil {
		path = append(path, n)
	}
	return path
}

// partial returns the longest child of a whole node that has fewer ids than a block, all those of tokens.
func (p *Prefix) partial(at *node, tokens []int32) *node {
	if !at.full {
		return nil
	}
	for n := min(p.mem.layout.BlockRows-1, len(tokens)-at.pos); n > 0; n-- {
		if c := at.children[key(tokens[at.pos:at.pos+n])]; c != nil {
			return c
		}
	}
	return nil
}

// touch marks a path as used now, so that a parent stays in front of its children.
func (p *Prefix) touch(n *node) {
	for ; n.parent != nil; n = n.parent {
		p.nodes.MoveToFront(n.elem)
	}
}

// Insert stores the first pos positions of a sequence, whose ids are the first of tokens. Layouts with checkpoints need
// the state at pos, so pos is the table's position or that of a state which the last call stored; without that state
// nothing is stored. It returns the number of positions that the tree now has.
func (p *Prefix) Insert(tokens []int32, t *Table, pos int) int {
	return p.insert(tokens, t, pos, false)
}

// InsertSpare is Insert of a checkpoint that nobody is known to need. It is evicted before those of Insert, until a
// sequence resumes at it; and where there are as many as SetSpare allows, the oldest spare one goes.
func (p *Prefix) InsertSpare(tokens []int32, t *Table, pos int) int {
	n := p.insert(tokens, t, pos, true)
	for p.spare.Len() > p.most {
		p.forget(p.spare.Back().Value.(*node))
	}
	return n
}

// SetSpare changes the number of spare checkpoints that the tree holds at most. A new tree has no such limit.
func (p *Prefix) SetSpare(most int) { p.most = most }

func (p *Prefix) insert(tokens []int32, t *Table, pos int, spare bool) int {
	l := p.mem.layout
	if p.limit <= 0 || pos < 1 || pos > t.pos || !t.resumable(pos) {
		return 0
	}
	at := p.root
	for at.pos < pos {
		k := key(tokens[at.pos:min(at.pos+l.BlockRows, pos)])
		next := at.children[k]
		if next == nil {
			block := int32(-1)
			if l.BlockBytes > 0 {
				block = t.blocks[at.pos/l.BlockRows]
				p.mem.hold(BlockPool, block)
			}
			next = p.add(at, k, block)
		}
		at = next
	}
	if l.Checkpoints() {
		c := t.checkpoint(pos)
		c.spare = spare
		p.mark(at, c)
	}
	p.touch(at)
	return pos
}

// resumable reports whether the table has all that a sequence needs at pos.
func (t *Table) resumable(pos int) bool {
	l := t.mem.layout
	return !l.Checkpoints() || pos >= t.pos-t.rows && (l.SlotBytes == 0 || t.stateAt(pos) >= 0)
}

// add puts a node below at. The tree already holds the block.
func (p *Prefix) add(at *node, k string, block int32) *node {
	n := &node{parent: at, key: k, pos: at.pos + len(k)/4, full: len(k)/4 == p.mem.layout.BlockRows, block: block}
	if n.full {
		n.children = map[string]*node{}
	}
	if p.tier != nil {
		n.sum = extend(at.sum, k)
	}
	n.elem = p.nodes.PushFront(n)
	at.children[k] = n
	return n
}

// checkpoint returns what the table has at pos beside the blocks of full attention; nobody holds it yet.
func (t *Table) checkpoint(pos int) *checkpoint {
	l := t.mem.layout
	c := &checkpoint{slot: -1, rings: make([]Span, len(t.rings))}
	if l.SlotBytes > 0 {
		c.slot = t.stateAt(pos)
	}
	for i, r := range t.rings {
		first := l.ringFirst(i, pos)
		c.rings[i] = Span{First: first,
			Blocks: append([]int32(nil), r.Blocks[first-r.First:l.blocksFor(pos)-r.First]...)}
	}
	return c
}

// mark gives a node a checkpoint. One that it has already stays: both have the same contents.
func (p *Prefix) mark(n *node, c *checkpoint) {
	switch {
	case n.mark == nil:
		n.mark = c
		c.elem = p.listOf(c).PushFront(n)
		c.each(p.mem.layout, p.mem.hold)
	case c.spare && n.mark.spare:
		p.spare.MoveToFront(n.mark.elem)
	default:
		p.use(n)
	}
}

// listOf returns the list that a checkpoint stands in.
func (p *Prefix) listOf(c *checkpoint) *list.List {
	if c.spare {
		return p.spare
	}
	return p.marks
}

// use says that the checkpoint of n is needed now: a spare one becomes one as the others.
func (p *Prefix) use(n *node) {
	p.listOf(n.mark).Remove(n.mark.elem)
	n.mark.spare = false
	n.mark.elem = p.marks.PushFront(n)
}

// each calls f with every unit of the checkpoint.
func (c *checkpoint) each(l Layout, f func(Pool, int32)) {
	for i, r := range c.rings {
		for _, b := range r.Blocks {
			f(l.RingPool(i), b)
		}
	}
	if c.slot >= 0 {
		f(l.SlotPool(), c.slot)
	}
}
