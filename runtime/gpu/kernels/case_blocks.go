package kernels

import "math"

// BlockRow is a row of a case with blocks: the number of its sequence, and its position.
type BlockRow struct{ Sequence, Position int32 }

// blockRows returns the rows of a case: neighbouring rows of two sequences, one row of a third, and one of no sequence.
// The rows of the first sequence start at position.
func blockRows(rows, position int) []BlockRow {
	out := make([]BlockRow, rows)
	for i := range out {
		switch {
		case i == rows-1 && rows > 3:
			out[i] = BlockRow{0, -1}
		case 2*i < rows:
			out[i] = BlockRow{0, int32(position + i)}
		case i == rows-2 && rows > 4:
			out[i] = BlockRow{2, int32(position/2 + 3)}
		default:
			out[i] = BlockRow{1, int32(i - (rows+1)/2)}
		}
	}
	return out
}

// inBlocks has the tables of rows, for a pool with as many units as the rows need and an unused one.
type inBlocks struct {
	units                        int
	positions, sequences, blocks []int32
}

// lay assigns blocks of the pool, from the last one down, to the positions that rows see: from low(position) to the
// row's own.
func (b Blocks) lay(rows []BlockRow, low func(position int32) int32) inBlocks {
	var t inBlocks
	most := int32(0)
	for _, r := range rows {
		t.positions, t.sequences = append(t.positions, r.Position), append(t.sequences, r.Sequence)
		most = max(most, r.Sequence)
	}
	t.blocks = make([]int32, (int(most)+1)*b.Columns)
	for i := range t.blocks {
		t.blocks[i] = -1
	}
	var cells []int
	for _, r := range rows {
		if r.Position < 0 {
			continue
		}
		for n := int(low(r.Position)) / b.Rows; n <= int(r.Position)/b.Rows; n++ {
			if at := int(r.Sequence)*b.Columns + n%b.Columns; t.blocks[at] < 0 {
				t.blocks[at] = 0
				cells = append(cells, at)
			}
		}
	}
	t.units = len(cells) + 1
	for i, at := range cells {
		t.blocks[at] = int32(t.units - 1 - i) // unit 0 stays unused
	}
	return t
}

// selfTestRows is the number of rows of a self-test.
const selfTestRows = 6

// rows returns the rows of a case: six rows from position on for a self-test, else as many as the case has tokens.
func (b Blocks) rows(s Sizes, position int) []BlockRow {
	n := selfTestRows
	if s.Whole {
		n, position = s.Tokens, s.Position
	}
	return blockRows(n, max(0, min(position, b.Columns*b.Rows-n)))
}

func (w BlockWrite) newCase(s Sizes) *Case { return w.Case(s, w.rows(s, 5)) }

// caseOf returns an empty case of rows rows.
func caseOf(s Sizes, rows int) *Case {
	s.Tokens, s.Capacity = rows, max(s.Capacity, rows)
	return &Case{Sizes: s}
}

// Case returns a case of the launch for these rows.
func (w BlockWrite) Case(s Sizes, rows []BlockRow) *Case {
	c := caseOf(s, len(rows))
	l, _ := w.Launch(c.Capacity)
	t := w.lay(rows, func(p int32) int32 { return p })
	x, n := c.random(F32, w.X.span(len(rows), w.Heads, w.D)), w.Heads*t.units*w.Rows
	pool := c.blocksPool(w.Blocks, n, w.D)
	c.run(l, BlockWriteArguments[*Buffer]{X: x, Positions: c.ints(t.positions...), Sequences: c.ints(t.sequences...),
		Blocks: c.ints(t.blocks...),
		Pool:   pool, Step: c.ints(int32(len(rows)), int32(t.units))})
	c.reference = func() {
		if w.Cache == U32 {
			bytes, size := pool.raw(), w.rowBytes(w.D)
			w.eachRow(t.units, t.positions, t.sequences, t.blocks, func(row, from int) {
				packCodes(bytes[row*size:(row+1)*size], x.Values()[from:from+w.D])
			})
			want := c.want(pool, Bounds{}, n*size)
			for i, v := range bytes {
				want[i] = float32(v)
			}
			return
		}
		w.Reference(t.units, x.Values(), t.positions, t.sequences, t.blocks,
			after(c.want(pool, Bounds{}, w.Heads*t.units*w.Rows*w.D), pool))
	}
	return c
}

