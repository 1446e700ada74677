package cache

import (
	"fmt"
	"slices"
)

// Span is a run of blocks of one sequence: Blocks[i] holds the positions from (First+i)*BlockRows on.
type Span struct {
	First  int
	Blocks []int32
}

// State is a slot that holds the recurrent state after the first Pos positions of a sequence.
type State struct {
	Pos  int
	Slot int32
}

// Copy is a block whose bytes must be in another one before a call runs.
type Copy struct {
	Pool     Pool
	From, To int32
}

// Extent is the memory that a table needs for a call.
type Extent struct {
	Rows int // positions that the call adds, at least 1
	// Checkpoints are the numbers of rows, ascending and below Rows, after which the call also keeps the state.
	Checkpoints []int
	// Exact keeps the states before and after every row, so that any number of rows can be rolled back.
	Exact bool
}

// Table has the units of one sequence: the blocks and states of its first Pos positions. A table starts empty
// (Memory.NewTable), as a fork of another one, or at a prefix in the tree (Prefix.Open).
type Table struct {
	mem    *Memory
	pos    int
	blocks []int32
	rings  []Span
	states []State // by ascending position; between calls there is only the one at pos
	rows   int     // the number of rows of the last call that can still be rolled back
	inCall int     // the number of rows that Begin made room for; 0 outside of a call
	closed bool
}

// NewTable returns a table of no positions, which holds nothing.
func (m *Memory) NewTable() *Table {
	return &Table{mem: m, rings: make([]Span, len(m.layout.Rings))}
}

// Pos returns the number of positions that the table holds.
func (t *Table) Pos() int { return t.pos }

// Blocks returns the blocks of full attention, from position 0 on. The slice changes with the next Begin.
func (t *Table) Blocks() []int32 { return t.blocks }

// Rings returns the blocks of each sliding window. They change with the next Begin.
func (t *Table) Rings() []Span { return t.rings }

func (t *Table) stateAt(pos int) int32 {
	for _, s := range t.states {
		if s.Pos == pos {
			return s.Slot
		}
	}
	return -1
}

// Demand returns the units that Begin takes for x. It releases what the last call stored for a rollback, and blocks
// that the windows have left.
func (t *Table) Demand(x Extent) Demand {
	t.Settle()
	t.trim()
	l := t.mem.layout
	d := make(Demand, l.Pools())
	end := l.blocksFor(t.pos + x.Rows)
	if l.BlockBytes > 0 {
		d[BlockPool] = end - len(t.blocks) + t.copies(BlockPool, t.blocks)
	}
	for i, r := range t.rings {
		p := l.RingPool(i)
		d[p] = end - max(r.First+len(r.Blocks), l.ringFirst(i, t.pos)) + t.copies(p, r.Blocks)
	}
	if l.SlotBytes > 0 {
		d[l.SlotPool()] = t.newSlots(x)
	}
	return d
}

// newSlots returns the number of slots that x needs in addition to those of the table.
func (t *Table) newSlots(x Extent) int {
	if x.Exact {
		return x.Rows
	}
	if t.inPlace(x) {
		return len(x.Checkpoints)
	}
	return len(x.Checkpoints) + 1
}

// inPlace reports whether the call of x may overwrite the state that it reads.
func (t *Table) inPlace(x Extent) bool {
	return !x.Exact && len(t.states) == 1 && !t.mem.shared(t.mem.layout.SlotPool(), t.states[0].Slot)
}

// copies returns 1 where the last block is written further and somebody else holds it too.
func (t *Table) copies(p Pool, blocks []int32) int {
	n := len(blocks)
	if n > 0 && t.pos%t.mem.layout.BlockRows != 0 && t.mem.shared(p, blocks[n-1]) {
		return 1
	}
	return 0
}

