package cache

import "errors"

// Errors of Put.
var (
	// ErrNoRoom says that neither the budget nor the tree's limit has room for a prefix.
	ErrNoRoom = errors.New("the memory for caches has no room for it")
	// ErrOff says that the tree keeps nothing.
	ErrOff = errors.New("no prefixes are kept")
)

// None stands for a unit that need not be filled.
const None = -1

// Units are what the table holds: the blocks of full attention, those of each ring, each from its first one on, and the
// slot of the recurrent state. Of a table that Open gave it is all that a sequence needs to go on.
func (t *Table) Units() []Unit {
	var out []Unit
	for _, b := range t.blocks {
		out = append(out, Unit{BlockPool, b})
	}
	for i, r := range t.rings {
		for _, b := range r.Blocks {
			out = append(out, Unit{t.mem.layout.RingPool(i), b})
		}
	}
	for _, s := range t.states {
		out = append(out, Unit{t.mem.layout.SlotPool(), s.Slot})
	}
	return out
}

// Put keeps a prefix whose contents come from elsewhere: all of tokens, at least one. fill copies the contents into the
// units, which are in the order of [Table.Units]; of those that the tree has already the ID is None. After an error,
// that of fill too, the tree holds nothing new.
func (p *Prefix) Put(tokens []int32, fill func(units []Unit) error) error {
	if !p.On() {
		return ErrOff
	}
	path, d := p.missing(tokens)
	if !p.mem.Fits(d) {
		if !p.Reclaim(d) {
			return ErrNoRoom
		}
		if path, d = p.missing(tokens); !p.mem.Fits(d) { // what was given back may be of the way
			return ErrNoRoom
		}
	}
	l := p.mem.layout
	n := 0
	if l.BlockBytes > 0 {
		n = l.blocksFor(len(tokens))
	}
	units := make([]Unit, n)
	for i := range units {
		units[i] = Unit{BlockPool, None}
		if i >= len(path) {
			units[i].ID = p.mem.allot(BlockPool)
		}
	}
	c := p.newCheckpoint(tokens, path)
	units = append(units, p.unitsOf(c, len(tokens))...)
	err := fill(units)
	if err == nil {
		p.put(tokens, path, units[:n], c)
	}
	for _, u := range units {
		if u.ID != None {
			p.mem.release(u.Pool, u.ID)
		}
	}
	if err != nil {
		return err
	}
	if p.Trim(); p.Lookup(tokens).Pos < len(tokens) {
		return ErrNoRoom
	}
	return nil
}

// missing returns the nodes on the way to a prefix that the tree has, and the units of what it lacks.
func (p *Prefix) missing(tokens []int32) (path []*node, d Demand) {
	l := p.mem.layout
	at := p.root
	for at.pos < len(tokens) {
		next := at.children[key(tokens[at.pos:min(at.pos+l.BlockRows, len(tokens))])]
		if next == nil {
			break
		}
		path, at = append(path, next), next
	}
	d = make(Demand, l.Pools())
	if l.BlockBytes > 0 {
		d[BlockPool] = l.blocksFor(len(tokens)) - len(path)
	}
	if at.pos < len(tokens) || at.mark == nil {
		for i := range l.Rings {
			d[l.RingPool(i)] = l.blocksFor(len(tokens)) - l.ringFirst(i, len(tokens))
		}
		if l.SlotBytes > 0 {
			d[l.SlotPool()] = 1
		}
	}
	return path, d
}

// newCheckpoint allots a checkpoint behind tokens; nil where the tree has it, or the layout needs none.
func (p *Prefix) newCheckpoint(tokens []int32, path []*node) *checkpoint {
	l := p.mem.layout
	if n := len(path); !l.Checkpoints() || n > 0 && path[n-1].pos == len(tokens) && path[n-1].mark != nil {
		return nil
	}
	c := &checkpoint{slot: None, rings: make([]Span, len(l.Rings))}
	for i := range l.Rings {
		c.rings[i].First = l.ringFirst(i, len(tokens))
		for n := l.blocksFor(len(tokens)) - c.rings[i].First; n > 0; n-- {
			c.rings[i].Blocks = append(c.rings[i].Blocks, p.mem.allot(l.RingPool(i)))
		}
	}
	if l.SlotBytes > 0 {
		c.slot = p.mem.allot(l.SlotPool())
	}
	return c
}

// unitsOf are the units of a checkpoint at pos, with None for one that the tree has.
func (p *Prefix) unitsOf(c *checkpoint, pos int) []Unit {
	l := p.mem.layout
	if c != nil {
		return c.units(l)
	}
	var out []Unit
	for i := range l.Rings {
		for range l.blocksFor(pos) - l.ringFirst(i, pos) {
			out = append(out, Unit{l.RingPool(i), None})
		}
	}
	if l.SlotBytes > 0 {
		out = append(out, Unit{l.SlotPool(), None})
	}
	return out
}

// put adds the nodes of a prefix behind those of path.
func (p *Prefix) put(tokens []int32, path []*node, blocks []Unit, c *checkpoint) {
	l := p.mem.layout
	at := p.root
	if n := len(path); n > 0 {
		at = path[n-1]
	}
	for at.pos < len(tokens) {
		block := int32(None)
		if l.BlockBytes > 0 {
			block = blocks[at.pos/l.BlockRows].ID
			p.mem.hold(BlockPool, block)
		}
		at = p.add(at, key(tokens[at.pos:min(at.pos+l.BlockRows, len(tokens))]), block)
	}
	if c != nil {
		p.mark(at, c)
	}
	p.touch(at)
}
