package cpu

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
)

// This file has the operations on recurrent state in slots, for many sequences. ir/ragged.go describes the tables.

// slotTables say which rows belong to which sequence, and where its state is read and written.
type slotTables struct {
	entries, writes *value
	rows, slots     int
	list            []slotEntry // the entries of the call that have rows
}

// slotEntry has the rows of one sequence and the slot that its state is read from, -1 for zeros.
type slotEntry struct{ first, rows, reads int }

func (b *binder) slotTables(rows int, s *state) (*slotTables, bool) {
	entries, ok := b.table("entries")
	writes, ok2 := b.table("writes")
	if !ok || !ok2 || len(entries.shape) != 2 || entries.shape[1] != 3 || writes.len() != rows {
		return nil, false
	}
	return &slotTables{entries: entries, writes: writes, rows: rows, slots: s.shape[0]}, true
}

// read fills the list of entries, and sets to zero the rows of out [R, width] that belong to no sequence.
func (t *slotTables) read(out []float32, width int) error {
	t.list = t.list[:0]
	entries, seen := t.entries.ints()[:t.entries.len()], 0
	for i := 0; i < len(entries); i += 3 {
		e := slotEntry{int(entries[i]), int(entries[i+1]), int(entries[i+2])}
		switch {
		case e.first < 0 || e.rows < 0 || e.first+e.rows > t.rows:
			return fmt.Errorf("entry %d has %d rows from %d on, the call has %d", i/3, e.rows, e.first, t.rows)
		case e.reads >= t.slots:
			return fmt.Errorf("entry %d reads slot %d of %d", i/3, e.reads, t.slots)
		case e.rows > 0:
			t.list = append(t.list, e)
			seen += e.rows
		}
	}
	for r, to := range t.writes.ints()[:t.rows] {
		if int(to) >= t.slots {
			return fmt.Errorf("row %d writes slot %d of %d", r, to, t.slots)
		}
	}
	if seen < t.rows {
		of := make([]bool, t.rows)
		for _, e := range t.list {
			for r := range e.rows {
				of[e.first+r] = true
			}
		}
		for r, ok := range of {
			if !ok {
				clear(out[r*width : (r+1)*width])
			}
		}
	}
	return nil
}

// bindSlotConv binds a depthwise convolution of x [1, R, C] over the rows of each sequence.
func bindSlotConv(b *binder) bool {
	attrs, x, s := ir.Attrs[ir.BufferConvAttrs](b.Op), b.Input("x"), b.floatState()
	w := b.Input("w")
	if x == nil || s == nil || w == nil || !x.isFloats() || len(x.shape) != 3 || x.shape[0] != 1 || x.shape[2] > 1 &&
		x.stride[2] != 1 ||
		b.Op.Input("w").Constant == nil || !w.isFloats() || len(w.shape) != 3 || len(s.shape) != 3 {
		return false
	}
	rows, channels, taps := x.shape[1], x.shape[2], w.shape[1]
	want := []int{s.shape[0], taps, channels}
	if attrs.ChannelFirst {
		want = []int{s.shape[0], channels, taps}
	}
	t, ok := b.slotTables(rows, s)
	if !ok || !slices.Equal(s.shape, want) || !slices.Equal(w.shape, []int{channels, taps, 1}) || taps == 0 {
		return false
	}
	weight := convTaps(w)
	out := b.result(0, nil)
	if out == nil || !slices.Equal(out.shape, x.shape) {
		return false
	}
	blocks := (channels + channelBlock - 1) / channelBlock
	c := &slotConv{slotTables: t, x: x, out: out, state: s, weight: weight, taps: taps, channels: channels,
		channelFirst: attrs.ChannelFirst, silu: attrs.Activation == "silu"}
	each := b.x.run
	b.step("conv", func() error {
		if err := t.read(out.slot.f, channels); err != nil {
			return fmt.Errorf("slot_conv: %w", err)
		}
		each(len(t.list)*blocks, 1, func(lo, hi int) {
			work := getWork()
			for i := lo; i < hi; i++ {
				from := i % blocks * channelBlock
				c.run(work, t.list[i/blocks], from, min(from+channelBlock, channels))
			}
			putWork(work)
		})
		return nil
	})
	return true
}

// slotConv is slot_conv bound to a plan.
type slotConv struct {
	*slotTables
	x, out       *value
	state        *state
	weight       []float32 // the taps of a block of channels, row by row
	taps         int
	channels     int
	channelFirst bool
	silu         bool
}

