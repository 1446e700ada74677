package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestAttention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kernels.Attention
		tokens    int
		positions []int
	}{
		"one token, groups, gate": {kernels.Attention{D: 64, Heads: 8, KVHeads: 2, Slots: 300,
			Scale: 0.125, Cache: kernels.BF16,
			Gated: true, Gates: kernels.Rows{Token: 8 * 128, Row: 128}}, 1, []int{0, 3, 130, 299}},
		"one token, window in a ring": {kernels.Attention{D: 256, Heads: 4, KVHeads: 2, Slots: 60, Window: 40,
			Scale: 1, Cache: kernels.BF16,
			Tuning: kernels.AttentionTuning{Least: 8, Blocks: 3}}, 1, []int{5, 39, 59, 75, 100}},
		"one token, wide heads": {kernels.Attention{D: 512, Heads: 2, KVHeads: 1, Slots: 40, Scale: 0.05,
			Cache: kernels.BF16}, 1, []int{33}},
		"one token, eight heads": {kernels.Attention{D: 32, Heads: 8, KVHeads: 1, Slots: 90,
			Scale: 0.2, Cache: kernels.BF16,
			Tuning: kernels.AttentionTuning{Heads: 8, Keys: 4, Least: 2, Simdgroups: 2}}, 1, []int{77}},
		"one token, fp32": {kernels.Attention{D: 128, Heads: 2, KVHeads: 2, Slots: 50, Scale: 0.1, Cache: kernels.F32},
			1, []int{49}},
		"chunk, fp32": {kernels.Attention{D: 32, Heads: 4, KVHeads: 2, Slots: 64, Scale: 0.2, Cache: kernels.F32},
			21, []int{0, 43}},
		"chunk, window": {kernels.Attention{D: 96, Heads: 2, KVHeads: 1, Slots: 24, Window: 16, Scale: 0.1,
			Cache: kernels.BF16}, 9, []int{0, 30}},
	} {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			capacity := c.tokens
			if capacity > 1 {
				capacity += 3
			}
			_, merge, _, err := c.Launches(capacity)
			require.NoError(t, err)
			for _, position := range c.positions {
				kerneltest.Check(t, merge.Case(kernels.Sizes{Whole: true, Tokens: c.tokens,
					Capacity: capacity, Position: position}))
			}
		})
	}
}

func TestAttentionByTiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kernels.Attention
		tuning    kernels.ChunkTuning
		tokens    int
		positions []int
	}{
		"groups, gate": {kernels.Attention{D: 64, Heads: 4, KVHeads: 1, Slots: 128, Scale: 0.125,
			Cache: kernels.BF16, Gated: true,
			Gates: kernels.Rows{Token: 4 * 128, Row: 128}}, kernels.ChunkTuning{}, 21, []int{0, 90}},
		"window in a ring": {kernels.Attention{D: 32, Heads: 2, KVHeads: 1, Slots: 71, Window: 40, Scale: 0.3,
			Cache: kernels.BF16}, kernels.ChunkTuning{}, 32, []int{0, 50}},
		"parts of columns": {kernels.Attention{D: 64, Heads: 1, KVHeads: 1, Slots: 40,
			Scale: 0.125, Cache: kernels.BF16},
			kernels.ChunkTuning{Heads: 1, Rows: 2, Keys: 16, Columns: 32, QueriesInRegisters: false}, 33, []int{7}},
		"as CUDA is given it": {kernels.Attention{D: 256, Heads: 2, KVHeads: 1, Slots: 40,
			Scale: 0.0625, Cache: kernels.BF16},
			kernels.Attention{D: 256, Heads: 2, KVHeads: 1}.ChunkTunings(kernels.Machine{Target: kernels.CUDA})[0], 3, []int{30}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			capacity := c.tokens + 20
			l, err := c.ChunkLaunch(capacity, c.tuning)
			require.NoError(t, err)
			memory := kerneltest.MetalMemory
			if c.tuning.Columns == 256 {
				memory = kerneltest.CUDAMemory
			}
			for _, position := range c.positions {
				kerneltest.CheckWithin(t, memory,
					l.Case(kernels.Sizes{Whole: true, Tokens: c.tokens, Capacity: capacity, Position: position}))
			}
		})
	}
}

