package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestExpertsSort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		count, top, tokens, written int
	}{{256, 8, 40, 37}, {5, 2, 70, 70}, {300, 3, 30, 20}, {512, 1, 9, 0}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			e := kernels.ManyExperts{Count: c.count, Top: c.top}
			tile := kernels.Tile{BM: 16}
			l, err := e.LaunchSort(tile, c.tokens)
			require.NoError(t, err)
			r := seeded(uint64(c.count))
			experts, order := make([]int32, c.tokens*c.top), make([]int32, c.tokens*c.top)
			for i := range experts {
				experts[i], order[i] = int32(math.Abs(r.NormFloat64())*float64(c.count)/3)%int32(c.count), -7
			}
			tiles := make([]int32, 4*e.MaxTiles(tile, c.tokens))
			kerneltest.Run(t, l, experts, order, tiles, []int32{int32(c.written), 0})
			wantOrder, wantTiles := e.TwinSort(tile, experts[:c.written*c.top])
			require.LessOrEqual(t, len(wantTiles), len(tiles)/4)
			for i := range tiles {
				want := [4]int32{-1, 0, 0, 0}
				if i/4 < len(wantTiles) {
					want = wantTiles[i/4]
				}
				require.Equal(t, want[i%4], tiles[i], "tile %d", i/4)
			}
			for i, at := range order {
				want := int32(-7)
				if i < len(wantOrder) {
					want = wantOrder[i]
				}
				require.Equal(t, want, at, "place %d", i)
			}
		})
	}
	_, err := kernels.ManyExperts{Count: 600, Top: 2}.LaunchSort(kernels.Tile{BM: 16}, 4)
	require.EqualError(t, err, "experts_sort: 4 tokens with 2 of 600 experts, want at most 512 experts and 65535 pairs")
}

func TestManyExperts(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		e    kernels.ManyExperts
		tile kernels.Tile
	}{
		{kernels.ManyExperts{Format: affine4, Count: 3, Top: 2, Hidden: 128, Inner: 64, Activation: kernels.SiLU}, kernels.Tile{BM: 16, BN: 64, BK: 32, WM: 1, WN: 2}},
		{kernels.ManyExperts{Format: affine4, Count: 3, Top: 2, Hidden: 128, Inner: 64, Activation: kernels.SiLU, Exact: true, Residual: true}, kernels.Tile{BM: 32, BN: 32, BK: 16, WM: 2, WN: 1}},
		{kernels.ManyExperts{Format: kernels.Format{Bits: 8, Group: 32}, Count: 2, Top: 1, Hidden: 96, Inner: 32, Activation: kernels.GELUTanh}, kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			e := c.e
			few := kernels.Experts{Format: e.Format, Count: e.Count, Top: e.Top, Hidden: e.Hidden, Inner: e.Inner, Activation: e.Activation, Residual: e.Residual}
			m := newMixture(few, 22, 20)
			step := []int32{int32(m.written), 0}
			order, tiles := make([]int32, m.tokens*e.Top), make([]int32, 4*e.MaxTiles(c.tile, m.tokens))
			launch := func(l kernels.Launch, err error) kernels.Launch {
				require.NoError(t, err)
				return l
			}
			kerneltest.Run(t, launch(e.LaunchSort(c.tile, m.tokens)), m.experts, order, tiles, step)
			var x, h any = make([]uint16, len(m.x)), make([]uint16, m.tokens*e.Top*e.Inner)
			if e.Exact {
				x, h = blank(len(m.x)), blank(m.tokens*e.Top*e.Inner)
			}
			pairs := blank(m.tokens * e.Top * e.Hidden)
			kerneltest.Run(t, launch(kernels.Prepare{K: e.Hidden, Exact: e.Exact}.Launch(m.tokens)), m.x, m.x, x, step)
			kerneltest.Run(t, launch(e.LaunchUp(c.tile, m.tokens)), m.gate.Words, m.gate.scales, m.gate.biases, m.up.Words, m.up.scales, m.up.biases, order, tiles, x, h)
			kerneltest.Run(t, launch(e.LaunchDown(c.tile, m.tokens)), m.down.Words, m.down.scales, m.down.biases, order, tiles, h, pairs)
			kerneltest.Run(t, launch(e.LaunchCombine(m.tokens)), pairs, m.scores, m.extra, m.y, step)
			requireClose(t, m.wantY, m.y[:len(m.wantY)], 4*matmulBound(e.Exact))
			require.True(t, math.IsNaN(float64(m.y[len(m.wantY)])), "a token past the last is written")
		})
	}
}
