package kernels

// slotTables are the tables of a call of several sequences in a case. slots is the number of slots that they name; the
// pool has one more.
type slotTables struct {
	entries, writes []int32
	slots           int
	written         []int // slots
}

// tables makes the tables of a case with room for entries sequences. There are rows of no sequence, and entries without
// rows. Of three sequences, the first updates its state in place and also stores one in the middle; the second has no
// state before the call; the third stores the states after its last three rows. If there are as many sequences as rows,
// each has one row.
func (c *Case) tables(entries int) (t slotTables) {
	t.entries, t.writes = make([]int32, 3*entries), make([]int32, c.Capacity)
	for i := range t.writes {
		t.writes[i] = -1
	}
	n := min(max(c.Sequences, 1), entries, c.Tokens)
	spare, row := c.Tokens-n, 0
	none := spare / 8 // rows of no sequence, half of them behind the first one
	spare -= none
	slot := func(row int) int32 {
		t.slots++
		if row >= 0 {
			t.writes[row] = int32(t.slots - 1)
			t.written = append(t.written, t.slots-1)
		}
		return int32(t.slots - 1)
	}
	for i := range n {
		rows := 1 + spare*(i+1)/(n*(n+1)/2)
		if i == n-1 {
			rows = c.Tokens - none/2 - row
		}
		last, reads := row+rows-1, int32(-1)
		switch i % 3 {
		case 0:
			reads = slot(last)
			if rows > 2 {
				slot(row + rows/2)
			}
		case 1:
			slot(last)
		default:
			reads = slot(-1)
			for r := max(row, last-2); r <= last; r++ {
				slot(r)
			}
		}
		copy(t.entries[3*(i*entries/n):], []int32{int32(row), int32(rows), reads})
		if row += rows; i == 0 && n > 1 {
			row += none - none/2
		}
	}
	return t
}

// pool adds a pool of states of size numbers each: the slots of the tables, and one more.
func (c *Case) pool(d DType, t slotTables, size int) *Buffer {
	state := c.random(d, (t.slots+1)*size)
	state.Content = Kept
	return state
}

// wantSlots adds the expectation of the slots that are written. pool is the content of the whole pool after the call.
func (c *Case) wantSlots(state *Buffer, t slotTables, size int, bound Bounds, pool []float32) {
	for _, slot := range t.written {
		c.wants = append(c.wants, Want{state, slot * size, state.DType, pool[slot*size:][:size], bound})
	}
}

// newCase returns the case of several sequences.
func (c SlotConv) newCase(s Sizes) *Case {
	to := newCase(s, convTokens*3, 0)
	to.Elsewhere = false
	l, _ := c.Launch(to.Capacity)
	t := to.tables(c.Entries)
	size := c.Channels * c.Taps
	a := SlotConvArguments[*Buffer]{X: to.random(F32, to.Capacity*c.Token), W: to.random(c.Weight, size),
		Entries: to.ints(t.entries...),
		Writes:  to.ints(t.writes...), State: to.pool(c.State, t, size), Y: to.out(F32, to.Capacity*c.Channels),
		Step: to.step()}
	to.run(l, a)
	to.reference = func() {
		pool := append([]float32{}, a.State.Values()...)
		c.Reference(a.X.Values(), a.W.Values(), t.entries, t.writes, pool, to.want(a.Y, Bounds{1e-6, sums(1)},
			to.Tokens*c.Channels))
		to.wantSlots(a.State, t, size, stored(c.State, Bounds{0, sums(1)}), pool)
	}
	return to
}

// add adds the operands of the rule and the tables.
func (d SlotDelta) add(c *Case) (a SlotDeltaArguments[*Buffer], t slotTables) {
	in := d.operands(c)
	a.Q, a.K, a.V, a.G, a.Beta = in.Q, in.K, in.V, in.G, in.Beta
	t = c.tables(d.Entries)
	a.Entries, a.Writes = c.ints(t.entries...), c.ints(t.writes...)
	a.State = c.pool(d.State, t, d.Heads*d.DV*d.DK)
	a.Y, a.Step = c.out(F32, c.Capacity*d.Heads*d.DV), c.step()
	return a, t
}

// answer adds the expected results and written slots.
func (d SlotDelta) answer(c *Case, a SlotDeltaArguments[*Buffer], t slotTables, bound Bounds) {
	pool := append([]float32{}, a.State.Values()...)
	d.Reference(a.Q.Values(), a.K.Values(), a.V.Values(), a.G.Values(), a.Beta.Values(), a.QWeight.Values(),
		a.KWeight.Values(),
		a.Bias.Values(), a.Rate.Values(), t.entries, t.writes, pool, c.want(a.Y, bound, c.Tokens*d.Heads*d.DV))
	c.wantSlots(a.State, t, d.Heads*d.DV*d.DK, stored(d.State, bound), pool)
}

// rounded returns the bounds of results that depend on states in bf16. These are rounded after every row, and some may
// be rounded to the neighbour of the reference implementation's number.
func (d SlotDelta) rounded(b Bounds) Bounds {
	if d.State == BF16 {
		return Bounds{5e-4, roundedOnce}
	}
	return b
}

// stepCase returns the case of the launch for few rows, with sequences that it takes all of.
func (d SlotDelta) stepCase(s Sizes) *Case { return d.caseOf(s, 8) }

// oneCase returns the case of the launch for one row.
func (d SlotDelta) oneCase(s Sizes) *Case { return d.caseOf(s, 1) }

func (d SlotDelta) caseOf(s Sizes, rows int) *Case {
	c := newCase(s, rows, 0)
	c.Elsewhere = false
	l, _ := d.StepLaunch(c.Capacity)
	a, t := d.add(c)
	a.QWeight, a.KWeight, a.Bias, a.Rate = d.weights(c)
	c.run(l, a)
	c.reference = func() { d.answer(c, a, t, d.rounded(Bounds{2e-6, 5 * sums(d.DK)})) }
	return c
}

// chunksCase returns the case of the three launches of a call.
func (d SlotDelta) chunksCase(s Sizes) *Case {
	d.Delta = d.filled()
	c := newCase(s, d.Length+25, 0)
	step, _ := d.StepLaunch(c.Capacity)
	solve, scan, _ := d.Launches(c.Capacity)
	a, t := d.add(c)
	c.run(step, a)
	n := c.Capacity * d.Heads
	first := SlotDeltaSolveArguments[*Buffer]{Q: a.Q, K: a.K, V: a.V, G: a.G, Beta: a.Beta, Entries: a.Entries,
		Sums: c.scratch(F32, n),
		W:    c.scratch(F32, n*d.DK), U: c.scratch(F32, n*d.DV), M: c.scratch(F32, n*d.Length)}
	c.run(solve, first)
	c.run(scan, SlotDeltaScanArguments[*Buffer]{Q: a.Q, K: a.K, Sums: first.Sums, W: first.W, U: first.U, M: first.M,
		Entries: a.Entries,
		Writes:  a.Writes, State: a.State, Y: a.Y})
	c.reference = func() { d.answer(c, a, t, Bounds{1e-5, 5 * sums(d.DK)}) }
	return c
}
