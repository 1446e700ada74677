package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestExpertsSort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		count, top, tokens, written int
	}{{256, 8, 40, 37}, {5, 2, 70, 70}, {300, 3, 30, 20}, {512, 1, 9, 0}, {256, 8, 270, 260}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			e := kernels.ManyExperts{Count: c.count, Top: c.top}
			for _, e.Shared = range []bool{false, true} {
				l, err := e.LaunchSort(kernels.Tile{BM: 16}, c.tokens)
				require.NoError(t, err)
				kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
			}
		})
	}
	_, err := kernels.ManyExperts{Count: 600, Top: 2}.LaunchSort(kernels.Tile{BM: 16}, 4)
	require.EqualError(t, err, "experts_sort: 4 tokens with 2 of 600 experts, want at most 512 experts and 65535 of them for all tokens, a shared one included")
}

func TestManyExperts(t *testing.T) {
	t.Parallel()
	direct := kernels.ManyExperts{Format: affine4, Count: 3, Top: 2, Hidden: 256, Inner: 512,
		Activation: kernels.SiLU, Residual: true, Lanes: true}
	all, symmetric, shared, sharedOf8 := direct, direct, direct, direct
	shared.Shared = true
	sharedOf8.Shared, sharedOf8.Residual, sharedOf8.Count, sharedOf8.Top = true, false, 10, 8
	all.Count, all.Residual = 2, false // all tokens have both
	symmetric.Symmetric, symmetric.Count, symmetric.Activation = true, 5, kernels.GELUTanh
	symmetric.Hidden, symmetric.Inner = 1024, 256
	for i, c := range []struct {
		e               kernels.ManyExperts
		tile            kernels.Tile
		tokens, written int
	}{
		{kernels.ManyExperts{Format: affine4, Count: 3, Top: 2, Hidden: 128, Inner: 64, Activation: kernels.SiLU},
			kernels.Tile{BM: 16, BN: 64, BK: 32, WM: 1, WN: 2}, 22, 20},
		{kernels.ManyExperts{Format: affine4, Count: 3, Top: 2, Hidden: 128, Inner: 64, Activation: kernels.SiLU,
			Exact: true, Residual: true}, kernels.Tile{BM: 32, BN: 32, BK: 16, WM: 2, WN: 1}, 22, 20},
		{kernels.ManyExperts{Format: kernels.Format{Bits: 8, Group: 32}, Count: 2, Top: 1, Hidden: 96, Inner: 32,
			Activation: kernels.GELUTanh}, kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}, 22, 20},
		{direct, kernels.Tile{BM: 32, BN: 64, WM: 1, WN: 2}, 22, 20},
		{all, kernels.Tile{BM: 32, BN: 128, WM: 1, WN: 4}, 64, 59}, // tiles of 32 and 27
		{all, kernels.Tile{BM: 24, BN: 96, WM: 1, WN: 3}, 60, 41},  // of 24 and 17; columns that no simdgroup has
		{all, kernels.Tile{BM: 8, BN: 256, WM: 1, WN: 8}, 22, 17},  // of 8, 8 and 1
		{symmetric, kernels.Tile{BM: 16, BN: 32, WM: 1, WN: 1}, 22, 20},
		{kernels.ManyExperts{Format: mxfp4, Count: 3, Top: 2, Hidden: 128, Inner: 64, Activation: kernels.SiLU},
			kernels.Tile{BM: 16, BN: 64, BK: 32, WM: 1, WN: 2}, 22, 20},
		{kernels.ManyExperts{Format: nvfp4, Count: 3, Top: 2, Hidden: 128, Inner: 64, Activation: kernels.SiLU},
			kernels.Tile{BM: 16, BN: 64, BK: 32, WM: 1, WN: 2}, 22, 20},
		{kernels.ManyExperts{Format: mxfp8, Count: 3, Top: 2, Hidden: 128, Inner: 64, Activation: kernels.SiLU,
			Exact: true}, kernels.Tile{BM: 32, BN: 32, BK: 16, WM: 2, WN: 1}, 22, 20},
		{shared, kernels.Tile{BM: 32, BN: 128, WM: 1, WN: 4}, 37, 35}, // tiles of 32 and 3 of the shared expert
		{sharedOf8, kernels.Tile{BM: 8, BN: 64, WM: 1, WN: 2}, 22, 20},
		{kernels.ManyExperts{Format: affine4, Count: 3, Top: 2, Hidden: 128, Inner: 64, Activation: kernels.SiLU,
			Shared: true}, kernels.Tile{BM: 16, BN: 64, BK: 32, WM: 1, WN: 2}, 22, 20},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			up, err := c.e.LaunchUp(c.tile, c.tokens)
			require.NoError(t, err)
			down, err := c.e.LaunchDown(c.tile, c.tokens)
			require.NoError(t, err)
			combine, err := c.e.LaunchCombine(c.tokens)
			require.NoError(t, err)
			for _, l := range []kernels.Launch{up, down, combine} {
				kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
			}
		})
	}
}