// Begin makes room for a call and returns the copies that must be done before it, one after the other. It takes exactly
// the units that Demand returns; without room for them it returns false and takes nothing.
func (t *Table) Begin(x Extent) ([]Copy, bool) {
	if t.inCall > 0 || t.closed || x.Rows < 1 {
		panic(fmt.Sprintf("cache: Begin of %d rows in a call of %d, closed %v", x.Rows, t.inCall, t.closed))
	}
	if !t.mem.Fits(t.Demand(x)) {
		return nil, false
	}
	l := t.mem.layout
	var copies []Copy
	if l.BlockBytes > 0 {
		t.blocks = t.grow(BlockPool, 0, t.blocks, x.Rows, &copies)
	}
	for i := range t.rings {
		r := &t.rings[i]
		if len(r.Blocks) == 0 {
			r.First = l.ringFirst(i, t.pos)
		}
		r.Blocks = t.grow(l.RingPool(i), r.First, r.Blocks, x.Rows, &copies)
	}
	if l.SlotBytes > 0 {
		t.beginStates(x)
	}
	t.inCall = x.Rows
	return copies, true
}

// Shares reports whether Begin of a call would return copies: somebody else holds a block that the call writes further.
func (t *Table) Shares() bool {
	shares := t.copies(BlockPool, t.blocks) > 0
	for i, r := range t.rings {
		shares = shares || t.copies(t.mem.layout.RingPool(i), r.Blocks) > 0
	}
	return shares
}

// grow extends a list of blocks, whose first one has number first, by room for rows more positions that the table may
// write.
func (t *Table) grow(p Pool, first int, blocks []int32, rows int, copies *[]Copy) []int32 {
	if n := len(blocks); t.copies(p, blocks) > 0 {
		own := t.mem.allot(p)
		*copies = append(*copies, Copy{Pool: p, From: blocks[n-1], To: own})
		t.mem.release(p, blocks[n-1])
		blocks = append(append([]int32(nil), blocks[:n-1]...), own)
	}
	for first+len(blocks) < t.mem.layout.blocksFor(t.pos+rows) {
		blocks = append(blocks, t.mem.allot(p))
	}
	return blocks
}

func (t *Table) beginStates(x Extent) {
	at, keep := t.mem.layout.SlotPool(), x.Checkpoints
	if x.Exact {
		keep = nil
		for r := 1; r < x.Rows; r++ {
			keep = append(keep, r)
		}
	}
	last := int32(-1)
	if t.inPlace(x) {
		last, t.states = t.states[0].Slot, t.states[:0]
	}
	for i, r := range keep {
		if r < 1 || r >= x.Rows || i > 0 && r <= keep[i-1] {
			panic(fmt.Sprintf("cache: states to keep %v are not ascending below %d rows", keep, x.Rows))
		}
		t.states = append(t.states, State{Pos: t.pos + r, Slot: t.mem.allot(at)})
	}
	if last < 0 {
		last = t.mem.allot(at)
	}
	t.states = append(t.states, State{Pos: t.pos + x.Rows, Slot: last})
}

// Reads returns the slot that the call reads, -1 for the state of no positions. It is the slot of the last of
// Writes where the state is updated in place.
func (t *Table) Reads() int32 {
	if s := t.stateAt(t.pos); s >= 0 || len(t.states) == 0 || t.pos == 0 {
		return s
	}
	return t.states[len(t.states)-1].Slot
}

// Writes returns the states that the call leaves, ascending by position; the last is that after all rows.
func (t *Table) Writes() []State {
	w := t.states
	for len(w) > 0 && w[0].Pos <= t.pos {
		w = w[1:]
	}
	return append([]State(nil), w...)
}

// End says that the call has run: its rows are positions of the sequence.
func (t *Table) End() {
	if t.inCall == 0 {
		panic("cache: End without Begin")
	}
	t.pos += t.inCall
	t.rows, t.inCall = t.inCall, 0
}

// Rollback takes the last n positions back, at most the rows of the last call together. Layouts with
// recurrent state need one that the call kept (Extent.Exact, or one of Extent.Checkpoints).
func (t *Table) Rollback(n int) error {
	pos := t.pos - n
	switch {
	case t.inCall > 0:
		return fmt.Errorf("roll back %d positions: a call is running", n)
	case n < 0 || n > t.rows:
		return fmt.Errorf("roll back %d positions: the last call has %d left to take back", n, t.rows)
	case t.mem.layout.SlotBytes > 0 && pos > 0 && t.stateAt(pos) < 0:
		return fmt.Errorf("roll back %d positions: no state was kept after %d; run the call with Exact", n, pos)
	}
	l := t.mem.layout
	t.pos, t.rows = pos, t.rows-n
	end := l.blocksFor(pos)
	if l.BlockBytes > 0 {
		t.blocks = t.cut(BlockPool, t.blocks, end)
	}
	for i := range t.rings {
		r := &t.rings[i]
		r.Blocks = t.cut(l.RingPool(i), r.Blocks, max(0, end-r.First))
	}
	return nil
}