func (a BlockAttention) newCase(s Sizes, tuned int) *Case { return a.caseOf(s, a.rows(s, 100), tuned) }

// Case returns a case of the launches, as they are for len(rows) rows.
func (a BlockAttention) Case(s Sizes, rows []BlockRow) *Case {
	return a.caseOf(s, rows, max(s.Capacity, len(rows)))
}

// chunkCase returns a case of all launches, for rows in runs of various lengths. The launches for short runs are those
// for tuned rows.
func (a BlockAttention) chunkCase(s Sizes, tuned int, t ChunkTuning) *Case {
	rows := []BlockRow{{1, 3}, {0, -1}}
	for i := range 19 {
		rows = append(rows, BlockRow{0, int32(min(40, max(0, a.Columns*a.Rows-19)) + i)})
	}
	return a.ChunkCase(s, append(rows, BlockRow{2, 0}, BlockRow{2, 1}), tuned, t)
}

// ChunkCase returns a case of all launches for these rows. The launches for short runs are those for tuned rows.
func (a BlockAttention) ChunkCase(s Sizes, rows []BlockRow, tuned int, t ChunkTuning) *Case {
	a.Short = true
	return a.caseWith(s, rows, tuned, &t)
}

// caseOf is Case with the launches for tuned rows.
func (a BlockAttention) caseOf(s Sizes, rows []BlockRow, tuned int) *Case {
	return a.caseWith(s, rows, tuned, nil)
}

// caseWith is caseOf, with the tiled launch in the tuning tiles if that is not nil.
func (a BlockAttention) caseWith(s Sizes, rows []BlockRow, tuned int, tiles *ChunkTuning) *Case {
	a.Tuning, _ = a.tuning(tuned)
	c := caseOf(s, len(rows))
	part, merge, parts, _ := a.Launches(c.Capacity)
	t := a.lay(rows, func(p int32) int32 {
		if a.Window > 0 {
			return max(0, p-int32(a.Window)+1)
		}
		return 0
	})
	bound := Bounds{3e-6, 2 * sums(a.D)}
	size := float32(min(1, 1/(math.Abs(float64(a.Scale))*math.Sqrt(float64(a.D))))) // as in Attention.context
	q := c.random(F32, a.Q.span(len(rows), a.Heads, a.D)).each(func(_ int, x float32) float32 { return x * size })
	n := a.KVHeads * t.units * a.Rows
	pool := func() *Buffer { return c.blocksPool(a.Blocks, n, a.D) }
	keys, values := pool(), pool()
	gate := Attention{D: a.D, Heads: a.Heads, Gates: a.Gates}.gates(c)
	written := F32
	if a.Half {
		written, bound = BF16, stored(BF16, bound)
	}
	out, step := c.out(written, c.Capacity*a.Heads*a.D), c.ints(int32(len(rows)), int32(t.units))
	sums := c.Capacity * a.Heads * parts
	partial, ml := c.scratch(F32, sums*a.D), c.scratch(F32, sums*2)
	positions, sequences, blocks := c.ints(t.positions...), c.ints(t.sequences...), c.ints(t.blocks...)
	first := BlockAttentionPartArguments[*Buffer]{Q: q, Keys: keys, Values: values, Positions: positions,
		Sequences: sequences, Blocks: blocks, Part: partial, ML: ml, Step: step}
	if a.Last {
		first.Gate, first.Out, first.Arrivals = gate, out, c.add(U32, c.Capacity*a.Heads, Zeros)
		first.Arrivals.Scratch = true
		c.run(part, first)
	} else {
		c.run(part, first)
		c.run(merge, BlockAttentionMergeArguments[*Buffer]{Part: partial, ML: ml, Positions: positions,
			Sequences: sequences, Gate: gate, Out: out, Step: step})
	}
	if tiles != nil {
		bound = Bounds{1. / 128, 2 * roundedAll}
		chunk, _ := a.ChunkLaunch(c.Capacity, *tiles)
		c.run(chunk, AttentionChunkArguments[*Buffer]{Q: q, Keys: keys, Values: values, Gate: gate, Out: out,
			Positions: positions, Sequences: sequences,
			Blocks: blocks, Step: step})
	}
	c.reference = func() {
		a.Reference(t.units, q.Values(), keys.Values(), values.Values(), t.positions, t.sequences,
			t.blocks, gate.Values(),
			c.want(out, bound, len(rows)*a.Heads*a.D))
	}
	return c
}
