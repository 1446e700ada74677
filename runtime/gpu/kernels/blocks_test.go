package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// run are n rows of a sequence from a position on.
func run(sequence, position int32, n int) (out []kernels.BlockRow) {
	for i := range n {
		out = append(out, kernels.BlockRow{Sequence: sequence, Position: position + int32(i)})
	}
	return out
}

// nobody is a row of no sequence.
var nobody = kernels.BlockRow{Position: -1}

// rowsOf joins rows.
func rowsOf(parts ...[]kernels.BlockRow) (out []kernels.BlockRow) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// tablesOf returns the positions and the sequences of rows.
func tablesOf(rows []kernels.BlockRow) (positions, sequences []int32) {
	for _, r := range rows {
		positions, sequences = append(positions, r.Position), append(sequences, r.Sequence)
	}
	return positions, sequences
}

func TestRowAngles(t *testing.T) {
	t.Parallel()
	l, err := kernels.RowAngles{Dims: 12, Scale: 0.5}.Launch(9)
	require.NoError(t, err)
	kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 7, Capacity: 9, Position: 3}))
	_, err = kernels.RowAngles{Dims: 3}.Launch(1)
	require.EqualError(t, err, "rope of 3 dims, want an even number from 2 on")
}

func TestBlockWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kernels.BlockWrite
		rows []kernels.BlockRow
	}{
		"many sequences": {kernels.BlockWrite{Blocks: kernels.Blocks{Rows: 4, Columns: 9, Cache: kernels.F32}, D: 24,
			Heads: 3},
			rowsOf(run(2, 30, 5), run(0, 0, 3), []kernels.BlockRow{nobody}, run(1, 7, 1), []kernels.BlockRow{nobody})},
		"around a table": {kernels.BlockWrite{Blocks: kernels.Blocks{Rows: 3, Columns: 4, Cache: kernels.BF16}, D: 32,
			Heads: 2, X: kernels.Rows{Token: 200, Row: 70}},
			rowsOf(run(0, 10, 7), run(1, 1000, 2))},
		"codes": {kernels.BlockWrite{Blocks: kernels.Blocks{Rows: 4, Columns: 9, Cache: kernels.U32}, D: 96, Heads: 3,
			X: kernels.Rows{Token: 300, Row: 96}},
			rowsOf(run(2, 30, 5), run(0, 0, 3), []kernels.BlockRow{nobody}, run(1, 7, 1))},
		"codes of narrow rows": {kernels.BlockWrite{Blocks: kernels.Blocks{Rows: 3, Columns: 4, Cache: kernels.U32},
			D: 16, Heads: 2},
			rowsOf(run(0, 10, 7), run(1, 1000, 2))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Check(t, c.Case(kernels.Sizes{Whole: true, Capacity: len(c.rows) + 3}, c.rows))
		})
	}
	for _, c := range []struct {
		w   kernels.BlockWrite
		err string
	}{
		{kernels.BlockWrite{Blocks: kernels.Blocks{Rows: 0, Columns: 4, Cache: kernels.F32}, D: 2, Heads: 1},
			"block write: blocks of 0 rows in tables of 4 columns"},
		{kernels.BlockWrite{Blocks: kernels.Blocks{Rows: 1, Columns: 4, Cache: kernels.I32}, D: 2, Heads: 1},
			"block write: the cache is i32, want f32 or bf16"},
		{kernels.BlockWrite{Blocks: kernels.Blocks{Rows: 1, Columns: 4, Cache: kernels.U32}, D: 24, Heads: 1},
			"block write of 24 elements, which cannot be codes of 8 bits"},
		{kernels.BlockWrite{Blocks: kernels.Blocks{Rows: 1, Columns: 4, Cache: kernels.F32}, Heads: 1},
			"block write of 1 heads of 0 elements"},
	} {
		_, err := c.w.Launch(1)
		require.EqualError(t, err, c.err)
	}
}

func TestRopeInBlocks(t *testing.T) {
	t.Parallel()
	r := kernels.Rope{D: 64, Dims: 16, QHeads: 4, KVHeads: 2, Q: kernels.Rows{Token: 768, Row: 128},
		K: kernels.Rows{Token: 768, Row: 64},
		V: kernels.Rows{Token: 768, Row: 64}, QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm,
		VNorm: kernels.PlainHeadNorm, Eps: 1e-6,
		Weight: kernels.F32, Cache: kernels.F32, Blocks: kernels.Blocks{Rows: 4, Columns: 5, Cache: kernels.F32}}
	kerneltest.Check(t, r.Case(kernels.Sizes{Whole: true, Capacity: 9},
		rowsOf(run(1, 18, 3), []kernels.BlockRow{nobody}, run(0, 3, 2), run(2, 0, 1))))
	r.Blocks.Columns = 0
	_, err := r.Launch(2)
	require.EqualError(t, err, "rope: blocks of 4 rows in tables of 0 columns")
}