// cut releases the blocks from n on.
func (t *Table) cut(p Pool, blocks []int32, n int) []int32 {
	for len(blocks) > n {
		t.mem.release(p, blocks[len(blocks)-1])
		blocks = blocks[:len(blocks)-1]
	}
	return blocks
}

// Settle gives back the states that were kept for a rollback or a checkpoint. No position before the
// present one can be had again.
func (t *Table) Settle() {
	if t.inCall > 0 {
		panic("cache: Settle in a call")
	}
	kept := t.states[:0]
	for _, s := range t.states {
		if s.Pos == t.pos {
			kept = append(kept, s)
		} else {
			t.mem.release(t.mem.layout.SlotPool(), s.Slot)
		}
	}
	t.states, t.rows = kept, 0
}

// trim gives back the blocks that no later position sees.
func (t *Table) trim() {
	for i := range t.rings {
		r := &t.rings[i]
		for first := t.mem.layout.ringFirst(i, t.pos); r.First < first && len(r.Blocks) > 0; r.First++ {
			t.mem.release(t.mem.layout.RingPool(i), r.Blocks[0])
			r.Blocks = r.Blocks[1:]
		}
	}
}

// Fork returns a second sequence at the same position. Both hold the same blocks and the same state; each
// gets a copy of what it writes.
func (t *Table) Fork() *Table {
	if t.inCall > 0 || t.closed {
		panic("cache: Fork in a call, or of a closed table")
	}
	t.Settle()
	f := &Table{mem: t.mem, pos: t.pos, blocks: append([]int32(nil), t.blocks...),
		rings: make([]Span, len(t.rings)), states: append([]State(nil), t.states...)}
	for i, r := range t.rings {
		f.rings[i] = Span{First: r.First, Blocks: append([]int32(nil), r.Blocks...)}
	}
	f.each(t.mem.retain)
	return f
}

// Close gives everything back. A table of a call that failed is closed without End.
func (t *Table) Close() {
	if t.closed {
		return
	}
	t.each(t.mem.release)
	*t = Table{mem: t.mem, closed: true}
}

// each calls f with every unit that the table holds, the last blocks first: units that are given back in this order are
// had again in ascending order, and engines read blocks with numbers one after the other at once.
func (t *Table) each(f func(Pool, int32)) {
	l := t.mem.layout
	for _, b := range slices.Backward(t.blocks) {
		f(BlockPool, b)
	}
	for i, r := range t.rings {
		for _, b := range slices.Backward(r.Blocks) {
			f(l.RingPool(i), b)
		}
	}
	for _, s := range t.states {
		f(l.SlotPool(), s.Slot)
	}
}

// Outstanding returns the units that the table still takes until it holds length positions, in calls of at
// most rows rows, the last one with drafts rows to verify beside the token. Admission adds them up.
func (t *Table) Outstanding(length, rows, drafts int) Demand {
	l := t.mem.layout
	d := make(Demand, l.Pools())
	end := l.blocksFor(max(length, t.pos) + drafts)
	if l.BlockBytes > 0 {
		d[BlockPool] = max(0, end-len(t.blocks)) + t.copies(BlockPool, t.blocks)
	}
	for i, r := range l.Rings {
		peak := min(end, l.blocksFor(r.Window+rows)+1)
		p := l.RingPool(i)
		d[p] = max(0, peak-len(t.rings[i].Blocks)) + t.copies(p, t.rings[i].Blocks)
	}
	if l.SlotBytes > 0 {
		n := 1
		if len(t.states) == 1 && !t.mem.shared(l.SlotPool(), t.states[0].Slot) {
			n = 0
		}
		if drafts > 0 {
			n += drafts + 1
		}
		d[l.SlotPool()] = n
	}
	return d
}
