package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// packedCase is a product m with packed vectors, divided into tiles. The call has room for tokens vectors, and the first
// written of them are there.
type packedCase struct {
	m               kernels.MatMul
	tile            kernels.Tile
	tokens, written int
}

// check compares the products of the vectors with a weight, and with a gated pair of weights, with the reference.
func (c packedCase) check(t *testing.T) {
	t.Helper()
	l, err := c.m.Launch(c.tile, c.tokens)
	require.NoError(t, err)
	kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
	pair := c.tile
	pair.BN = pair.WN * 32
	l, err = kernels.MatMulGLU{Matrices: c.m.Matrices, N: c.m.N, Activation: kernels.SiLU}.Launch(pair, c.tokens)
	require.NoError(t, err)
	kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
}

// packedFormat has codes of 4 bits in groups of n.
func packedFormat(n int, symmetric bool) kernels.Format {
	return kernels.Format{Bits: 4, Group: n, Symmetric: symmetric}
}

// packedTile has sets groups of four simdgroups, each with deep times 64 rows of weights.
func packedTile(eights, sets, deep, stages, ahead, ring, each int) kernels.Tile {
	return kernels.Tile{BM: eights * 8, BN: sets * deep * 64, WM: 1, WN: sets * 4, Stages: stages,
		Ahead: ahead, Ring: ring, Each: each}
}

// TestMatMulPacked multiplies packed vectors: tiles of 32, 64 and 128 of them, the last of which are not there; one
// tile and several; with one and more groups of simdgroups, with 64 and 128 rows of weights for each, with rows that no
// weight has; with threadgroups that have several tiles, one, or a part of one; with fewer and more stages, and blocks
// of codes ahead, than there are blocks.
func TestMatMulPacked(t *testing.T) {
	t.Parallel()
	for i, c := range []packedCase{
		{kernels.MatMul{Matrices: kernels.Matrices{Format: packedFormat(64, false), K: 512, Packed: 4}, N: 100,
			Epilogue: kernels.AddMatrix}, packedTile(4, 1, 1, 3, 2, 0, 3), 40, 37},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: packedFormat(64, true), K: 640, Packed: 8}, N: 70,
			Epilogue: kernels.AddVector}, packedTile(8, 2, 1, 3, 3, 0, 4), 64, 57},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: packedFormat(32, false), K: 384, Packed: 16}, N: 130,
			Epilogue: kernels.Softcap, Cap: 2}, packedTile(16, 1, 2, 5, 1, 0, 2), 128, 128},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: packedFormat(128, false), K: 384, Packed: 4, Half: true}, N: 64},
			packedTile(4, 1, 1, 3, 2, 0, 1), 30, 18},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: packedFormat(64, false), K: 256, Packed: 4}, N: 10},
			packedTile(4, 1, 2, 6, 4, 0, 2), 16, 13},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: packedFormat(64, false), K: 256, Packed: 4, Half: true, Lanes: true},
			N: 128}, packedTile(4, 1, 1, 3, 2, 0, 3), 20, 19},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: packedFormat(64, false), K: 256, Packed: 16}, N: 140},
			packedTile(16, 1, 1, 3, 2, 0, 3), 270, 261},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			c.check(t)
		})
	}
}

// TestMatMulPackedRing multiplies packed vectors with codes that simdgroups copy to rings in threadgroup memory: tiles
// whose parts begin in the middle of a piece, an odd number of pieces, tiles with fewer rows of weights than they have
// room for, with biases and without.
func TestMatMulPackedRing(t *testing.T) {
	t.Parallel()
	for i, c := range []packedCase{
		{kernels.MatMul{Matrices: kernels.Matrices{Format: packedFormat(64, false), K: 512, Packed: 4}, N: 100,
			Epilogue: kernels.AddMatrix}, packedTile(4, 1, 1, 3, 1, 2, 3), 40, 37},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: packedFormat(64, true), K: 1280, Packed: 8}, N: 150,
			Epilogue: kernels.AddVector}, packedTile(8, 2, 1, 3, 1, 3, 5), 64, 57},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: packedFormat(64, false), K: 768, Packed: 4}, N: 256,
			Epilogue: kernels.AddMatrix}, packedTile(4, 1, 2, 3, 1, 4, 5), 32, 31},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}