// blockAttentions are attentions over blocks and rows for them.
var blockAttentions = map[string]struct {
	kernels.BlockAttention
	rows []kernels.BlockRow
}{
	"one row, groups, gate": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 16, Columns: 20, Cache: kernels.BF16},
		D: 64, Heads: 8, KVHeads: 2, Scale: 0.125,
		Gated: true, Gates: kernels.Rows{Token: 8 * 128, Row: 128}}, run(0, 300, 1)},
	"rounded, gate": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 8, Columns: 12, Cache: kernels.F32}, D: 64,
		Heads: 4, KVHeads: 2, Scale: 0.2, Half: true, Gated: true, Gates: kernels.Rows{Token: 4 * 80, Row: 80}},
		rowsOf(run(1, 80, 2), []kernels.BlockRow{nobody}, run(0, 5, 1))},
	"in lanes": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 8, Columns: 12, Cache: kernels.BF16}, D: 64,
		Heads: 6, KVHeads: 2, Scale: 0.2, Half: true, Lanes: true},
		rowsOf(run(1, 80, 2), []kernels.BlockRow{nobody}, run(0, 5, 1))},
	"rows of three, window": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 8, Columns: 12, Cache: kernels.BF16},
		D: 256, Heads: 4, KVHeads: 2, Window: 70, Scale: 1,
		Tuning: kernels.BlockTuning{Parts: 4}},
		rowsOf(run(1, 180, 4), []kernels.BlockRow{nobody}, run(0, 5, 1), run(2, 68, 5))},
	"wide heads": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 5, Columns: 9, Cache: kernels.BF16}, D: 512,
		Heads: 2, KVHeads: 1, Scale: 0.05},
		rowsOf(run(0, 40, 1), run(1, 3, 1))},
	"rows that share, parts": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 32, Columns: 5, Cache: kernels.F32},
		D: 32, Heads: 4, KVHeads: 2, Scale: 0.2,
		Q: kernels.Rows{Token: 300, Row: 50}, Tuning: kernels.BlockTuning{Tokens: 4, Parts: 3}},
		rowsOf(run(0, 61, 9), run(1, 120, 3), run(2, 0, 6), []kernels.BlockRow{nobody, nobody}, run(3, 127, 2))},
	"from a position on": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 8, Columns: 33, Cache: kernels.BF16},
		D: 64, Heads: 4, KVHeads: 2, First: 2, Scale: 0.125,
		Tuning: kernels.BlockTuning{Tokens: 2, Parts: 4, Least: 32, Simdgroups: 2}},
		rowsOf(run(0, 0, 4), run(1, 256, 1), run(2, 2, 1), run(3, 127, 2), []kernels.BlockRow{nobody}, run(4, 255, 1))},
	"codes, window": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 8, Columns: 12, Cache: kernels.U32}, D: 256,
		Heads: 4, KVHeads: 2, Window: 70, Scale: 0.06,
		Tuning: kernels.BlockTuning{Parts: 4}}, rowsOf(run(1, 180, 4), []kernels.BlockRow{nobody}, run(0, 5, 1))},
	"codes of odd groups": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 7, Columns: 8, Cache: kernels.U32},
		D: 96, Heads: 2, KVHeads: 1, Scale: 0.1},
		rowsOf(run(0, 30, 3), run(1, 2, 2))},
	"codes of two words a lane": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 7, Columns: 8,
		Cache: kernels.U32}, D: 64, Heads: 2, KVHeads: 2, Scale: 0.1},
		rowsOf(run(0, 30, 1))},
	"one part": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 7, Columns: 8, Cache: kernels.F32}, D: 96,
		Heads: 2, KVHeads: 1, Window: 20, Scale: 0.1,
		Tuning: kernels.BlockTuning{Tokens: 2, Parts: 1}}, rowsOf(run(0, 30, 3), run(1, 2, 2))},
}