// TestManyExpertsRefusals: without columns in threadgroup memory there is one form of codes, of whole groups.
func TestManyExpertsRefusals(t *testing.T) {
	ok, tile := kernels.ManyExperts{Format: affine4, Count: 4, Top: 2, Hidden: 256, Inner: 512, Lanes: true},
		kernels.Tile{BM: 32, BN: 64, WM: 1, WN: 2}
	_, err := ok.LaunchUp(tile, 9)
	require.NoError(t, err)
	require.Contains(t, ok.Tiles(kernels.Machine{Target: kernels.CUDA}, 64), tile)
	require.NotContains(t, ok.Tiles(kernels.Machine{Target: kernels.Metal}, 64), tile)
	require.NotContains(t, ok.Tiles(kernels.Machine{Target: kernels.CUDA}, 512), tile)
	form := "experts_direct_up 4×512×256: tile: with BK 0 weights must be codes of 4 bits in groups of 64 with scales in bf16, and are rounded to bf16"
	for _, c := range []struct {
		change func(e *kernels.ManyExperts, t *kernels.Tile)
		err    string
	}{
		{func(e *kernels.ManyExperts, _ *kernels.Tile) { e.Lanes = false },
			"experts_direct_up 4×512×256: tile: with BK 0 vectors must be in the order of lanes (Lanes)"},
		{func(e *kernels.ManyExperts, _ *kernels.Tile) { e.Exact = true }, form},
		{func(e *kernels.ManyExperts, _ *kernels.Tile) { e.Group = 128 }, form},
		{func(e *kernels.ManyExperts, _ *kernels.Tile) { e.Bits = 8 }, form},
		{func(e *kernels.ManyExperts, _ *kernels.Tile) { e.F32 = true }, form},
		{func(e *kernels.ManyExperts, _ *kernels.Tile) { e.Hidden = 384 },
			"experts_direct_up 4×512×384: tile: with BK 0 the products have 384 and 512 columns, want multiples of 256"},
		{func(e *kernels.ManyExperts, _ *kernels.Tile) { e.Inner = 128 },
			"experts_direct_up 4×128×256: tile: with BK 0 the products have 256 and 128 columns, want multiples of 256"},
		{func(_ *kernels.ManyExperts, t *kernels.Tile) { t.BM = 64 },
			"experts_direct_up 4×512×256: tile: with BK 0 it has 64×64 results of 1×2 simdgroups, want 8, 16, 24 or 32 rows of results and 32 columns for each of 1 to 8 simdgroups"},
		{func(_ *kernels.ManyExperts, t *kernels.Tile) { t.WN = 4 },
			"experts_direct_up 4×512×256: tile: with BK 0 it has 32×64 results of 1×4 simdgroups, want 8, 16, 24 or 32 rows of results and 32 columns for each of 1 to 8 simdgroups"},
	} {
		e, tile := ok, tile
		c.change(&e, &tile)
		_, err := e.LaunchUp(tile, 9)
		require.EqualError(t, err, c.err)
	}
}
