package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// together is a machine where four simdgroups multiply together.
var together = kernels.Machine{Target: kernels.CUDA, Cores: 132, TransferMemory: 225 << 10, Groups: true}

func TestAttentionByGroups(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kernels.Attention
		tokens    int
		positions []int
	}{
		"groups, gate": {kernels.Attention{D: 64, Heads: 8, KVHeads: 1, Slots: 256, Scale: 0.125,
			Cache: kernels.BF16, Gated: true, Gates: kernels.Rows{Token: 8 * 128, Row: 128}}, 21, []int{0, 190}},
		"window in a ring": {kernels.Attention{D: 64, Heads: 2, KVHeads: 1, Slots: 139, Window: 70, Scale: 0.3,
			Cache: kernels.BF16}, 70, []int{0, 150}},
		"few slots": {kernels.Attention{D: 128, Heads: 3, KVHeads: 1, Slots: 45, Scale: 0.1, Cache: kernels.BF16},
			7, []int{80}},
		"wide heads": {kernels.Attention{D: 256, Heads: 2, KVHeads: 2, Slots: 192, Scale: 0.0625,
			Cache: kernels.BF16}, 9, []int{160}},
		"columns shared": {kernels.Attention{D: 512, Heads: 4, KVHeads: 1, Slots: 150, Scale: 0.05,
			Cache: kernels.BF16}, 19, []int{120}},
	} {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			capacity := c.tokens + 20
			l, err := c.ChunkLaunch(capacity, c.ChunkTunings(together)[0])
			require.NoError(t, err)
			for _, position := range c.positions {
				kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.tokens, Capacity: capacity,
					Position: position}))
			}
		})
	}
}

// TestBlockAttentionByGroups: runs of rows find their keys in blocks of as many positions as a tile, and of fewer.
func TestBlockAttentionByGroups(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kernels.BlockAttention
		rows []kernels.BlockRow
	}{
		"runs and rows, gate": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 64, Columns: 3,
			Cache: kernels.BF16}, D: 64, Heads: 4, KVHeads: 2, Scale: 0.2,
			Q: kernels.Rows{Token: 500, Row: 100}, Gated: true, Gates: kernels.Rows{Token: 4 * 64, Row: 64}},
			rowsOf(run(1, 70, 1), run(0, 90, 16), run(2, 3, 15), []kernels.BlockRow{nobody},
				run(3, 0, 70), run(4, 9, 2))},
		"window around a table": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 4, Columns: 20,
			Cache: kernels.BF16}, D: 64, Heads: 2, KVHeads: 1, Window: 30, Scale: 0.125},
			rowsOf(run(0, 100, 21), run(1, 5, 3), run(2, 50, 17))},
		"columns shared": {kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 64, Columns: 2,
			Cache: kernels.BF16}, D: 512, Heads: 2, KVHeads: 1, Scale: 0.05},
			rowsOf(run(0, 50, 17), run(1, 5, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			sizes := kernels.Sizes{Whole: true, Capacity: len(c.rows) + 3}
			kerneltest.Check(t, c.ChunkCase(sizes, c.rows, len(c.rows), c.ChunkTunings(together)[0]))
		})
	}
}

// TestAttentionGroupTunings: the models' shapes have a tuning for machines where four simdgroups multiply together, and
// no other machine gets one.
func TestAttentionGroupTunings(t *testing.T) {
	for _, a := range []kernels.Attention{
		{D: 128, Heads: 56, KVHeads: 8, Slots: 32768, Scale: 1, Cache: kernels.BF16},
		{D: 256, Heads: 16, KVHeads: 2, Slots: 262144, Scale: 1, Cache: kernels.BF16},
		{D: 256, Heads: 32, KVHeads: 16, Slots: 2047, Window: 1024, Scale: 1, Cache: kernels.BF16},
		{D: 512, Heads: 32, KVHeads: 4, Slots: 262144, Scale: 1, Cache: kernels.BF16},
	} {
		tunings := a.ChunkTunings(together)
		require.True(t, tunings[0].Together)
		require.False(t, tunings[len(tunings)-1].Together)
		require.Len(t, reachedFrom(tunings), len(tunings))
		for _, tuning := range tunings {
			l, err := a.ChunkLaunch(1024, tuning)
			require.NoError(t, err)
			require.LessOrEqual(t, l.Memory, together.TransferMemory)
		}
		alone := together
		alone.Groups = false
		require.False(t, a.ChunkTunings(alone)[0].Together)
	}
	other := kernels.Attention{D: 96, Heads: 4, KVHeads: 2, Slots: 8, Scale: 1, Cache: kernels.BF16}
	require.False(t, other.ChunkTunings(together)[0].Together)
}

func TestAttentionGroupRefusals(t *testing.T) {
	ok := kernels.Attention{D: 64, Heads: 12, KVHeads: 2, Slots: 8, Scale: 1, Cache: kernels.BF16}
	right := ok.ChunkTunings(together)[0]
	for _, c := range []struct {
		change func(a *kernels.Attention, tuning *kernels.ChunkTuning)
		err    string
	}{
		{func(a *kernels.Attention, _ *kernels.ChunkTuning) { a.D = 96 },
			"attention by four simdgroups together of heads of 96 elements, want 64, 128, 256 or 512"},
		{func(_ *kernels.Attention, tuning *kernels.ChunkTuning) { tuning.Heads = 3 },
			"attention by four simdgroups together tuned to 3 heads, want a power of two up to 64 that divides 6"},
		{func(_ *kernels.Attention, tuning *kernels.ChunkTuning) { tuning.Heads = 4 },
			"attention by four simdgroups together tuned to 4 heads, want a power of two up to 64 that divides 6"},
		{func(_ *kernels.Attention, tuning *kernels.ChunkTuning) { tuning.Keys = 32 },
			"attention by four simdgroups together tuned to {Heads:2 Rows:8 Keys:32 Columns:64 QueriesInRegisters:false " +
				"Together:true}, want 8 blocks of rows, 64 keys and 64 columns"},
		{func(a *kernels.Attention, _ *kernels.ChunkTuning) { a.Cache = kernels.F32 },
			"attention by tiles over a cache of f32, want bf16"},
	} {
		a, tuning := ok, right
		c.change(&a, &tuning)
		_, err := a.ChunkLaunch(8, tuning)
		require.EqualError(t, err, c.err)
	}
}
