package cache

import "container/list"

// Reclaim gives units back, the longest unused first, until d units fit. It gives nothing back when all of it
// would not be enough, and reports whether d fits now.
//
// What running sequences hold stays, with one exception: a node in use below nodes that are not (a sequence
// that computed a prefix which the tree had already) is forgotten when nothing else is left. The sequence
// keeps its blocks.
func (p *Prefix) Reclaim(d Demand) bool {
	if !p.mem.FitsIdle(d) {
		return false
	}
	for !p.mem.Fits(d) {
		leaves := p.onlyBlocks(d)
		if !p.evict(leaves, false) && !p.evict(leaves, true) && !p.evict(false, true) {
			return false
		}
	}
	return true
}

// onlyBlocks reports whether d lacks nothing but blocks of full attention, which checkpoints of inner nodes
// do not free.
func (p *Prefix) onlyBlocks(d Demand) bool {
	if p.mem.used+p.mem.layout.Bytes(d) > p.mem.budget {
		return false
	}
	for i, n := range d {
		if Pool(i) != BlockPool && p.mem.pools[i].inUse+n > p.mem.pools[i].limit {
			return false
		}
	}
	return true
}

// Trim evicts until the tree holds no more than its limit beyond what sequences use. It is called when
// sequences have given something back.
func (p *Prefix) Trim() {
	for p.mem.Idle() > p.limit && p.evict(false, false) {
	}
}

// SetLimit changes the bytes that Trim leaves.
func (p *Prefix) SetLimit(limit int64) { p.limit = limit }

// On reports whether the tree keeps anything.
func (p *Prefix) On() bool { return p.limit > 0 }

// Clear forgets everything.
func (p *Prefix) Clear() {
	for p.evict(false, true) {
	}
}

// evict gives back the oldest spare checkpoint or, where there is none, the longest unused one, with the nodes that
// nobody can resume at without it; for layouts without checkpoints the longest unused leaf. With leaves it looks at
// leaves only; with force also at what sequences use. It reports whether there was something.
func (p *Prefix) evict(leaves, force bool) bool {
	if !p.mem.layout.Checkpoints() {
		for e := p.nodes.Back(); e != nil; e = e.Prev() {
			if n := e.Value.(*node); len(n.children) == 0 && (force || p.idleBlock(n)) {
				p.remove(n)
				return true
			}
		}
		return false
	}
	for _, marks := range []*list.List{p.spare, p.marks} {
		for e := marks.Back(); e != nil; e = e.Prev() {
			n := e.Value.(*node)
			leaf := len(n.children) == 0
			if leaves && !leaf || !force && !p.idleMark(n) && !(leaf && p.idleBlock(n)) {
				continue
			}
			p.forget(n)
			return true
		}
	}
	return false
}

// forget takes the checkpoint of n out of the tree, with the nodes that nobody can resume at without it.
func (p *Prefix) forget(n *node) {
	p.unmark(n)
	for n.parent != nil && len(n.children) == 0 && n.mark == nil {
		up := n.parent
		p.remove(n)
		n = up
	}
}

func (p *Prefix) idleBlock(n *node) bool { return n.block >= 0 && p.mem.isIdle(BlockPool, n.block) }

// idleMark reports whether some unit of the checkpoint of n is held by the tree alone.
func (p *Prefix) idleMark(n *node) bool {
	idle := false
	n.mark.each(p.mem.layout, func(at Pool, id int32) { idle = idle || p.mem.isIdle(at, id) })
	return idle
}

func (p *Prefix) unmark(n *node) {
	if p.tier != nil {
		p.tier.Store(Key{Prefix: n.sum, Checkpoint: true}, n.mark.units(p.mem.layout))
	}
	n.mark.each(p.mem.layout, p.mem.unhold)
	p.listOf(n.mark).Remove(n.mark.elem)
	n.mark = nil
}

// remove takes a leaf without checkpoint out of the tree.
func (p *Prefix) remove(n *node) {
	if n.block >= 0 {
		if p.tier != nil {
			p.tier.Store(Key{Prefix: n.sum}, []Unit{{BlockPool, n.block}})
		}
		p.mem.unhold(BlockPool, n.block)
	}
	p.nodes.Remove(n.elem)
	delete(n.parent.children, n.key)
}

// units returns the units of a checkpoint: the blocks of each ring in order, then the slot.
func (c *checkpoint) units(l Layout) []Unit {
	var u []Unit
	c.each(l, func(p Pool, id int32) { u = append(u, Unit{p, id}) })
	return u
}
