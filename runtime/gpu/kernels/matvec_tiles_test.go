package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// TestMatVecTiles: tiles give the products of 2 to 64 vectors in fp32, also of weights whose rows are no whole tiles
// and columns that simdgroups do not share evenly.
func TestMatVecTiles(t *testing.T) {
	t.Parallel()
	eight, symmetric := kernels.Format{Bits: 8, Group: 64}, kernels.Format{Bits: 4, Group: 64, Symmetric: true}
	for i, c := range []struct {
		v     kernels.MatVecMany
		simds int
	}{
		{kernels.MatVecMany{Vectors: kernels.Vectors{Format: eight, K: 512, M: 8}, N: []int{36, 1}}, 4},
		{kernels.MatVecMany{Vectors: kernels.Vectors{Format: eight, K: 320, M: 3, Norm: kernels.NormF32, Eps: 1e-6},
			N: []int{16, 17, 1, 5}}, 2},
		{kernels.MatVecMany{Vectors: kernels.Vectors{Format: affine4, K: 192, M: 2, Norm: kernels.NormBF16, Eps: 1e-6},
			N: []int{20}}, 4},
		{kernels.MatVecMany{Vectors: kernels.Vectors{Format: symmetric, K: 256, M: 5}, N: []int{33, 32}}, 1},
		{kernels.MatVecMany{Vectors: kernels.Vectors{Format: eight, K: 256, M: 19, Norm: kernels.NormF32, Eps: 1e-6},
			N: []int{20, 1}}, 2},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			l, err := c.v.Launch(kernels.Tuning{Tiles: c.simds})
			require.NoError(t, err)
			for _, written := range []int{c.v.M, c.v.M - 1} {
				kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: written, Capacity: c.v.M}))
			}
		})
	}
}

// TestMatVecTilesRefusals: tiles are for some vectors and nothing but their products, and the default for small
// weights.
func TestMatVecTilesRefusals(t *testing.T) {
	t.Parallel()
	ok := kernels.MatVecMany{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 64}, K: 2048, M: 8},
		N: []int{256, 1}}
	one, groups, long, large := ok, ok, ok, ok
	one.M, groups.Group, long.K, large.N = 1, 32, 8192, []int{4096}
	for _, c := range []struct {
		v   kernels.MatVecMany
		err string
	}{
		{one, "tiles_many [256 1]×2048: tuning: tiles of 1 vectors, want 2 to 64, and only their products"},
		{groups, "tiles_many [256 1]×2048: tuning: tiles of 8bit/32, want codes of 4 or 8 bits in groups of 64"},
		{long, "tiles_many [256 1]×8192: tuning: tiles of 8192 columns for 16 simdgroups, want 1 to 16 with up to 256 columns each, in groups of 64"},
	} {
		_, err := c.v.Launch(kernels.Tuning{Tiles: 16})
		require.EqualError(t, err, c.err)
	}
	machine := kernels.Machine{Target: kernels.CUDA}
	require.Equal(t, kernels.Tuning{Tiles: 16}, ok.Tunings(machine)[0])
	many := ok
	many.M = 64
	for _, tuning := range many.Tunings(machine) {
		require.Positive(t, tuning.Tiles, "no other kernel takes as many vectors")
	}
	require.Zero(t, large.Tunings(machine)[0].Tiles)
	require.Zero(t, ok.Tunings(kernels.Machine{Target: kernels.Metal})[0].Tiles)
}
