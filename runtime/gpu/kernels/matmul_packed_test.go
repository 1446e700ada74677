package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// TestMatMulPackedRing multiplies packed vectors with codes that simdgroups copy to rings in threadgroup memory: tiles
// whose parts begin in the middle of a piece, an odd number of pieces, tiles with fewer rows of weights than they have
// room for, with biases and without.
func TestMatMulPackedRing(t *testing.T) {
	t.Parallel()
	group := func(n int, symmetric bool) kernels.Format {
		return kernels.Format{Bits: 4, Group: n, Symmetric: symmetric}
	}
	tile := func(eights, sets, deep, stages, ring, each int) kernels.Tile {
		return kernels.Tile{BM: eights * 8, BN: sets * deep * 64, WM: 1, WN: sets * 4, Stages: stages,
			Ahead: 1, Each: each, Ring: ring}
	}
	for i, c := range []struct {
		m               kernels.MatMul
		tile            kernels.Tile
		tokens, written int
	}{
		{kernels.MatMul{Matrices: kernels.Matrices{Format: group(64, false), K: 512, Packed: 4}, N: 100,
			Epilogue: kernels.AddMatrix}, tile(4, 1, 1, 3, 2, 3), 40, 37},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: group(64, true), K: 1280, Packed: 8}, N: 150,
			Epilogue: kernels.AddVector}, tile(8, 2, 1, 3, 3, 5), 64, 57},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: group(64, false), K: 768, Packed: 4}, N: 256,
			Epilogue: kernels.AddMatrix}, tile(4, 1, 2, 3, 4, 5), 32, 31},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			l, err := c.m.Launch(c.tile, c.tokens)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
			pair := c.tile
			pair.BN = pair.WN * 32
			l, err = kernels.MatMulGLU{Matrices: c.m.Matrices, N: c.m.N, Activation: kernels.SiLU}.Launch(pair, c.tokens)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
		})
	}
}
