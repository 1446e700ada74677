package gpu

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/strided"
)

// slotTables are the tables of a call of many sequences for a pool of state slots: which rows belong to which sequence,
// and in which slots its state is read and written (see ir/ragged.go). The host checks them before every call, since
// kernels do not.
type slotTables struct {
	entries, writes operand
	sequences       int // number of sequences that entries has room for
}

// writesSlots reports whether an operation writes slots of a pool, those that tables name.
func writesSlots(op *ir.Op) bool {
	switch op.Def.Name {
	case "slot_conv", "slot_delta_step", "slot_delta_chunks":
		return true
	case "matvec_conv":
		return op.Input("writes") != nil
	}
	return false
}

// slotsKey identifies slot tables.
type slotsKey struct {
	entries, writes *ir.Value
	rows, slots     int
}

// slots returns the tables of an operation on a pool of slots slots, for calls of rows rows. It returns nil where the
// host does not know them before the first step.
func (b *binder) slots(rows, slots int) *slotTables {
	key := slotsKey{b.Op.Input("entries"), b.Op.Input("writes"), rows, slots}
	if t := b.slotTables[key]; t != nil {
		return t
	}
	entries, in := b.rowTable("entries")
	writes, to := b.rowTable("writes")
	if entries == nil || writes == nil || len(entries.shape) != 2 || entries.shape[1] != 3 || writes.len() != rows {
		return nil
	}
	to.need()
	b.check(in, func() error { return checkSlots(in.content.Tensor.I, to.content.Tensor.I, rows, slots) })
	t := &slotTables{entries: bytesOf(entries), writes: bytesOf(writes), sequences: entries.shape[0]}
	b.slotTables[key] = t
	return t
}

// checkSlots returns an error where a table names a row, a sequence or a slot that does not exist.
func checkSlots(entries, writes []int64, rows, slots int) error {
	for i := 0; i < len(entries); i += 3 {
		first, n, reads := entries[i], entries[i+1], entries[i+2]
		if first < 0 || n < 0 || first+n > int64(rows) {
			return fmt.Errorf("entry %d has %d rows from %d on, the call has %d", i/3, n, first, rows)
		}
		if reads >= int64(slots) {
			return fmt.Errorf("entry %d reads slot %d of %d", i/3, reads, slots)
		}
	}
	for r, to := range writes {
		if to >= int64(slots) {
			return fmt.Errorf("row %d writes slot %d of %d", r, to, slots)
		}
	}
	return nil
}

// bindSlotConv binds a depthwise convolution of x [1, R, C], whose rows belong to several sequences. The input of each
// sequence is the rows in its slot, then its rows of x.
func bindSlotConv(b *binder) bool {
	c := b.conv()
	if c == nil {
		return false
	}
	t := b.slots(c.tokens, c.slots)
	if t == nil {
		return false
	}
	l, err := kernels.SlotConv{Conv: c.kernel, Entries: t.sequences}.Launch(c.tokens)
	return b.launch("conv", l, err, kernels.SlotConvArguments[operand]{X: c.x, W: c.weight, Entries: t.entries,
		Writes: t.writes,
		State:  c.state, Y: bytesOf(c.out), Step: b.stepAt(c.tokens, nil)})
}

// slotDelta returns the kernel of a delta rule of several sequences, the number of rows, its operands and its tables.
// It returns nil operands where they are not on the device.
func (b *binder) slotDelta() (k kernels.SlotDelta, rows int, d *deltaOf, t *slotTables) {
	s, ok := b.x.states[b.Op.Buffer], false
	if s == nil {
		return k, 0, nil, nil
	}
	if k, rows, ok = lower.SlotDeltaRule(b.Op, b.view, s.format.kernelType()); !ok {
		return k, 0, nil, nil
	}
	if t = b.slots(rows, s.shape[0]); t == nil {
		return k, 0, nil, nil
	}
	return k, rows, b.delta(k.Delta, rows), t
}

// bindSlotDeltaStep launches a gated delta rule for several sequences. Each sequence starts from the state in its slot
// and takes its rows one by one.
func bindSlotDeltaStep(b *binder) bool {
	k, rows, d, t := b.slotDelta()
	return d != nil && b.slotDeltaStep(k, rows, d, t)
}

// slotDeltaStep launches the kernel that takes row after row.
func (b *binder) slotDeltaStep(k kernels.SlotDelta, rows int, d *deltaOf, t *slotTables) bool {
	l, err := k.StepLaunch(rows)
	if !b.launch("delta rule", l, err, kernels.SlotDeltaArguments[operand]{Q: d.q, K: d.k, V: d.v, G: d.g,
		Beta: d.beta, QWeight: d.qWeight, KWeight: d.kWeight,
		Bias: d.bias, Rate: d.rate, Entries: t.entries, Writes: t.writes, State: d.state, Y: d.out, Step: d.step}) {
		return false
	}
	b.reading(2 * d.state.size / d.of.shape[0] * min(rows, t.sequences)) // at most
	return true
}

// bindSlotDeltaChunks binds a gated delta rule for several sequences. A sequence with few rows takes them one after the
// other, one with more works in chunks.
func bindSlotDeltaChunks(b *binder) bool {
	k, rows, d, t := b.slotDelta()
	if d == nil {
		return false
	}
	solve, scan, err := k.Launches(rows)
	if err != nil || !b.slotDeltaStep(k, rows, d, t) {
		return false
	}
	const length = 32
	n := 4 * rows * k.Heads
	sums, w, u, m := b.scratch(n), b.scratch(n*k.DK), b.scratch(n*k.DV), b.scratch(n*length)
	return b.launch("delta solve", solve, nil, kernels.SlotDeltaSolveArguments[operand]{Q: d.q, K: d.k, V: d.v,
		G: d.g, Beta: d.beta, Entries: t.entries,
		Sums: whole(sums), W: whole(w), U: whole(u), M: whole(m)}) &&
		b.launch("delta scan", scan, nil, kernels.SlotDeltaScanArguments[operand]{Q: d.q, K: d.k, Sums: whole(sums),
			W: whole(w), U: whole(u), M: whole(m),
			Entries: t.entries, Writes: t.writes, State: d.state, Y: d.out})
}

// bindUnitCopy binds copies between indices of an axis of a buffer. They are made in the order of the list.
func bindUnitCopy(b *binder) bool {
	s := b.x.states[b.Op.Buffer]
	pairs, known := b.rowTable("pairs")
	if s == nil || s.slot == nil || pairs == nil || len(pairs.shape) != 2 || pairs.shape[1] != 2 {
		return false
	}
	axis := (ir.Attrs[ir.AxisAttrs](b.Op).Axis + len(s.shape)) % len(s.shape)
	k := kernels.UnitCopy{Outer: strided.Elements(s.shape[:axis]), Units: s.shape[axis],
		Unit: strided.Elements(s.shape[axis+1:]) * s.format.size()}
	b.check(known, func() error {
		list := known.content.Tensor.I
		for i := 0; i < len(list); i += 2 {
			if from, to := list[i], list[i+1]; from >= 0 && to >= 0 && max(from, to) >= int64(k.Units) {
				return fmt.Errorf("unit_copy: unit %d to %d, the buffer has %d", from, to, k.Units)
			}
		}
		return nil
	})
	l, err := k.Launch()
	return b.launch("copy of units", l, err, kernels.UnitCopyArguments[operand]{Pool: whole(s.slot),
		Pairs: bytesOf(pairs), Step: b.stepAt(pairs.shape[0], nil)})
}