func TestBlockAttention(t *testing.T) {
	t.Parallel()
	for name, c := range blockAttentions {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			kerneltest.Check(t, c.Case(kernels.Sizes{Whole: true, Capacity: len(c.rows) + 2}, c.rows))
		})
		t.Run(name+", in one kernel", func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			one := c.BlockAttention
			one.Last = true
			kerneltest.CheckWithin(t, kerneltest.CUDAMemory, one.Case(kernels.Sizes{Whole: true,
				Capacity: len(c.rows) + 2}, c.rows))
		})
	}
	ok := kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 4, Columns: 2, Cache: kernels.BF16}, D: 64,
		Heads: 4, KVHeads: 2, Scale: 1}
	for _, c := range []struct {
		change func(a *kernels.BlockAttention)
		err    string
	}{
		{func(a *kernels.BlockAttention) { a.D = 80 },
			"attention over blocks: heads of 80 elements, want a multiple of 32 up to 1024"},
		{func(a *kernels.BlockAttention) { a.Heads = 3 },
			"attention over blocks: 3 query heads, want a multiple of the 2 key heads"},
		{func(a *kernels.BlockAttention) { a.Columns = 0 },
			"attention over blocks: blocks of 4 rows in tables of 0 columns"},
		{func(a *kernels.BlockAttention) { a.First, a.Window = 1, 7 },
			"attention over blocks: the first position is 1: with a window, here of 7, only 0 is known"},
		{func(a *kernels.BlockAttention) { a.First = -1 },
			"attention over blocks: the first position is -1, want 0 or more"},
		{func(a *kernels.BlockAttention) { a.First, a.Short = 1, true },
			"attention over blocks: the first position is 1: where tiles take part of the rows (Short), only 0 is known"},
		{func(a *kernels.BlockAttention) { a.Half, a.Short = true, true },
			"attention over blocks: bf16 is written by tiles, too, want f32"},
		{func(a *kernels.BlockAttention) { a.Lanes = true },
			"attention over blocks: 4 heads of 64 elements in the order of lanes: want bf16, and a multiple of 128 elements in all"},
		{func(a *kernels.BlockAttention) { a.Window = -1 }, "attention over blocks: a window of -1"},
		{func(a *kernels.BlockAttention) { a.Tuning = kernels.BlockTuning{Least: 40} },
			"attention over blocks tuned to {Heads:2 Tokens:1 Keys:8 Parts:64 Least:40 Simdgroups:4}, want parts of a multiple of the 32 keys of a threadgroup, at most 16 rows, and other than 2 parts of a window"},
	} {
		a := ok
		c.change(&a)
		_, _, _, err := a.Launches(1)
		require.EqualError(t, err, c.err)
	}
}

// TestRowsAlone: neighbouring rows share simdgroups in calls of many rows, and in smaller ones with several rows of a
// sequence.
func TestRowsAlone(t *testing.T) {
	t.Parallel()
	a := kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 64, Columns: 4, Cache: kernels.BF16}, D: 256, Heads: 32,
		KVHeads: 16, Scale: 1}
	for _, c := range []struct {
		short      bool
		rows, want int
	}{{false, 16, 1}, {false, 32, 1}, {false, 33, 2}, {true, 16, 1}, {true, 17, 2}} {
		a.Short = c.short
		require.Equal(t, c.want, a.Tunings(c.rows)[0].Tokens, "%+v", c)
	}
}

// TestBlockAttentionByTiles: long runs of rows go by tiles, wherever they lie among the rows of a call, and short ones
// do not.
func TestBlockAttentionByTiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kernels.BlockAttention
		tuning kernels.ChunkTuning
		rows   []kernels.BlockRow
	}{
		"runs and rows, gate": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 8, Columns: 16,
			Cache: kernels.BF16}, D: 32, Heads: 4, KVHeads: 2, Scale: 0.2,
			Q: kernels.Rows{Token: 300, Row: 40}, Gated: true, Gates: kernels.Rows{Token: 4 * 64, Row: 64}},
			kernels.ChunkTuning{Heads: 2, Rows: 2, Keys: 16, Columns: 32, QueriesInRegisters: true},
			rowsOf(run(1, 70, 1), run(0, 90, 16), run(2, 3, 15), []kernels.BlockRow{nobody},
				run(3, 0, 40), run(4, 9, 2))},
		"window around a table": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 4, Columns: 20,
			Cache: kernels.BF16}, D: 64, Heads: 2, KVHeads: 1, Window: 30, Scale: 0.125},
			kernels.ChunkTuning{Heads: 1, Rows: 1, Keys: 32, Columns: 32},
			rowsOf(run(0, 100, 21), run(1, 5, 3), run(2, 50, 17))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sizes := kernels.Sizes{Whole: true, Capacity: len(c.rows) + 3}
			kerneltest.Check(t, c.ChunkCase(sizes, c.rows, len(c.rows), c.tuning))
			c.Last = true
			kerneltest.CheckWithin(t, kerneltest.CUDAMemory, c.ChunkCase(sizes, c.rows, len(c.rows), c.tuning))
		})
	}
	a := kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 4, Columns: 20, Cache: kernels.F32}, D: 64, Heads: 2,
		KVHeads: 1, Scale: 0.125}
	_, err := a.ChunkLaunch(20, kernels.ChunkTuning{})
	require.EqualError(t, err, "attention by tiles over a cache of f32, want bf16")
}

