package kernels_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

func TestNear(t *testing.T) {
	first := kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 8, Bytes: 16}
	for name, c := range map[string]struct {
		other kernels.Tuning
		near  bool
	}{
		"itself":                 {first, false},
		"rows":                   {kernels.Tuning{Rows: 1, Lanes: 32, Split: 2, Sets: 8, Bytes: 16}, true},
		"sets":                   {kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 4, Bytes: 16}, true},
		"split, as many threads": {kernels.Tuning{Rows: 2, Lanes: 32, Split: 4, Sets: 4, Bytes: 16}, true},
		"split, as many sets":    {kernels.Tuning{Rows: 2, Lanes: 32, Split: 4, Sets: 8, Bytes: 16}, true},
		"split, neither":         {kernels.Tuning{Rows: 2, Lanes: 32, Split: 4, Sets: 2, Bytes: 16}, false},
		"lanes and split":        {kernels.Tuning{Rows: 2, Lanes: 16, Split: 4, Sets: 8, Bytes: 16}, true},
		"bytes":                  {kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 8, Bytes: 8}, true},
		"rows and bytes":         {kernels.Tuning{Rows: 1, Lanes: 32, Split: 2, Sets: 8, Bytes: 8}, false},
		"permuted": {kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 8, Bytes: 16, Permute: true},
			true},
		"lanes": {kernels.Tuning{Rows: 2, Lanes: 16, Split: 2, Sets: 8, Bytes: 16}, true},
		"direct": {kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 8, Bytes: 16, Direct: true},
			false},
		"direct, rows": {kernels.Tuning{Rows: 1, Lanes: 32, Split: 2, Sets: 8, Bytes: 16, Direct: true},
			false},
		"chunks of another length": {kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 8, Bytes: 16, Chunk: 512},
			true},
	} {
		require.Equal(t, c.near, first.Near(c.other), name)
		require.Equal(t, c.near, c.other.Near(first), name)
	}
	require.True(t, kernels.Tile{BM: 16}.Near(kernels.Tile{BM: 32, BN: 64}))
}

// TestClimbable: a search that goes from way to way, each near the last one, gets everywhere, and what is near the
// default is listed before most of what is not.
func TestClimbable(t *testing.T) {
	experts := kernels.Experts{Format: affine4, Count: 256, Top: 8, Hidden: 2048, Inner: 512,
		Router: kernels.Router{Experts: 256, Top: 8, Normalize: true, Scale: 1}, Shared: true}
	for _, target := range []kernels.Target{kernels.CUDA, kernels.Metal} {
		up, down := experts.Tunings(kernels.Machine{Target: target})
		lists := [][]kernels.Tuning{up, down}
		for _, v := range []kernels.Vectors{{Format: affine4, K: 2048, M: 1}, {Format: affine4, K: 21504, M: 1},
			{Format: affine4, K: 2048, M: 4},
			{Format: kernels.Format{Bits: 8, Group: 64}, K: 2048, M: 1},
			{Format: kernels.Format{Bits: 16}, K: 512, M: 2}} {
			lists = append(lists, kernels.MatVec{Vectors: v, N: 2048}.Tunings(kernels.Machine{Target: target}))
		}
		for i, all := range lists {
			reached := []int{0}
			seen := map[int]bool{0: true}
			for i := 0; i < len(reached); i++ {
				for j := range all {
					if !seen[j] && all[reached[i]].Near(all[j]) {
						seen[j] = true
						reached = append(reached, j)
					}
				}
			}
			require.Len(t, reached, len(all), "list %d", i)
			require.True(t, all[0].Near(all[1]) && all[0].Near(all[2]), "list %d", i)
		}
	}
}