// run convolves channels [lo, hi) of the rows of a sequence. Before later rows see a row, it is rounded as the state
// stores it, so that it does not matter which of them are in the call.
func (c *slotConv) run(w *work, e slotEntry, lo, hi int) {
	width := hi - lo
	w.acc = grow(w.acc, (c.taps+e.rows)*width)
	rows, in, writes := w.acc, c.x.floats(), c.writes.ints()
	c.state.readRows(rows, max(e.reads, 0), lo, hi, c.channelFirst, e.reads < 0)
	part := c.weight[lo*c.taps : hi*c.taps]
	for i := range e.rows {
		r := e.first + i
		last := rows[(c.taps+i)*width : (c.taps+i+1)*width]
		copy(last, in[r*c.x.stride[1]+lo:][:width])
		dst := c.out.slot.f[r*c.channels+lo:][:width]
		kernel.Convolve(dst, rows[(i+1)*width:(i+1+c.taps)*width], part)
		if c.silu {
			kernel.SiLU(dst, dst)
		}
		if c.state.half != nil && i < e.rows-1 {
			w.round(last)
		}
		if to := int(writes[r]); to >= 0 {
			c.state.writeLast(rows[(i+1)*width:(i+1+c.taps)*width], to, lo, hi, c.channelFirst)
		}
	}
}

// round rounds to bfloat16.
func (w *work) round(x []float32) {
	if cap(w.half) < 2*len(x) {
		w.half = make([]byte, 2*len(x))
	}
	half := w.half[:2*len(x)]
	kernel.ToBF16(half, x)
	kernel.FromBF16(x, half)
}

// slotDelta is slot_delta_rule bound to a plan. Its parts are those of deltaRule, for each sequence.
type slotDelta struct {
	*slotTables
	deltaRule
	alone bool // rows are computed one by one
}

// bindSlotDelta binds the gated delta rule over the rows of each sequence, with its state in a slot.
func bindSlotDelta(b *binder) bool {
	d, ok := b.deltaOperands()
	if !ok || d.v.shape[0] != 1 {
		return false
	}
	t, ok := b.slotTables(d.v.shape[1], d.state)
	if !ok || !slices.Equal(d.state.shape[1:], []int{d.v.shape[2], d.width, d.keyWidth}) {
		return false
	}
	if d.out = b.result(0, nil); d.out == nil || !slices.Equal(d.out.shape, d.v.shape) {
		return false
	}
	x := &slotDelta{t, *d, b.x.exe.alone}
	threads, each := b.x.exe.pool.Threads(), b.x.run
	b.step("delta rule", func() error {
		if err := t.read(d.out.slot.f, d.group*d.keyHeads*d.width); err != nil {
			return fmt.Errorf("slot_delta_rule: %w", err)
		}
		x.steps = 0
		for _, e := range t.list {
			x.steps = max(x.steps, e.rows)
		}
		x.cut(len(t.list), threads)
		each(len(t.list)*x.keyHeads*x.parts, 1, func(lo, hi int) {
			w := getWork()
			for i := lo; i < hi; i++ {
				x.sequence(w, t.list[i/x.parts/x.keyHeads], i/x.parts%x.keyHeads, i%x.parts)
			}
			putWork(w)
		})
		return nil
	}).cost = x.cost
	return true
}

// cost returns the bytes of states that the entries read and write, and the operations on them.
func (x *slotDelta) cost() (bytes, flops int) {
	size := x.state.size / max(x.slots, 1)
	for _, e := range x.list {
		bytes, flops = bytes+8*size, flops+7*size*e.rows
	}
	return bytes, flops
}

// sequence computes the rows of a sequence for a part of a key head. It interrupts after each row whose state is
// stored, and where states are rounded after every row.
func (x *slotDelta) sequence(w *work, e slotEntry, key, part int) {
	first, last := part*x.partRows, min((part+1)*x.partRows, x.group*x.width)
	size, slot := (last-first)*x.keyWidth, x.state.size/x.slots
	at := func(n int) int { return n*slot + (key*x.group*x.width+first)*x.keyWidth }
	writes := x.writes.ints()[e.first : e.first+e.rows]
	var state []float32 // the state after the rows so far
	if to := x.onlyWrite(writes); x.state.half == nil && to >= 0 {
		state = x.state.slot.f[at(to) : at(to)+size]
	} else {
		w.acc = grow(w.acc, size)
		state = w.acc
	}
	switch {
	case e.reads < 0:
		clear(state)
	case x.state.half != nil:
		x.state.get(state, at(e.reads))
	case &state[0] != &x.state.slot.f[at(e.reads)]:
		copy(state, x.state.slot.f[at(e.reads):])
	}
	for r := 0; r < e.rows; {
		n := 1
		for x.state.half == nil && !x.alone && r+n < e.rows && writes[r+n-1] < 0 {
			n++
		}
		x.tokens(w, state, 0, key, first, last, e.first+r, n)
		r += n
		if to := int(writes[r-1]); to >= 0 && (x.state.half != nil || &state[0] != &x.state.slot.f[at(to)]) {
			x.state.put(at(to), state)
		}
		if x.state.half != nil {
			w.round(state)
		}
	}
}

// onlyWrite returns the slot that the last row writes, if no other row writes one; else -1.
func (x *slotDelta) onlyWrite(writes []int64) int {
	for _, to := range writes[:len(writes)-1] {
		if to >= 0 {
			return -1
		}
	}
	return int(writes[len(writes)-1])
}
