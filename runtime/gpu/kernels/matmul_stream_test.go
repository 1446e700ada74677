package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// TestMatMulStream multiplies 1 to 8 vectors with streamed weights: with strips that end early, of 16 rows and more,
// with one to eight times 128 columns for a simdgroup, with one stage and several copied early.
func TestMatMulStream(t *testing.T) {
	t.Parallel()
	symmetric, affine8 := affine4, kernels.Format{Bits: 8, Group: 64}
	symmetric.Symmetric = true
	symmetric8 := affine8
	symmetric8.Symmetric = true
	four := func(f kernels.Format, k int) kernels.Matrices {
		return kernels.Matrices{Format: f, K: k, Packed: kernels.InLanes}
	}
	stream := func(groups, simdgroups, strip, columns, stages int) kernels.Stream {
		return kernels.Stream{Groups: groups, Simdgroups: simdgroups, Strip: strip, Columns: columns, Stages: stages}
	}
	for i, c := range []struct {
		m               kernels.MatMul
		tile            kernels.Tile
		tokens, written int
	}{
		{kernels.MatMul{Matrices: four(affine4, 512), N: 100, Epilogue: kernels.AddMatrix},
			kernels.Tile{BM: 2, Ahead: 1, Stream: stream(2, 2, 16, 512, 2)}, 2, 2},
		{kernels.MatMul{Matrices: four(affine4, 1024), N: 70, Epilogue: kernels.AddVector},
			kernels.Tile{BM: 4, Ahead: 2, Stream: stream(1, 2, 32, 1024, 3)}, 4, 3},
		{kernels.MatMul{Matrices: four(symmetric, 1024), N: 40, Epilogue: kernels.Softcap, Cap: 2},
			kernels.Tile{BM: 8, Ahead: 1, Stream: stream(1, 4, 16, 1024, 2)}, 8, 7},
		{kernels.MatMul{Matrices: four(affine4, 1536), N: 100},
			kernels.Tile{BM: 6, Ahead: 3, Stream: stream(2, 3, 48, 1536, 4)}, 11, 10},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 768, Half: true, Packed: kernels.InLanes}, N: 256},
			kernels.Tile{BM: 8, Ahead: 1, Stream: stream(3, 6, 16, 768, 2)}, 9, 9},
		{kernels.MatMul{Matrices: four(affine8, 512), N: 100, Epilogue: kernels.AddMatrix},
			kernels.Tile{BM: 8, Ahead: 1, Stream: stream(2, 1, 16, 512, 3)}, 14, 13},
		{kernels.MatMul{Matrices: four(symmetric8, 256), N: 64},
			kernels.Tile{BM: 4, Ahead: 1, Stream: stream(4, 2, 16, 256, 2)}, 4, 1},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 256, Half: true, Lanes: true,
			Packed: kernels.InLanes}, N: 256}, kernels.Tile{BM: 8, Ahead: 1, Stream: stream(4, 1, 32, 256, 4)}, 8, 7},
		{kernels.MatMul{Matrices: four(affine4, 1024), N: 24}, kernels.Tile{BM: 8, Ahead: 1,
			Stream: stream(1, 1, 16, 1024, 2)}, 8, 8},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			l, err := c.m.Launch(c.tile, c.tokens)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
			l, err = kernels.MatMulGLU{Matrices: c.m.Matrices, N: c.m.N, Activation: kernels.SiLU}.Launch(c.tile, c.tokens)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
		})
	}
}

// TestMatMulStreamTiles: large weights of 2 to 8 vectors are streamed in whole rows, or by threadgroups that share
// columns where the vectors would leave no room; smaller ones, and those of more vectors, are not. Every tile that is
// offered has a launch that a Hopper can run.
func TestMatMulStreamTiles(t *testing.T) {
	for _, c := range []struct{ rows, n, k, split, columns int }{
		{2, 43008, 5376, 1, 5376}, {3, 43008, 5376, 1, 5376}, {8, 43008, 5376, 1, 5376}, {9, 43008, 5376, 0, 0},
		{4, 5376, 8192, 2, 4096}, {8, 5376, 8192, 2, 4096},
		{2, 5376, 21504, 3, 7168}, {8, 5376, 21504, 3, 7168},
		{2, 8192, 2048, 0, 0}, {2, 248320, 2048, 1, 2048},
	} {
		m := kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: c.k, Packed: kernels.InLanes}, N: c.n}
		tiles := m.Tiles(hopper, c.rows)
		if c.split == 0 {
			require.Equal(t, kernels.Stream{}, tiles[0].Stream, "%v", c)
			continue
		}
		require.Equal(t, []int{8, c.split, c.columns}, []int{tiles[0].BM, tiles[0].Split, tiles[0].Stream.Columns},
			"%v: %+v", c, tiles[0])
		for _, tile := range tiles {
			l, err := m.Launch(tile, c.rows)
			require.NoError(t, err)
			require.NotEqual(t, kernels.Stream{}, tile.Stream, "%v: direct tiles beside streamed ones", c)
			require.Equal(t, [3]int{132, 1, 1}, l.Groups)
			require.LessOrEqual(t, l.Memory, hopper.TransferMemory)
		}
	}
}