// TestNearAttention: what differs in one respect is near.
func TestNearAttention(t *testing.T) {
	split := kernels.AttentionTuning{Heads: 4, Tokens: 2, Keys: 4, Blocks: 8, Least: 64, Simdgroups: 4}
	for name, c := range map[string]struct {
		other kernels.AttentionTuning
		near  bool
	}{
		"itself": {split, false},
		"keys": {kernels.AttentionTuning{Heads: 4, Tokens: 2, Keys: 8, Blocks: 8,
			Least: 64, Simdgroups: 4}, true},
		"heads, with tokens": {kernels.AttentionTuning{Heads: 2, Tokens: 4, Keys: 4, Blocks: 8,
			Least: 64, Simdgroups: 4}, true},
		"simdgroups": {kernels.AttentionTuning{Heads: 4, Tokens: 2, Keys: 4, Blocks: 8,
			Least: 64, Simdgroups: 8}, true},
		"keys and simdgroups": {kernels.AttentionTuning{Heads: 4, Tokens: 2, Keys: 8, Blocks: 8, Least: 64,
			Simdgroups: 8}, false},
		"keys and blocks": {kernels.AttentionTuning{Heads: 4, Tokens: 2, Keys: 8, Blocks: 4, Least: 64,
			Simdgroups: 4}, false},
		"keys and least": {kernels.AttentionTuning{Heads: 4, Tokens: 2, Keys: 8, Blocks: 8, Least: 32,
			Simdgroups: 4}, false},
	} {
		require.Equal(t, c.near, split.Near(c.other), name)
		require.Equal(t, c.near, c.other.Near(split), name)
	}
	tiles := kernels.ChunkTuning{Heads: 4, Rows: 1, Keys: 32, Columns: 256}
	for name, c := range map[string]struct {
		other kernels.ChunkTuning
		near  bool
	}{
		"itself":  {tiles, false},
		"heads":   {kernels.ChunkTuning{Heads: 2, Rows: 1, Keys: 32, Columns: 256}, true},
		"rows":    {kernels.ChunkTuning{Heads: 4, Rows: 2, Keys: 32, Columns: 256}, true},
		"keys":    {kernels.ChunkTuning{Heads: 4, Rows: 1, Keys: 16, Columns: 256}, true},
		"columns": {kernels.ChunkTuning{Heads: 4, Rows: 1, Keys: 32, Columns: 128}, true},
		"held": {kernels.ChunkTuning{Heads: 4, Rows: 1, Keys: 32, Columns: 256,
			QueriesInRegisters: true}, true},
		"rows and keys": {kernels.ChunkTuning{Heads: 4, Rows: 2, Keys: 16, Columns: 256}, false},
	} {
		require.Equal(t, c.near, tiles.Near(c.other), name)
		require.Equal(t, c.near, c.other.Near(tiles), name)
	}
	require.True(t, kernels.StepTuning{Heads: 4}.Near(kernels.StepTuning{Heads: 2, Keys: 8}))
}

// TestClimbableAttention: from the default a search gets to all ways to divide attention of models' heads, which divide
// a token's positions into as many blocks.
func TestClimbableAttention(t *testing.T) {
	for _, a := range []kernels.Attention{{D: 256, Heads: 16, KVHeads: 2, Slots: 4096},
		{D: 128, Heads: 32, KVHeads: 8, Slots: 32768},
		{D: 256, Heads: 32, KVHeads: 16, Slots: 1280, Window: 1024}, {D: 512, Heads: 32, KVHeads: 4, Slots: 4096},
		{D: 64, Heads: 4, KVHeads: 2, Slots: 40}} {
		a.Scale, a.Cache = 0.1, kernels.BF16
		for _, target := range []kernels.Target{kernels.CUDA, kernels.Metal} {
			for _, many := range []bool{false, true} {
				all := a.Tunings(target, many)
				require.Greater(t, len(all), 5)
				require.Len(t, reachedFrom(all), len(all))
				for _, w := range all {
					require.Equal(t, [2]int{all[0].Blocks, all[0].Least}, [2]int{w.Blocks, w.Least})
				}
			}
			tiles := a.ChunkTunings(kernels.Machine{Target: target})
			require.Greater(t, len(tiles), 5)
			require.Len(t, reachedFrom(tiles), len(tiles))
		}
	}
}

// reachedFrom are the ways that a chain of near ones leads to from the first.
func reachedFrom[T interface {
	comparable
	Near(T) bool
}](all []T) []T {
	reached := all[:1:1]
	for i := 0; i < len(reached); i++ {
		for _, w := range all {
			if reached[i].Near(w) && !slices.Contains(reached, w) {
				reached = append(reached, w)
			}
		}
	}
	return reached
}

