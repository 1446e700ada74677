package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestMatMul(t *testing.T) {
	t.Parallel()
	type test struct {
		m      kernels.MatMul
		tile   kernels.Tile
		tokens int
	}
	tests := []test{
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 192}, N: 100, Epilogue: kernels.AddMatrix}, kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}, 37},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 192}, N: 100, Epilogue: kernels.AddVector}, kernels.Tile{BM: 16, BN: 128, BK: 64, WM: 1, WN: 4}, 17},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 192, Exact: true}, N: 40, Epilogue: kernels.Softcap, Cap: 2}, kernels.Tile{BM: 64, BN: 64, BK: 16, WM: 2, WN: 2}, 33},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 128}, N: 130}, kernels.Tile{BM: 128, BN: 128, BK: 32, WM: 2, WN: 2}, 70},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: kernels.Format{Bits: 16}, K: 72}, N: 40}, kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}, 20},
	}
	for _, f := range formats {
		for _, exact := range []bool{false, true} {
			tests = append(tests, test{kernels.MatMul{Matrices: kernels.Matrices{Format: f, K: 128, Exact: exact}, N: 40}, kernels.Tile{BM: 32, BN: 32, BK: 16, WM: 2, WN: 1}, 20})
		}
	}
	for i, c := range tests {
		t.Run(fmt.Sprintf("%d %s exact=%v", i, c.m.Format, c.m.Exact), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			l, err := c.m.Launch(c.tile, c.tokens+c.tile.BM) // a block of rows does nothing
			require.NoError(t, err)
			kerneltest.CheckWithin(t, max(c.m.Memory(c.tile), kerneltest.MetalMemory), l.Case(kernels.Sizes{Whole: true, Tokens: c.tokens}))
		})
	}
}

func TestMatMulGLU(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		m    kernels.MatMulGLU
		tile kernels.Tile
	}{
		{kernels.MatMulGLU{Matrices: kernels.Matrices{Format: affine4, K: 128, Half: true}, N: 50, Activation: kernels.SiLU}, kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}},
		{kernels.MatMulGLU{Matrices: kernels.Matrices{Format: kernels.Format{Bits: 8, Group: 32}, K: 96, Exact: true}, N: 50, Activation: kernels.GELUTanh}, kernels.Tile{BM: 32, BN: 64, BK: 16, WM: 2, WN: 2}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			l, err := c.m.Launch(c.tile, 19)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 19}))
		})
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	for _, p := range []kernels.Prepare{{K: 264}, {K: 264, Norm: kernels.NormBF16, Eps: 1e-3}, {K: 96, Norm: kernels.NormF32, Exact: true}, {K: 96, Norm: kernels.NormPlain, Exact: true}} {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			t.Parallel()
			l, err := p.Launch(4)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 3, Capacity: 4}))
		})
	}
}

func TestTiles(t *testing.T) {
	for _, f := range formats {
		for _, exact := range []bool{false, true} {
			for _, rows := range []int{16, 512} {
				for target, memory := range map[kernels.Target]int{kernels.Metal: kerneltest.MetalMemory, kernels.CUDA: kerneltest.CUDAMemory} {
					m := kernels.MatMul{Matrices: kernels.Matrices{Format: f, K: 2048, Exact: exact}, N: 512}
					for _, tile := range m.Tiles(target, rows) {
						_, err := m.Launch(tile, rows)
						require.NoError(t, err)
						require.LessOrEqual(t, m.Memory(tile), memory, "%v", tile)
					}
				}
			}
		}
	}
}

func TestMatMulRefusals(t *testing.T) {
	m := kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 128}, N: 8}
	for _, c := range []struct {
		tile kernels.Tile
		err  string
	}{
		{kernels.Tile{BM: 32, BN: 64, BK: 32}, "matmul 8×128: tile: 0×0 simdgroups, want 1 to 32"},
		{kernels.Tile{BM: 32, BN: 32, BK: 32, WM: 2, WN: 2}, "matmul 8×128: tile: 32×32 results do not divide among 2×2 simdgroups by 16 and 32"},
		{kernels.Tile{BM: 32, BN: 64, BK: 8, WM: 2, WN: 2}, "matmul 8×128: tile: 8 columns, want a multiple of 16"},
		{kernels.Tile{BM: 128, BN: 256, BK: 32, WM: 2, WN: 2}, "matmul 8×128: tile: 61440 bytes of threadgroup memory, there are 49152"},
	} {
		_, err := m.Launch(c.tile, 1)
		require.EqualError(t, err, c.err)
	}
	m.K = 100
	_, err := m.Launch(kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}, 1)
	require.EqualError(t, err, "matmul 8×100: 100 columns are no multiple of the group of 64")
	_, err = kernels.Prepare{K: 12}.Launch(1)
	require.EqualError(t, err, "matmul_prepare: 12 columns, want a multiple of 8")
}
