package cache

import "crypto/sha256"

// Tier is slower storage, a folder on disk say, for what the tree evicts. Keys name contents: what was stored
// under a key never changes, and a tier may drop it at any time.
type Tier interface {
	// Has reports whether Load would find the key.
	Has(k Key) bool
	// Store copies the bytes of the units before it returns; they are given away after it. A tier that
	// cannot store them forgets them.
	Store(k Key, units []Unit)
	// Load fills the units with what was stored under k. They are of the same pools in the same order.
	Load(k Key, units []Unit) error
}

// Store stores all that the tree has in the tier, the longest unused first. The tree keeps it. It is for the end of a
// process.
func (p *Prefix) Store() {
	if p.tier == nil {
		return
	}
	for e := p.nodes.Back(); e != nil; e = e.Prev() {
		p.store(e.Value.(*node))
	}
}

// store stores the block and the checkpoint of a node, where it has them.
func (p *Prefix) store(n *node) {
	if n.block >= 0 {
		p.tier.Store(Key{Prefix: n.sum}, []Unit{{BlockPool, n.block}})
	}
	if n.mark != nil {
		p.tier.Store(Key{Prefix: n.sum, Checkpoint: true}, n.mark.units(p.mem.layout))
	}
}

// step is a whole block, or the rest of a prefix, on the way that fetch goes.
type step struct {
	key  string
	sum  [sha256.Size]byte
	pos  int
	node *node // nil: only the tier has it
}

// fetch brings a prefix of tokens back from the tier, where that is longer than what memory has. Without
// room for it, or with an error of the tier, the prompt is computed as if it had never been stored.
func (p *Prefix) fetch(tokens []int32) {
	if p.tier == nil || p.limit <= 0 {
		return
	}
	way := p.way(tokens)
	if len(way) == 0 {
		return
	}
	if d := p.wayDemand(way); !p.mem.Fits(d) {
		if !p.Reclaim(d) {
			return
		}
		// The eviction may have taken nodes of the way.
		if way = p.way(tokens); len(way) == 0 || !p.mem.Fits(p.wayDemand(way)) {
			return
		}
	}
	at := p.load(way)
	for at.parent != nil && len(at.children) == 0 && at.mark == nil && p.mem.layout.Checkpoints() {
		up := at.parent
		p.remove(at)
		at = up
	}
	p.touch(at)
}

// way returns the steps to the deepest position that the tier can resume a sequence at, nil where memory
// reaches as far.
func (p *Prefix) way(tokens []int32) []step {
	rows, here := p.mem.layout.BlockRows, p.Lookup(tokens).Pos
	way := []step{{node: p.root}}
	for pos := 0; pos+rows <= len(tokens); pos += rows {
		s, ok := p.stepTo(way[len(way)-1], tokens[pos:pos+rows])
		if !ok {
			break
		}
		way = append(way, s)
	}
	// The end of a sequence is a sibling of the whole block that starts with the same ids.
	for ; len(way) > 0; way = way[:len(way)-1] {
		at := way[len(way)-1]
		for n := min(rows-1, len(tokens)-at.pos); n > 0 && at.pos+n > here; n-- {
			if s, ok := p.stepTo(at, tokens[at.pos:at.pos+n]); ok && p.marked(s) {
				return append(way, s)[1:]
			}
		}
		if at.pos <= here {
			return nil
		}
		if p.marked(at) {
			return way[1:]
		}
	}
	return nil
}

// stepTo returns the step with the given ids after at, and whether memory or the tier has its block.
func (p *Prefix) stepTo(at step, tokens []int32) (step, bool) {
	s := step{key: key(tokens), pos: at.pos + len(tokens)}
	s.sum = extend(at.sum, s.key)
	if at.node != nil {
		s.node = at.node.children[s.key]
	}
	return s, s.node != nil || p.mem.layout.BlockBytes == 0 || p.tier.Has(Key{Prefix: s.sum})
}

// marked reports whether a sequence can resume after s.
func (p *Prefix) marked(s step) bool {
	return !p.mem.layout.Checkpoints() || s.node != nil && s.node.mark != nil ||
		p.tier.Has(Key{Prefix: s.sum, Checkpoint: true})
}

// wayDemand returns the units that load takes.
func (p *Prefix) wayDemand(way []step) Demand {
	l := p.mem.layout
	d := make(Demand, l.Pools())
	for _, s := range way {
		if s.node == nil && l.BlockBytes > 0 {
			d[BlockPool]++
		}
	}
	last := way[len(way)-1]
	if last.node == nil || last.node.mark == nil {
		for i := range l.Rings {
			d[l.RingPool(i)] = l.blocksFor(last.pos) - l.ringFirst(i, last.pos)
		}
		if l.SlotBytes > 0 {
			d[l.SlotPool()] = 1
		}
	}
	return d
}

// load puts the steps into the tree and returns the last node that it has.
func (p *Prefix) load(way []step) *node {
	l := p.mem.layout
	at := p.root
	for _, s := range way {
		if s.node != nil {
			at = s.node
			continue
		}
		block := int32(-1)
		if l.BlockBytes > 0 {
			block = p.mem.allot(BlockPool)
			p.mem.hold(BlockPool, block)
			p.mem.release(BlockPool, block)
			if p.tier.Load(Key{Prefix: s.sum}, []Unit{{BlockPool, block}}) != nil {
				p.mem.unhold(BlockPool, block)
				return at
			}
		}
		at = p.add(at, s.key, block)
	}
	if !l.Checkpoints() || at.mark != nil {
		return at
	}
	c := &checkpoint{slot: -1, rings: make([]Span, len(l.Rings))}
	for i := range l.Rings {
		c.rings[i].First = l.ringFirst(i, at.pos)
		for n := l.blocksFor(at.pos) - c.rings[i].First; n > 0; n-- {
			c.rings[i].Blocks = append(c.rings[i].Blocks, p.mem.allot(l.RingPool(i)))
		}
	}
	if l.SlotBytes > 0 {
		c.slot = p.mem.allot(l.SlotPool())
	}
	if p.tier.Load(Key{Prefix: at.sum, Checkpoint: true}, c.units(l)) == nil {
		p.mark(at, c)
	}
	c.each(l, p.mem.release)
	return at
}