// TestAttentionTunings: what is proposed for the models' shapes can be launched, and what is for Metal fits it.
func TestAttentionTunings(t *testing.T) {
	for _, a := range []kernels.Attention{
		{D: 256, Heads: 16, KVHeads: 2, Slots: 262144, Scale: 1, Cache: kernels.BF16},
		{D: 256, Heads: 32, KVHeads: 16, Slots: 2047, Window: 1024, Scale: 1, Cache: kernels.BF16},
		{D: 512, Heads: 32, KVHeads: 4, Slots: 262144, Scale: 1, Cache: kernels.BF16},
	} {
		for target, memory := range map[kernels.Target]int{kernels.Metal: kerneltest.MetalMemory,
			kernels.CUDA: kerneltest.CUDAMemory} {
			for _, many := range []bool{false, true} {
				tunings := a.Tunings(target, many)
				require.Greater(t, len(tunings), 4)
				for _, tuning := range tunings {
					tuned := a
					tuned.Tuning = tuning
					part, merge, blocks, err := tuned.Launches(1)
					require.NoError(t, err)
					require.LessOrEqual(t, part.Threads[0], 1024)
					require.LessOrEqual(t, merge.Threads[0], 1024)
					require.Equal(t, !many, blocks > 1)
				}
			}
			chunks := a.ChunkTunings(kernels.Machine{Target: target})
			require.Greater(t, len(chunks), 2)
			for _, c := range chunks {
				_, err := a.ChunkLaunch(1024, c)
				require.NoError(t, err)
				require.LessOrEqual(t, 2*c.Keys*(a.D+8+c.Columns+8), memory)
			}
		}
		first := a.ChunkTunings(kernels.Machine{Target: kernels.CUDA})[0]
		if a.D == 256 && a.Window > 0 {
			require.Equal(t, []any{128, true}, []any{first.Columns, first.QueriesInRegisters})
		} else {
			require.Equal(t, []any{256, false}, []any{first.Columns, first.QueriesInRegisters})
		}
	}
}

func TestAttentionRefusals(t *testing.T) {
	ok := kernels.Attention{D: 64, Heads: 4, KVHeads: 2, Slots: 8, Scale: 1, Cache: kernels.BF16}
	for _, c := range []struct {
		change func(a *kernels.Attention)
		err    string
	}{
		{func(a *kernels.Attention) { a.D = 80 },
			"attention of heads of 80 elements, want a multiple of 32 up to 1024"},
		{func(a *kernels.Attention) { a.Heads = 3 }, "attention of 3 query heads, want a multiple of the 2 key heads"},
		{func(a *kernels.Attention) { a.Slots = 0 }, "attention over 0 slots with a window of 0"},
		{func(a *kernels.Attention) { a.Cache = kernels.Bool }, "attention: the cache is bool, want f32 or bf16"},
		{func(a *kernels.Attention) { a.Tuning = kernels.AttentionTuning{Heads: 2, Tokens: 1, Keys: 3} },
			"attention tuned to 2 heads, 1 tokens and 3 keys of a simdgroup, want powers of two, 2 to 32 in product, heads that divide 2"},
	} {
		a := ok
		c.change(&a)
		_, _, _, err := a.Launches(1)
		require.EqualError(t, err, c.err)
	}
	wide := ok
	wide.D = 1024
	_, err := wide.ChunkLaunch(8, kernels.ChunkTuning{})
	require.EqualError(t, err, "attention by tiles of heads of 1024 elements does not fit 32768 bytes of threadgroup memory")
	f32 := ok
	f32.Cache = kernels.F32
	_, err = f32.ChunkLaunch(8, kernels.ChunkTuning{})
	require.EqualError(t, err, "attention by tiles over a cache of f32, want bf16")
	_, err = ok.ChunkLaunch(8, kernels.ChunkTuning{Heads: 4, Rows: 1, Keys: 16, Columns: 64})
	require.EqualError(t, err, "attention by tiles tuned to 4 heads and 1 rows, want at most 16 in product and heads that divide 2")
	_, err = ok.ChunkLaunch(8, kernels.ChunkTuning{Heads: 2, Rows: 1, Keys: 16, Columns: 48})
	require.EqualError(t, err, "attention by tiles tuned to 16 keys and 48 columns, want multiples of 16 and columns that divide 64")
}
