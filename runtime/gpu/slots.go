package gpu

import (
	"errors"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// slotTables say which rows of a call are of which sequence, and in which slots its state is read and written, for a pool of
// so many of them: see ir/ragged.go. The host checks them before a call, since kernels trust them.
type slotTables struct {
	entries, writes operand
	sequences       int // that entries has room for
}

// slotsKey tells tables apart.
type slotsKey struct {
	entries, writes *ir.Value
	rows, slots     int
}

// slots are the tables of an operation on slots of a pool, for calls of so many rows; nil where they are not known before the
// first step runs.
func (b *binder) slots(rows, slots int) *slotTables {
	key := slotsKey{b.Op.Input("entries"), b.Op.Input("writes"), rows, slots}
	if t := b.slotTables[key]; t != nil {
		return t
	}
	entries, writes := b.integers("entries"), b.integers("writes")
	if entries == nil || writes == nil || len(entries.shape) != 2 || entries.shape[1] != 3 || writes.len() != rows {
		return nil
	}
	in, to := b.Input("entries").cell, b.Input("writes").cell
	b.plan.checks = append(b.plan.checks, func() error {
		if in.content.Tensor == nil || to.content.Tensor == nil {
			return errors.New("the tables of slots are no tensors")
		}
		return checkSlots(in.content.Tensor.I, to.content.Tensor.I, rows, slots)
	})
	t := &slotTables{entries: bytesOf(entries), writes: bytesOf(writes), sequences: entries.shape[0]}
	b.slotTables[key] = t
	return t
}

// integers is an operand of integers that the host knows before the first step, on the device; nil where it is none.
func (b *binder) integers(operand string) *value {
	v := b.Input(operand)
	if v == nil || v.place != onHost || v.dtype.IsFloat() || v.shape == nil || v.cell.step {
		return nil
	}
	return b.device(b.Op.Input(operand), v)
}

// checkSlots reports what tables name that is not there.
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

// bindSlotConv convolves each channel of x [1, R, C] with its taps, over the rows of each sequence and those that its slot
// holds.
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
	return b.launch("conv", l, err, kernels.SlotConvArguments[operand]{X: c.x, W: c.weight, Entries: t.entries, Writes: t.writes,
		State: c.state, Y: bytesOf(c.out), Step: b.stepAt(c.tokens, nil)})
}
