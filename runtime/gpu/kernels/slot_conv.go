package kernels

import "fmt"

// SlotConv is a Conv in a call of several sequences. Each sequence has its state in a slot of a pool. It is the
// operation slot_conv. The kernel rounds each row of x to the dtype of the state before later rows read it. The caller
// leaves Reset at NoReset: a sequence whose entry reads no slot (-1) starts from zeros.
type SlotConv struct {
	Conv
	// Entries is the number of sequences that the table has room for.
	Entries int
}

// slotGroups returns the number of threadgroups that take sequences. A call has at most as many sequences as rows.
func slotGroups(entries, rows int) int { return min(entries, rows) }

func slotEntriesError(entries int) error {
	if entries <= 0 {
		return fmt.Errorf("a table of %d sequences, want 1 at least", entries)
	}
	return nil
}

// Launch is the dispatch for up to rows rows. It takes SlotConvArguments: W [Channels, Taps], Entries i32 [Entries,
// 3], Writes i32 [rows], State, the pool, and Y f32 [rows, Channels]. No sequence may read a slot that another one
// writes.
func (c SlotConv) Launch(rows int) (Launch, error) {
	l, err := c.launch("slot_conv", slotGroups(c.Entries, rows)+ceil(rows, convTokens))
	if err == nil {
		err = slotEntriesError(c.Entries)
	}
	l.File, l.Case = "slot_conv", c.newCase
	l.Defines = append(l.Defines, define("SLOT_ENTRIES", c.Entries)...)
	return l, err
}

// Reference computes what the launch does.
func (c SlotConv) Reference(x, w []float32, entries, writes []int32, state, y []float32) {
	size := c.Channels * c.Taps
	eachSlot(entries, writes, state, size, func(r int, state []float32) {
		c.Conv.Reference(1, 0, x[r*c.Token:], w, false, state, y[r*c.Channels:])
	})
}

// eachSlot calls step for every row of every sequence, with the state of the sequence, which step updates. It stores
// the state where the tables say so.
func eachSlot(entries, writes []int32, pool []float32, size int, step func(row int, state []float32)) {
	state := make([]float32, size)
	for ; len(entries) >= 3; entries = entries[3:] {
		if clear(state); entries[2] >= 0 {
			copy(state, pool[int(entries[2])*size:])
		}
		for r := entries[0]; r < entries[0]+entries[1]; r++ {
			step(int(r), state)
			if to := int(writes[r]); to >= 0 {
				copy(pool[to*size:(to+1)*size], state)
			}
		}
	}
}