// TestMatMulStreamShares: threadgroups share the columns of one to nine vectors, and the last of them adds up.
func TestMatMulStreamShares(t *testing.T) {
	t.Parallel()
	symmetric := affine4
	symmetric.Symmetric = true
	for i, c := range []struct {
		m               kernels.MatMul
		split           int
		stream          kernels.Stream
		tokens, written int
	}{
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 1024, Packed: kernels.InLanes}, N: 100,
			Epilogue: kernels.AddMatrix}, 2, kernels.Stream{Groups: 3, Simdgroups: 2, Strip: 16, Columns: 512, Stages: 2}, 8, 7},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: symmetric, K: 1536, Half: true, Packed: kernels.InLanes}, N: 70},
			3, kernels.Stream{Groups: 1, Simdgroups: 4, Strip: 32, Columns: 512, Stages: 3}, 9, 9},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: kernels.Format{Bits: 8, Group: 64}, K: 2048,
			Packed: kernels.InLanes}, N: 40, Epilogue: kernels.AddVector},
			4, kernels.Stream{Groups: 2, Simdgroups: 1, Strip: 16, Columns: 512, Stages: 2}, 4, 1},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			l, err := c.m.Launch(kernels.Tile{BM: 8, Ahead: 1, Split: c.split, Stream: c.stream}, c.tokens)
			require.NoError(t, err)
			kerneltest.CheckWithin(t, kerneltest.CUDAMemory,
				l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
		})
	}
}

func TestMatMulStreamRefusals(t *testing.T) {
	ok := kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 512, Packed: kernels.InLanes}, N: 64}
	tile := kernels.Tile{BM: 8, Ahead: 1, Stream: kernels.Stream{Groups: 2, Simdgroups: 2, Strip: 16, Columns: 512,
		Stages: 2}}
	_, err := ok.Launch(tile, 8)
	require.NoError(t, err)
	form := "matmul_stream 64×512: tile: streamed weights must be codes of 4 or 8 bits in groups of 64 with scales in " +
		"bf16, and vectors in the order of lanes (Packed)"
	for _, c := range []struct {
		change func(m *kernels.MatMul, t *kernels.Tile)
		err    string
	}{
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.Packed = 0 }, form},
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.Group = 128 }, form},
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.F32 = true }, form},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.BM = 16 },
			"matmul_stream 64×512: tile: 16 vectors beside streamed weights, want 1 to 8"},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.Ahead = 2 },
			"matmul_stream 64×512: tile: 2 of 2 stages are copied early, want fewer than all of a ring, and 1 at least"},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.Stream.Resident = true },
			"matmul_stream 64×512: tile: 1 of 2 stages are copied early, want fewer than all of a ring, and 1 at least"},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.Stream.Columns = 256 },
			"matmul_stream 64×512: tile: 1 threadgroups with 256 of 512 columns for 2 simdgroups, want all, and 1024 for " +
				"each at most"},
		{func(m *kernels.MatMul, t *kernels.Tile) { m.K, t.Stream.Columns = 4096, 4096 },
			"matmul_stream 64×4096: tile: 1 threadgroups with 4096 of 4096 columns for 2 simdgroups, want all, and 1024 " +
				"for each at most"},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.Stream.Strip = 24 },
			"matmul_stream 64×512: tuning: strips of 24 rows, want a multiple of 16"},
	} {
		m, tile := ok, tile
		c.change(&m, &tile)
		_, err := m.Launch(tile, 8)
		require.EqualError(t, err, c.err)
	}
	tile.Split, tile.Stream.Columns = 2, 256
	_, err = kernels.MatMulGLU{Matrices: ok.Matrices, N: 64}.Launch(tile, 8)
	require.EqualError(t, err, "matmul_stream_glu 64×512: tile: 2 threadgroups share columns of a pair, want one weight")
}