// TestBlockRowsAreAlone: a row gives the same bits whichever rows of its sequence, and of others, are in the call.
func TestBlockRowsAreAlone(t *testing.T) {
	t.Parallel()
	const units, columns, size = 30, 12, 8
	a := kernels.BlockAttention{Blocks: kernels.Blocks{Rows: size, Columns: columns, Cache: kernels.F32}, D: 32,
		Heads: 4, KVHeads: 2, Window: 70, Scale: 0.2,
		Tuning: kernels.BlockTuning{Tokens: 4, Parts: 5, Simdgroups: 2, Least: 16}}
	rows := rowsOf(run(1, 86, 7), run(0, 60, 3), []kernels.BlockRow{nobody}, run(1, 93, 1))
	keys, values, queries := seeded(1).floats(2*units*size*a.D), seeded(2).floats(2*units*size*a.D),
		seeded(3).floats(len(rows)*4*a.D)
	blocks := make([]int32, 2*columns)
	for i := range blocks {
		blocks[i] = int32(i * 7 % units)
	}
	attend := func(rows []kernels.BlockRow, q []float32) []float32 {
		part, merge, parts, err := a.Launches(len(rows))
		require.NoError(t, err)
		positions, sequences := tablesOf(rows)
		n := len(rows) * a.Heads
		partial, ml, out, step := make([]float32, n*parts*a.D), make([]float32, n*parts*2), make([]float32, n*a.D),
			[]int32{int32(len(rows)), units}
		kerneltest.Run(t, part, kernels.BlockAttentionPartArguments[any]{Q: q, Keys: keys, Values: values,
			Positions: positions, Sequences: sequences,
			Blocks: blocks, Part: partial, ML: ml, Step: step})
		kerneltest.Run(t, merge, kernels.BlockAttentionMergeArguments[any]{Part: partial, ML: ml, Positions: positions,
			Sequences: sequences, Out: out, Step: step})
		return out
	}
	// In one kernel a row may give other bits than in two.
	inOne := func(rows []kernels.BlockRow, q []float32) []float32 {
		one := a
		one.Last = true
		part, _, parts, err := one.Launches(len(rows))
		require.NoError(t, err)
		positions, sequences := tablesOf(rows)
		n := len(rows) * a.Heads
		out, arrivals := make([]float32, n*a.D), make([]uint32, n)
		kerneltest.RunWithin(t, kerneltest.CUDAMemory, part, kernels.BlockAttentionPartArguments[any]{Q: q, Keys: keys,
			Values: values, Positions: positions, Sequences: sequences, Blocks: blocks, Part: make([]float32, n*parts*a.D),
			ML: make([]float32, n*parts*2), Out: out, Arrivals: arrivals, Step: []int32{int32(len(rows)), units}})
		require.Equal(t, make([]uint32, n), arrivals)
		return out
	}
	for _, attend := range []func([]kernels.BlockRow, []float32) []float32{attend, inOne} {
		requireAlone(t, rows, queries, a.Heads*a.D, attend)
	}
}

// requireAlone requires that attend gives the same for parts of rows as for all of them. A row has each elements.
func requireAlone(t *testing.T, rows []kernels.BlockRow, queries []float32, each int,
	attend func([]kernels.BlockRow, []float32) []float32) {
	t.Helper()
	whole := attend(rows, queries)
	for _, cut := range [][2]int{{0, 1}, {3, 4}, {6, 7}, {2, 7}, {7, 9}, {9, 12}} {
		if testing.Short() && cut[0]%3 > 0 {
			continue
		}
		got := attend(rows[cut[0]:cut[1]], queries[cut[0]*each:cut[1]*each])
		require.Equal(t, whole[cut[0]*each:cut[1]*each], got, "rows %v", cut)
	}
}
