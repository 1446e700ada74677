package cache

import "fmt"

// Layout says what one sequence of a model holds. Layers that grow together share a block: one number names
// the rows of all layers with full attention, a draft's own layers included.
type Layout struct {
	BlockRows  int    // positions in a block, at least 1
	BlockBytes int64  // bytes of a block of all layers with full attention; 0: there are none
	Rings      []Ring // groups of layers with a sliding window, one per window
	SlotBytes  int64  // bytes of the recurrent and convolution state of a sequence; 0: there is none
}

// Ring describes layers whose attention sees the last Window positions, the own one included.
type Ring struct {
	Window     int   // positions, at least 1
	BlockBytes int64 // bytes of a block of all these layers
}

// Pool numbers the kinds of units: BlockPool, then one per ring, then the slots.
type Pool int

// BlockPool is the pool of blocks with full attention.
const BlockPool Pool = 0

// RingPool returns the pool of the blocks of ring i.
func (l Layout) RingPool(i int) Pool { return Pool(1 + i) }

// SlotPool returns the pool of the slots of recurrent state.
func (l Layout) SlotPool() Pool { return Pool(1 + len(l.Rings)) }

// Pools returns the number of pools.
func (l Layout) Pools() int { return 2 + len(l.Rings) }

// UnitBytes returns the bytes of one block or slot of a pool. It is 0 for a pool that the layout lacks.
func (l Layout) UnitBytes(p Pool) int64 {
	switch {
	case p == BlockPool:
		return l.BlockBytes
	case p == l.SlotPool():
		return l.SlotBytes
	}
	return l.Rings[p-1].BlockBytes
}

// Checkpoints reports whether a sequence can only be resumed where a checkpoint was taken: it has state that
// does not grow with position and is overwritten on the way.
func (l Layout) Checkpoints() bool { return l.SlotBytes > 0 || len(l.Rings) > 0 }

// Validate returns an error that names the field which is out of range.
func (l Layout) Validate() error {
	if l.BlockRows < 1 {
		return fmt.Errorf("cache layout: BlockRows is %d, want at least 1", l.BlockRows)
	}
	if l.BlockBytes < 0 || l.SlotBytes < 0 {
		return fmt.Errorf("cache layout: BlockBytes %d and SlotBytes %d must not be negative",
			l.BlockBytes, l.SlotBytes)
	}
	for i, r := range l.Rings {
		if r.Window < 1 || r.BlockBytes < 1 {
			return fmt.Errorf("cache layout: ring %d has window %d and %d bytes a block, want at least 1 of each",
				i, r.Window, r.BlockBytes)
		}
	}
	return nil
}

// blocksFor returns the number of blocks that hold n positions.
func (l Layout) blocksFor(n int) int { return (n + l.BlockRows - 1) / l.BlockRows }

// ringFirst returns the number of the first block that a query at position pos still reads in ring i.
func (l Layout) ringFirst(i, pos int) int { return max(0, pos-l.Rings[i].Window+1) / l.BlockRows }

// checkpoint returns the most units that a checkpoint holds beside the blocks of full attention.
func (l Layout) checkpoint() Demand {
	d := make(Demand, l.Pools())
	for i, r := range l.Rings {
		d[l.RingPool(i)] = l.blocksFor(r.Window) + 1
	}
	if l.SlotBytes > 0 {
		d[l.SlotPool()] = 1
	}
	return d
}

// Running returns the units that so many sequences hold in calls of at most rows rows together, without the blocks of
// full attention, drafts and checkpoints.
func (l Layout) Running(sequences, rows int) Demand {
	d := l.checkpoint() // what a sequence needs to go on is what a checkpoint has
	for i := range d {
		d[i] *= sequences
	}
	for i := range l.Rings {
		d[l.RingPool(i)] += l.blocksFor(rows)
	}
	d[l.SlotPool()] *= 2 // a shared state that is read and the one that is written
	return d
}

// Demand is a number of units of each pool.
type Demand []int

// Add adds o to d.
func (d Demand) Add(o Demand) {
	for i, n := range o {
		d[i] += n
	}
}

// Bytes returns the bytes of all units of d.
func (l Layout) Bytes(d Demand) int64 {
	var sum int64
	for i, n := range d {
		sum += int64(n) * l.UnitBytes(Pool(i))
	}
	return sum
}

// Most returns the most units that a sequence of the given length ever holds, in calls of at most rows rows,
// without drafts and checkpoints. A budget below that cannot run the sequence at all.
func (l Layout) Most(length, rows int) Demand {
	d := make(Demand, l.Pools())
	if l.BlockBytes > 0 {
		d[BlockPool] = l.blocksFor(length) + 1 // the copy of a shared block
	}
	for i, r := range l.Rings {
		d[l.RingPool(i)] = min(l.blocksFor(length), l.blocksFor(r.Window+rows)+1) + 1
	}
	if l.SlotBytes > 0 {
		d[l.SlotPool()] = 2 // a shared state that is read and the one that is written
	}
	return d
}

// Least returns the units that a sequence of a few tokens holds while its calls verify drafts drafts.
func (l Layout) Least(drafts int) Demand {
	d := make(Demand, l.Pools())
	if l.BlockBytes > 0 {
		d[BlockPool] = 1
	}
	for i := range l.Rings {
		d[l.RingPool(i)] = 1
	}
	if l.SlotBytes > 0 {
		if d[l.SlotPool()] = 1; drafts > 0 {
			d[l.SlotPool()] = drafts + 2
		}
	}
	return d
}
