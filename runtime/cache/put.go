package cache

import (
	"errors"
	"slices"
)

// Errors of Put.
var (
	// ErrNoRoom says that neither the budget nor the tree's limit has room for a prefix.
	ErrNoRoom = errors.New("the memory for caches has no room for it")
	// ErrOff says that the tree keeps nothing.
	ErrOff = errors.New("no prefixes are kept")
)

// None stands for a unit that need not be filled.
const None = -1

// Units returns the units of the table: the blocks of full attention, then those of each ring, each from its first one
// on, and the slot of the recurrent state. For a table from Open this is all that a sequence needs to continue.
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

// Put stores a prefix of at least one token whose contents come from elsewhere. fill copies the contents into the
// units, which are those of [Filling.Units]. After an error, also one of fill, the tree is unchanged.
func (p *Prefix) Put(tokens []int32, fill func(units []Unit) error) error {
	f, err := p.Fill(tokens)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := fill(f.Units()); err != nil {
		return err
	}
	return f.Commit()
}

// Filling is a prefix whose contents come from elsewhere, on its way into the tree. Until Commit or Close it holds its
// units, and what the tree has of the prefix: sequences may run meanwhile, and the tree may forget.
type Filling struct {
	prefix *Prefix
	tokens []int32
	units  []Unit
	blocks []int32     // of full attention, all of the prefix
	mark   *checkpoint // nil where the layout needs none
	closed bool
}

// Fill allots the units of a prefix: all of tokens, at least one. Errors are [ErrOff] and [ErrNoRoom].
func (p *Prefix) Fill(tokens []int32) (*Filling, error) {
	if !p.On() {
		return nil, ErrOff
	}
	path, d := p.missing(tokens)
	if !p.mem.Fits(d) {
		if !p.Reclaim(d) {
			return nil, ErrNoRoom
		}
		if path, d = p.missing(tokens); !p.mem.Fits(d) { // what was given back may be of the way
			return nil, ErrNoRoom
		}
	}
	f := &Filling{prefix: p, tokens: slices.Clone(tokens)}
	l := p.mem.layout
	for i := 0; l.BlockBytes > 0 && i < l.blocksFor(len(tokens)); i++ {
		id, unit := int32(None), int32(None)
		if i < len(path) {
			id = path[i].block
			p.mem.retain(BlockPool, id)
		} else {
			id = p.mem.allot(BlockPool)
			unit = id
		}
		f.blocks, f.units = append(f.blocks, id), append(f.units, Unit{BlockPool, unit})
	}
	if l.Checkpoints() {
		f.checkpoint(path)
	}
	return f, nil
}

// checkpoint adds that after the prefix: the tree's, where path ends with it, else a new one.
func (f *Filling) checkpoint(path []*node) {
	p := f.prefix
	if n := len(path); n > 0 && path[n-1].pos == len(f.tokens) && path[n-1].mark != nil {
		f.mark = &checkpoint{slot: path[n-1].mark.slot, rings: slices.Clone(path[n-1].mark.rings)}
		f.mark.each(p.mem.layout, p.mem.retain)
		for _, u := range f.mark.units(p.mem.layout) {
			f.units = append(f.units, Unit{u.Pool, None})
		}
		return
	}
	f.mark = p.newCheckpoint(len(f.tokens))
	f.units = append(f.units, f.mark.units(p.mem.layout)...)
}

// Units returns the units to be filled, in the order of [Table.Units]. Those that the tree has already have ID None.
func (f *Filling) Units() []Unit { return f.units }

// Commit makes the filled prefix part of the tree, and closes it. The error is [ErrNoRoom] where the tree's limit has
// no room for it; the tree holds nothing new then.
func (f *Filling) Commit() error {
	p := f.prefix
	l := p.mem.layout
	at := p.root
	for at.pos < len(f.tokens) {
		k := key(f.tokens[at.pos:min(at.pos+l.BlockRows, len(f.tokens))])
		next := at.children[k]
		if next == nil {
			block := int32(None)
			if l.BlockBytes > 0 {
				block = f.blocks[at.pos/l.BlockRows]
				p.mem.hold(BlockPool, block)
			}
			next = p.add(at, k, block)
		}
		at = next
	}
	if f.mark != nil {
		p.mark(at, f.mark)
	}
	p.touch(at)
	f.Close()
	if p.Trim(); p.Lookup(f.tokens).Pos < len(f.tokens) {
		return ErrNoRoom
	}
	return nil
}

// Close releases the units. It may be called more than once, and after Commit.
func (f *Filling) Close() {
	if f.closed {
		return
	}
	f.closed = true
	mem := f.prefix.mem
	for _, id := range f.blocks {
		mem.release(BlockPool, id)
	}
	if f.mark != nil {
		f.mark.each(mem.layout, mem.release)
	}
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

// newCheckpoint allocates a checkpoint at position pos.
func (p *Prefix) newCheckpoint(pos int) *checkpoint {
	l := p.mem.layout
	c := &checkpoint{slot: None, rings: make([]Span, len(l.Rings))}
	for i := range l.Rings {
		c.rings[i].First = l.ringFirst(i, pos)
		for n := l.blocksFor(pos) - c.rings[i].First; n > 0; n-- {
			c.rings[i].Blocks = append(c.rings[i].Blocks, p.mem.allot(l.RingPool(i)))
		}
	}
	if l.SlotBytes > 0 {
		c.slot = p.mem.allot(l.SlotPool())
	}
	return c
}