// TestDirectWays: of products with few rows there are direct ways on NVIDIA, a kind of their own behind the others,
// whose default has a threadgroup for about every multiprocessor of an H100 where the product is a router.
func TestDirectWays(t *testing.T) {
	eight := kernels.Format{Bits: 8, Group: 64}
	hopper := kernels.Machine{Target: kernels.CUDA, Cores: 132, TransferMemory: 225 << 10, TransferLeast: 16 << 20}
	router := kernels.MatVecMany{Vectors: kernels.Vectors{Format: eight, K: 2048, M: 1, Norm: kernels.NormF32,
		Eps: 1e-6}, N: []int{256, 1}}
	pair := kernels.MatVecGLU{Vectors: kernels.Vectors{Format: affine4, K: 2048, M: 1}, N: 512}
	for name, c := range map[string]struct {
		all    []kernels.Tuning
		launch func(kernels.Tuning) (kernels.Launch, error)
		groups int
	}{
		"a router": {router.Tunings(hopper), router.Launch, 129},
		"a pair":   {pair.Tunings(hopper), pair.Launch, 256},
	} {
		t.Run(name, func(t *testing.T) {
			first := slices.IndexFunc(c.all, func(w kernels.Tuning) bool { return w.Direct })
			require.Positive(t, first)
			staged, direct := c.all[:first], c.all[first:]
			require.Greater(t, len(direct), 5)
			reached := direct[:1:1]
			for i := 0; i < len(reached); i++ {
				for _, w := range direct {
					if reached[i].Near(w) && !slices.Contains(reached, w) {
						reached = append(reached, w)
					}
				}
			}
			require.ElementsMatch(t, direct, reached)
			for _, w := range direct {
				l, err := c.launch(w)
				require.NoError(t, err)
				require.Contains(t, l.Key(), "MATVEC_DIRECT=1")
				require.False(t, slices.ContainsFunc(staged, w.Near))
			}
			for _, w := range staged {
				l, err := c.launch(w)
				require.NoError(t, err)
				require.NotContains(t, l.Key(), "MATVEC_DIRECT")
			}
			l, err := c.launch(direct[0])
			require.NoError(t, err)
			require.Equal(t, c.groups, l.Groups[0])
		})
	}
	isDirect := func(w kernels.Tuning) bool { return w.Direct }
	of := func(k, m, head int, rows int, on kernels.Target) bool {
		v := kernels.MatVec{Vectors: kernels.Vectors{Format: eight, K: k, M: m, Norm: kernels.NormF32}, N: rows,
			Head: head}
		return slices.ContainsFunc(v.Tunings(kernels.Machine{Target: on}), isDirect)
	}
	require.True(t, of(4096, 1, 0, 1024, kernels.CUDA))
	require.False(t, of(8192, 1, 0, 1024, kernels.CUDA), "long rows")
	require.False(t, of(2048, 2, 0, 1024, kernels.CUDA), "two vectors")
	require.False(t, of(2048, 1, 128, 1024, kernels.CUDA), "heads")
	require.False(t, of(2048, 1, 0, 1025, kernels.CUDA), "many rows")
	require.False(t, of(2048, 1, 0, 1024, kernels.Metal))
	router.N = []int{1000, 25}
	require.False(t, slices.ContainsFunc(router.Tunings(hopper), isDirect), "many rows of two weights")
}

// TestNumbersOfSimdgroups: on NVIDIA numbers of simdgroups between powers of two are tried, too, and grids of the
// experts' first product of which a multiprocessor of an H100 holds two or three threadgroups at once come early.
func TestNumbersOfSimdgroups(t *testing.T) {
	e := kernels.Experts{Format: affine4, Count: 256, Top: 8, Hidden: 2048, Inner: 512,
		Router: kernels.Router{Experts: 256, Top: 8, Normalize: true, Scale: 1}, Shared: true}
	up, _ := e.Tunings(kernels.Machine{Target: kernels.CUDA})
	for i, most := range []int{2 * 132, 3 * 132} {
		l, err := e.LaunchUp(up[i+1], 1)
		require.NoError(t, err)
		groups := l.Groups[0] * l.Groups[1]
		require.True(t, groups <= most && groups > most*9/10, "%d threadgroups, want up to %d", groups, most)
		require.True(t, up[0].Near(up[i+1]))
	}
	for target, want := range map[kernels.Target][]int{kernels.Metal: {4, 8, 16},
		kernels.CUDA: {4, 5, 6, 7, 8, 9, 10, 12, 16}} {
		for _, v := range []kernels.MatVec{{Vectors: kernels.Vectors{Format: affine4, K: 2048, M: 1}, N: 2048},
			{Vectors: kernels.Vectors{Format: affine4, K: 2048, M: 1}, N: 8192}} {
			var got []int
			for _, w := range v.Tunings(kernels.Machine{Target: target}) {
				if w.Split <= 2 {
					got = append(got, w.Split*w.Sets)
				}
			}
			slices.Sort(got)
			require.Equal(t, want, slices.Compact(got))
		}
	}
}
