package gpu

import (
	"encoding/binary"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// This file binds the operations on block-wise KV caches, for calls of many sequences. ir/ragged.go describes the
// tables.

// writesBlocks reports whether an operation writes rows of pools of blocks, at positions and in blocks that are inputs
// of the call.
func writesBlocks(op *ir.Op) bool {
	switch op.Def.Name {
	case "block_write", "rope_rows_write", "rows_attention_step":
		return true
	}
	return false
}

// rowTable returns an operand of integers, one for each row, that is an input of the call: its value on the device, and
// the host value that checks read.
func (b *binder) rowTable(name string) (at *value, known *hostValue) {
	v := b.Input(name)
	if v == nil || v.place != onHost || v.dtype.IsFloat() || v.shape == nil ||
		v.hostValue.step || v.hostValue.constant {
		return nil, nil
	}
	if at = b.device(b.Op.Input(name), v); at == nil {
		return nil, nil
	}
	return at, v.hostValue
}

// blockTables are the tables that tell kernels in which block of a cache each row's positions lie.
type blockTables struct {
	positions, sequences, blocks operand
	rows                         int
	step                         operand // the rows, and the units of the pool
}

// blockTables returns the tables of an operation on a pool of shape pool: units, then rows of a unit. It adds a check
// for every call: each position that a row sees must lie in a unit of the pool. A row sees the last window positions,
// or all where window is 0; with window 1 only its own is checked.
func (b *binder) blockTables(pool []int, window int) *blockTables {
	positions, p := b.rowTable("positions")
	sequences, s := b.rowTable("sequences")
	blocks, t := b.rowTable("blocks")
	if positions == nil || sequences == nil || blocks == nil || len(pool) != 4 || len(blocks.shape) != 2 ||
		positions.len() != sequences.len() {
		return nil
	}
	b.checkOnce(tableCheck{p, s, t, pool[1], pool[2], window})
	return &blockTables{bytesOf(positions), bytesOf(sequences), bytesOf(blocks), positions.len(),
		b.rowsAndUnits(positions.len(), pool[1])}
}

// rowsAndUnits returns the step operand of the kernels that work on pools: the number of rows of the call and the
// number of units of the pool.
func (b *binder) rowsAndUnits(rows, units int) operand {
	if b.poolSteps == nil {
		b.poolSteps = map[[2]int]*slot{}
	}
	key := [2]int{rows, units}
	if b.poolSteps[key] == nil {
		b.poolSteps[key] = b.uniform(8, func(p []byte) error {
			binary.LittleEndian.PutUint32(p, uint32(rows))
			binary.LittleEndian.PutUint32(p[4:], uint32(units))
			return nil
		})
	}
	return whole(b.poolSteps[key])
}

// tableCheck identifies one check of block tables: what kernels rely on. Layers of a model with the same pool shape and
// window share it.
type tableCheck struct {
	positions, sequences, blocks *hostValue
	units, rows, window          int
}

// checkOnce adds c to the checks of every call unless it is among them.
func (b *binder) checkOnce(c tableCheck) {
	if b.checked == nil {
		b.checked = map[tableCheck]bool{}
	}
	if b.checked[c] {
		return
	}
	b.checked[c] = true
	c.sequences.need()
	c.blocks.need()
	b.check(c.positions, c.check)
}

// check returns an error that names the first row with a position outside the blocks, as the reference kernels do.
func (c *tableCheck) check() error {
	positions, sequences, blocks := c.positions.content.Tensor.I, c.sequences.content.Tensor.I, c.blocks.content.Tensor
	columns := int64(blocks.Shape[1])
	last, of := int64(-2), int64(-1) // position and sequence of the row before: what that row sees is checked already
	for r, p := range positions {
		if p < 0 {
			continue
		}
		n, low := sequences[r], int64(0)
		if n < 0 || n >= int64(blocks.Shape[0]) {
			return fmt.Errorf("row %d is of sequence %d, the table of blocks has %d", r, n, blocks.Shape[0])
		}
		if p >= 1<<30 {
			return fmt.Errorf("row %d: position %d, want less than 2^30", r, p)
		}
		if c.window > 0 {
			low = max(0, p-int64(c.window)+1)
		}
		if n == of && p == last+1 {
			low = p
		}
		for at := low / int64(c.rows); at <= p/int64(c.rows); at++ {
			if id := blocks.I[n*columns+at%columns]; id < 0 || id >= int64(c.units) {
				return fmt.Errorf("row %d: position %d of sequence %d is in block %d of %d", r,
					max(low, at*int64(c.rows)), n, id, c.units)
			}
		}
		last, of = p, n
	}
	return nil
}

// checkRuns adds a check for every call: the rows of a sequence lie one after another, in the order of their positions,
// and no position between them is missing. The kernel that writes and attends at once relies on it.
func (b *binder) checkRuns() {
	_, positions := b.rowTable("positions")
	_, sequences := b.rowTable("sequences")
	key := tableCheck{positions: positions, sequences: sequences}
	if b.checked[key] {
		return
	}
	b.checked[key] = true
	sequences.need()
	b.check(positions, func() error {
		at, of := positions.content.Tensor.I, sequences.content.Tensor.I
		for r, p := range at {
			if p < 0 || r > 0 && of[r-1] == of[r] && at[r-1] == p-1 {
				continue // of no sequence, or behind the row before
			}
			for before := range r {
				if at[before] >= 0 && of[before] == of[r] {
					return fmt.Errorf("rows %d and %d are at positions %d and %d of sequence %d, want rows of a sequence "+
						"one after another", before, r, at[before], p, of[r])
				}
			}
		}
		return nil
	})
}

// bindRopeRowAngles computes the angles of rows that have a position each.
func bindRopeRowAngles(b *binder) bool {
	attrs := ir.Attrs[ir.RopeAnglesAttrs](b.Op)
	positions, _ := b.rowTable("positions")
	l, err := kernels.RowAngles{Dims: attrs.Dims, Scale: attrs.Scale}.Launch(attrs.Tokens)
	inverse := b.inverseFreqs(attrs)
	if err != nil || positions == nil || positions.len() != attrs.Tokens || inverse == nil {
		return false
	}
	table := b.x.exe.upload(encode(f32, eval.Floats(ir.F32, []int{len(inverse)}, inverse)))
	out := b.result(0, nil)
	return table != nil && out != nil &&
		b.launch("angles", l, nil, kernels.RopeRowAnglesArguments[operand]{Inverse: whole(table),
			Positions: bytesOf(positions),
			Angles:    bytesOf(out), Step: b.stepAt(attrs.Tokens, nil)})
}

// bindBlockWrite writes keys or values into blocks.
func bindBlockWrite(b *binder) bool {
	s, u := b.x.states[b.Op.Buffer], b.floats("update")
	if s == nil || s.slot == nil || u == nil || u.slot.state {
		return false
	}
	h, ok := lower.HeadsOf(u.view())
	t := b.blockTables(s.shape, 1)
	if !ok || t == nil || h.Tokens != t.rows || h.Heads != s.shape[0] || s.coded && ir.Q8Words(h.Width) != s.shape[3] ||
		!s.coded && h.Width != s.shape[3] {
		return false
	}
	blocks := b.Input("blocks").shape
	k := kernels.BlockWrite{Blocks: kernels.Blocks{Rows: s.shape[2], Columns: blocks[1], Cache: s.kernelType()},
		D: h.Width, Heads: h.Heads, X: h.Strides}
	l, err := k.Launch(h.Tokens)
	return b.launch("cache write", l, err, kernels.BlockWriteArguments[operand]{X: bytesOf(u), Positions: t.positions,
		Sequences: t.sequences, Blocks: t.blocks,
		Pool: whole(s.slot), Step: t.step})
}

// bindRopeRowsWrite rotates queries and keys and writes keys and values into blocks, in one kernel.
func bindRopeRowsWrite(b *binder) bool {
	k, rows, ok := lower.RopeRowsWrite(b.Op, b.view, b.cacheType())
	if !ok {
		return false
	}
	r := b.rotatedHeads(k.D)
	if r == nil || r.keys.slot == nil || r.values.slot == nil {
		return false
	}
	t := b.blockTables(r.keys.shape, 1)
	if t == nil || t.rows != rows {
		return false
	}
	l, err := k.Launch(rows)
	out := b.result(0, tokenMajor(k.QHeads, rows, k.D))
	return out != nil && b.launch("rope", l, err, kernels.RopeArguments[operand]{Q: bytesOf(r.q), K: bytesOf(r.k),
		V: bytesOf(r.v), QWeight: r.qWeight, KWeight: r.kWeight,
		Angles: bytesOf(r.angles), QOut: bytesOf(out), KCache: whole(r.keys.slot), VCache: whole(r.values.slot),
		Positions: t.positions, Sequences: t.sequences,
		Blocks: t.blocks, Step: t.step})
}

// bindRowsAttention binds attention over block-wise caches. Single rows take a kernel that computes parts of the
// positions and one that merges them. Where a sequence has many neighbouring rows, they take the kernel that works in
// tiles.
func bindRowsAttention(b *binder) bool {
	q, keys, values := b.floats("q"), b.cacheOf("k"), b.cacheOf("v")
	if q == nil || keys == nil || values == nil || keys.kernelType() != values.kernelType() {
		return false
	}
	a, rows, ok := lower.RowsAttention(b.Op, b.view, keys.kernelType())
	if ok {
		a, ok = b.x.exe.target().BlockAttention(a, rows)
	}
	if !ok {
		return false
	}
	t := b.blockTables(keys.shape, a.Window)
	gate, ok := b.gate()
	if t == nil || t.rows != rows || !ok {
		return false
	}
	part, merge, parts, err := a.Launches(rows)
	if err != nil {
		return false
	}
	var strides []int
	if b.Op.Input("gate") == nil {
		strides = tokenMajor(a.Heads, rows, a.D)
	}
	out := b.result(0, strides)
	if out == nil {
		return false
	}
	if attrs := ir.Attrs[ir.AttentionAttrs](b.Op); attrs.Prepared {
		out.round(attrs.Packed)
	}
	sums, ml := b.scratch(4*rows*a.Heads*parts*a.D), b.scratch(8*rows*a.Heads*parts)
	args := kernels.BlockAttentionPartArguments[operand]{Q: bytesOf(q), Keys: whole(keys.slot),
		Values: whole(values.slot), Positions: t.positions, Sequences: t.sequences, Blocks: t.blocks, Part: whole(sums),
		ML: whole(ml), Step: t.step}
	if a.Last {
		args.Gate, args.Out, args.Arrivals = gate, bytesOf(out), whole(b.arrivals(rows*a.Heads))
	}
	b.launch("attention", part, nil, args)
	if a.Short {
		tiles, ok := b.x.exe.target().RowsByTiles(a, rows)
		if !ok || !b.launch("attention", tiles, nil,
			kernels.AttentionChunkArguments[operand]{Q: bytesOf(q), Keys: whole(keys.slot), Values: whole(values.slot),
				Gate: gate, Out: bytesOf(out), Positions: t.positions, Sequences: t.sequences,
				Blocks: t.blocks, Step: t.step}) {
			return false
		}
	}
	return a.Last || b.launch("attention merge", merge, nil, kernels.BlockAttentionMergeArguments[operand]{
		Part: whole(sums), ML: whole(ml), Positions: t.positions, Sequences: t.sequences, Gate: gate,
		Out: bytesOf(out), Step: t.step})
}
