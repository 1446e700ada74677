package kernels_test

import (
	"fmt"
	"slices"
	"strings"
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
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 192}, N: 100, Epilogue: kernels.AddMatrix},
			kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}, 37},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 192}, N: 100, Epilogue: kernels.AddVector},
			kernels.Tile{BM: 16, BN: 128, BK: 64, WM: 1, WN: 4}, 17},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 192, Exact: true}, N: 40,
			Epilogue: kernels.Softcap, Cap: 2}, kernels.Tile{BM: 64, BN: 64, BK: 16, WM: 2, WN: 2}, 33},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 128}, N: 130},
			kernels.Tile{BM: 128, BN: 128, BK: 32, WM: 2, WN: 2}, 70},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: kernels.Format{Bits: 16}, K: 72}, N: 40},
			kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}, 20},
	}
	for _, f := range formats {
		for _, exact := range []bool{false, true} {
			tests = append(tests, test{kernels.MatMul{Matrices: kernels.Matrices{Format: f, K: 128, Exact: exact},
				N: 40}, kernels.Tile{BM: 32, BN: 32, BK: 16, WM: 2, WN: 1}, 20})
		}
	}
	for i, c := range tests {
		t.Run(fmt.Sprintf("%d %s exact=%v", i, c.m.Format, c.m.Exact), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			l, err := c.m.Launch(c.tile, c.tokens+c.tile.BM) // a block of rows does nothing
			require.NoError(t, err)
			kerneltest.CheckWithin(t, max(c.m.Memory(c.tile), kerneltest.MetalMemory),
				l.Case(kernels.Sizes{Whole: true, Tokens: c.tokens}))
		})
	}
}

// TestMatMulDirect multiplies without columns in threadgroup memory: with 1 to 8 simdgroups that share columns, in one
// to four eights of vectors, of which the last tile has fewer; with columns of y that no simdgroup has.
func TestMatMulDirect(t *testing.T) {
	t.Parallel()
	symmetric, affine8 := affine4, kernels.Format{Bits: 8, Group: 64}
	symmetric.Symmetric = true
	symmetric8 := affine8
	symmetric8.Symmetric = true
	four := func(f kernels.Format, k int) kernels.Matrices {
		return kernels.Matrices{Format: f, K: k, Packed: kernels.InLanes}
	}
	for i, c := range []struct {
		m               kernels.MatMul
		tile            kernels.Tile
		tokens, written int
	}{
		{kernels.MatMul{Matrices: four(affine4, 256), N: 100, Epilogue: kernels.AddMatrix},
			kernels.Tile{BM: 16, BN: 64, WM: 1, WN: 2, Split: 2}, 20, 13},
		{kernels.MatMul{Matrices: four(affine4, 1024), N: 70, Epilogue: kernels.AddVector},
			kernels.Tile{BM: 32, BN: 64, WM: 1, WN: 2}, 70, 57},
		{kernels.MatMul{Matrices: four(symmetric, 1024), N: 40, Epilogue: kernels.Softcap, Cap: 2},
			kernels.Tile{BM: 32, BN: 32, WM: 1, WN: 1, Split: 8}, 32, 31},
		{kernels.MatMul{Matrices: four(affine4, 4096), N: 64}, kernels.Tile{BM: 24, BN: 64, WM: 1, WN: 2, Split: 4}, 17,
			17},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 384, Half: true, Packed: kernels.InLanes}, N: 256},
			kernels.Tile{BM: 8, BN: 64, WM: 1, WN: 2, Split: 3}, 9, 9},
		{kernels.MatMul{Matrices: four(affine8, 512), N: 100, Epilogue: kernels.AddMatrix},
			kernels.Tile{BM: 16, BN: 64, WM: 1, WN: 2, Split: 4}, 20, 13},
		{kernels.MatMul{Matrices: four(symmetric8, 256), N: 64}, kernels.Tile{BM: 24, BN: 64, WM: 1, WN: 2}, 17, 17},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 256, Half: true, Lanes: true,
			Packed: kernels.InLanes}, N: 256}, kernels.Tile{BM: 8, BN: 128, WM: 1, WN: 4, Split: 2}, 8, 7},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			l, err := c.m.Launch(c.tile, c.tokens)
			require.NoError(t, err)
			kerneltest.CheckWithin(t, c.m.Memory(c.tile), l.Case(kernels.Sizes{Whole: true, Tokens: c.written}))
			l, err = kernels.MatMulGLU{Matrices: c.m.Matrices, N: c.m.N, Activation: kernels.SiLU}.Launch(c.tile,
				c.tokens)
			require.NoError(t, err)
			kerneltest.CheckWithin(t, c.m.Memory(c.tile), l.Case(kernels.Sizes{Whole: true, Tokens: c.written}))
		})
	}
}

func TestMatMulPackedRefusals(t *testing.T) {
	ok := kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 512, Packed: 4}, N: 4096}
	tile := kernels.Tile{BM: 32, BN: 64, WM: 1, WN: 4, Stages: 3, Ahead: 1, Each: 4}
	_, err := ok.Launch(tile, 20)
	require.NoError(t, err)
	const counts = "matmul_packed 4096×512: tile: 3 stages of vectors, 1 blocks of codes ahead and 4 in all, want at least 3, 1 and 1"
	for _, c := range []struct {
		change func(m *kernels.MatMul, t *kernels.Tile)
		err    string
	}{
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.Bits = 8 },
			"matmul_packed 4096×512: tile: beside packed vectors weights must be codes of 4 bits in groups of 32, 64 or 128 with scales in bf16, and are rounded to bf16"},
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.K = 320 },
			"matmul_packed 4096×320: tile: 320 columns, want a multiple of 128"},
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.Packed = 8 },
			"matmul_packed 4096×512: tile: 32 vectors, 8 eights of which are packed, want as many: 4, 8 or 16 eights"},
		{func(m *kernels.MatMul, t *kernels.Tile) { m.Packed, t.BM = 3, 24 },
			"matmul_packed 4096×512: tile: 24 vectors, 3 eights of which are packed, want as many: 4, 8 or 16 eights"},
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.Packed = 0 },
			"matmul_packed 4096×512: tile: 32 vectors, 0 eights of which are packed, want as many: 4, 8 or 16 eights"},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.WN = 2 },
			"matmul_packed 4096×512: tile: 64 rows of weights for 1×2 simdgroups, want a multiple of 16 for each of 4, 8, … 32"},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.BN = 96 },
			"matmul_packed 4096×512: tile: 96 rows of weights for 1×4 simdgroups, want a multiple of 16 for each of 4, 8, … 32"},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.Stages = 2 }, strings.Replace(counts, "3 stages", "2 stages", 1)},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.Ahead = 0 }, strings.Replace(counts, "1 blocks", "0 blocks", 1)},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.Each = 0 }, strings.Replace(counts, "4 in", "0 in", 1)},
		{func(m *kernels.MatMul, t *kernels.Tile) { m.K, t.Ring = 384, 2 },
			"matmul_packed 4096×384: tile: groups of 64 and 384 columns, want groups of 64 and a multiple of 256 columns for a ring of codes"},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.Ring = 1 },
			"matmul_packed 4096×512: tile: a ring of 1 pieces of codes, want at least 2, or 0 for none"},
	} {
		m, tile := ok, tile
		c.change(&m, &tile)
		_, err := m.Launch(tile, 20)
		require.EqualError(t, err, c.err)
	}
	hopper := kernels.Machine{Target: kernels.CUDA, Cores: 132, Groups: true, TransferMemory: 225 << 10}
	for rows, want := range map[int][]int{8: {1, 0}, 16: {1, 0}, 17: {4, 1, 0}, 32: {4, 1, 0}, 33: {8, 1, 0},
		65: {16, 1, 0}, 128: {16, 1, 0}, 129: {16, 0}, 512: {16, 0}, 513: {0}} {
		m := ok
		m.Packed = 0
		require.Equal(t, want, m.Packings(hopper, 65536, rows), "%d rows", rows)
		without := slices.DeleteFunc(slices.Clone(want), func(packed int) bool { return packed > kernels.InLanes })
		require.Equal(t, without, m.Packings(hopper, 256, rows), "%d rows, few of weights", rows)
		require.Equal(t, without, m.Packings(kernels.Machine{Target: kernels.CUDA, Cores: 132,
			TransferMemory: 225 << 10}, 65536, rows), "%d rows, without Groups", rows)
		few := want
		if rows <= 128 {
			few = without
		}
		require.Equal(t, few, m.Packings(hopper, 32768, rows), "%d rows, few bytes of weights", rows)
		m.K = 4096
		if rows > 32 {
			few = want
		}
		require.Equal(t, few, m.Packings(hopper, 4096, rows), "%d rows, few bytes of longer weights", rows)
		m.Group = 32 // direct tiles want groups of 64
		require.Equal(t, slices.DeleteFunc(slices.Clone(want), func(packed int) bool { return packed == kernels.InLanes }),
			m.Packings(hopper, 4096, rows), "%d rows, groups of 32", rows)
		m.Group = 64
		if rows > 64 {
			without = want
		}
		require.Equal(t, without, m.Packings(hopper, 2048, rows), "%d rows, some of weights", rows)
		m.K = 8192
		if rows == 513 {
			want = []int{16, 0}
		}
		require.Equal(t, want, m.Packings(hopper, 8192, rows), "%d rows, long ones of weights", rows)
		require.Equal(t, []int{0}, m.Packings(hopper, 8192, 769))
	}
}

// TestMatMulPackedOrder: the first tile is the fastest of an H100's, or nearly so (docs/notes/measured-many.md), and
// all multiprocessors have blocks of it.
func TestMatMulPackedOrder(t *testing.T) {
	machine := kernels.Machine{Target: kernels.CUDA, Cores: 132, Groups: true, TransferMemory: 225 << 10}
	for _, c := range []struct{ rows, n, k, sets, ring, each int }{
		{128, 5376, 21504, 3, 3, 36}, {128, 8192, 2048, 2, 0, 8}, {128, 2048, 4096, 2, 0, 4},
		{64, 5376, 21504, 4, 3, 27}, {64, 2048, 4096, 2, 0, 4},
		{32, 5376, 21504, 4, 4, 27}, {32, 8192, 2048, 2, 0, 8}, {512, 5376, 21504, 3, 3, 143}, {300, 8192, 2048, 3, 3, 16},
	} {
		m := kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: c.k, Packed: min(c.rows/8, 16)}, N: c.n}
		tiles := m.Tiles(machine, c.rows)
		got := tiles[0]
		require.Equal(t, []int{c.sets, c.ring, c.each}, []int{got.WN / 4, got.Ring, got.Each}, "%v: %v", c, got)
		for _, other := range tiles {
			require.True(t, other.Each >= 8 || got.Each < 8, "%v: %v leaves threadgroups few blocks", c, other)
		}
	}
	for rows, sets := range map[int]int{128: 2, 64: 3, 32: 4} {
		m := kernels.MatMulGLU{Matrices: kernels.Matrices{Format: affine4, K: 5376, Packed: rows / 8}, N: 21504}
		got := m.Tiles(machine, rows)[0]
		require.Equal(t, []int{sets, 108 / sets}, []int{got.WN / 4, got.Each}, "%d rows: %v", rows, got)
	}
}

func TestMatMulDirectRefusals(t *testing.T) {
	ok, tile := kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 512, Packed: kernels.InLanes}, N: 8},
		kernels.Tile{BM: 32, BN: 64, WM: 1, WN: 2, Split: 4}
	machine := kernels.Machine{Target: kernels.CUDA, Cores: 132}
	_, err := ok.Launch(tile, 9)
	require.NoError(t, err)
	require.Contains(t, ok.Tiles(machine, 64), tile)
	require.NotContains(t, ok.Tiles(kernels.Machine{Target: kernels.Metal}, 64), tile)
	require.Empty(t, ok.Tiles(machine, 129))
	rows := ok.Matrices
	rows.Packed = 0
	require.Equal(t, []int{kernels.InLanes, 0}, rows.Packings(machine, 8, 64))
	require.Equal(t, []int{0}, rows.Packings(machine, 8, 129))
	require.Equal(t, []int{0}, rows.Packings(kernels.Machine{Target: kernels.Metal}, 8, 64))
	form := "matmul_direct 8×512: tile: with BK 0 weights must be codes of 4 or 8 bits in groups of 64 with scales in bf16, and are rounded to bf16"
	for _, c := range []struct {
		change func(m *kernels.MatMul, t *kernels.Tile)
		err    string
	}{
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.Packed = 0 },
			"matmul_direct 8×512: tile: with BK 0 vectors must be in the order of lanes (Packed)"},
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.Exact = true }, form},
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.Group = 128 }, form},
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.Bits = 16 }, form},
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.F32 = true }, form},
		{func(m *kernels.MatMul, _ *kernels.Tile) { m.K = 768 },
			"matmul_direct 8×768: tile: with BK 0, 4 simdgroups share 768 columns, want a multiple of 128 for each"},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.BM = 64 },
			"matmul_direct 8×512: tile: with BK 0 it has 64×64 results of 1×8 simdgroups, and 4 share columns, want 8, 16, 24 or 32 rows of results, 32 columns for each simdgroup, and 1 to 8 simdgroups in all"},
		{func(_ *kernels.MatMul, t *kernels.Tile) { t.BN = 128; t.WN = 4 },
			"matmul_direct 8×512: tile: with BK 0 it has 32×128 results of 1×16 simdgroups, and 4 share columns, want 8, 16, 24 or 32 rows of results, 32 columns for each simdgroup, and 1 to 8 simdgroups in all"},
	} {
		m, tile := ok, tile
		c.change(&m, &tile)
		_, err := m.Launch(tile, 9)
		require.EqualError(t, err, c.err)
	}
}

// TestMatMulDirectOrder: the first tile is the fastest of an H100's, or nearly so (docs/notes/measured-many.md).
func TestMatMulDirectOrder(t *testing.T) {
	machine := kernels.Machine{Target: kernels.CUDA, Cores: 132}
	for _, c := range []struct{ rows, n, k, bn, split int }{
		{8, 8192, 2048, 32, 8}, {8, 43008, 5376, 128, 0}, {8, 5376, 21504, 32, 8},
		{32, 8192, 2048, 64, 4}, {32, 43008, 5376, 128, 0}, {32, 5376, 21504, 64, 4}, {128, 43008, 5376, 64, 2},
	} {
		m := kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: c.k, Packed: kernels.InLanes}, N: c.n}
		got := m.Tiles(machine, c.rows)[0]
		require.Equal(t, kernels.Tile{BM: min(c.rows, 32), BN: c.bn, WM: 1, WN: c.bn / 32, Split: c.split}, got, "%v", c)
	}
}

func TestMatMulGLU(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		m    kernels.MatMulGLU
		tile kernels.Tile
	}{
		{kernels.MatMulGLU{Matrices: kernels.Matrices{Format: affine4, K: 128, Half: true}, N: 50,
			Activation: kernels.SiLU}, kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}},
		{kernels.MatMulGLU{Matrices: kernels.Matrices{Format: kernels.Format{Bits: 8, Group: 32}, K: 96, Exact: true},
			N: 50, Activation: kernels.GELUTanh}, kernels.Tile{BM: 32, BN: 64, BK: 16, WM: 2, WN: 2}},
		{kernels.MatMulGLU{Matrices: kernels.Matrices{Format: affine4, K: 128, Half: true, Lanes: true}, N: 128,
			Activation: kernels.SiLU}, kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}},
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
	for _, p := range []kernels.Prepare{{K: 264}, {K: 264, Norm: kernels.NormBF16, Eps: 1e-3},
		{K: 96, Norm: kernels.NormF32, Exact: true}, {K: 96, Norm: kernels.NormPlain, Exact: true},
		{K: 256, Packed: 4}, {K: 384, Norm: kernels.NormF32, Eps: 1e-3, Packed: 8},
		{K: 256, Norm: kernels.NormF32, Packed: kernels.InLanes}, {K: 640, Packed: 16}, {K: 384, Packed: kernels.InLanes},
		{K: 2176, Norm: kernels.NormF32, Eps: 1e-3, Packed: 4}, {K: 5376, Norm: kernels.NormBF16, Packed: 16},
		{K: 8200, Norm: kernels.NormPlain}} {
		name := fmt.Sprintf("{K:%d Exact:%v Norm:%d Eps:%v}", p.K, p.Exact, p.Norm, p.Eps)
		if p.Packed > 0 {
			name = fmt.Sprintf("%s packed %d", name, p.Packed)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := p.Launch(13)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 11, Capacity: 13}))
		})
	}
}

// TestDirectTilesSpread: of direct tiles that an estimate finds equal, the default is the one whose threadgroups are
// spread most evenly over the multiprocessors.
func TestDirectTilesSpread(t *testing.T) {
	for _, c := range []struct{ n, k, rows, simdgroups, split int }{
		{9216, 2048, 2, 1, 4}, {12352, 2048, 8, 1, 4}, {2048, 4096, 8, 1, 8}, {9216, 2048, 32, 1, 4},
	} {
		m := kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: c.k, Packed: kernels.InLanes}, N: c.n}
		tile := m.Tiles(hopper, c.rows)[0]
		require.Equal(t, []int{0, c.simdgroups, c.split}, []int{tile.BK, tile.WN, tile.Split}, "%+v: %+v", c, tile)
	}
}

func TestTiles(t *testing.T) {
	for _, f := range formats {
		for _, exact := range []bool{false, true} {
			for _, rows := range []int{16, 512} {
				for target, memory := range map[kernels.Target]int{kernels.Metal: kerneltest.MetalMemory,
					kernels.CUDA: kerneltest.CUDAMemory} {
					m := kernels.MatMul{Matrices: kernels.Matrices{Format: f, K: 2048, Exact: exact}, N: 512}
					for _, tile := range m.Tiles(kernels.Machine{Target: target}, rows) {
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
		{kernels.Tile{BM: 32, BN: 32, BK: 32, WM: 2, WN: 2},
			"matmul 8×128: tile: 32×32 results do not divide among 2×2 simdgroups by 16 and 32"},
		{kernels.Tile{BM: 32, BN: 64, BK: 8, WM: 2, WN: 2}, "matmul 8×128: tile: 8 columns, want a multiple of 16"},
		{kernels.Tile{BM: 128, BN: 256, BK: 32, WM: 2, WN: 2},
			"matmul 8×128: tile: 61440 bytes of threadgroup memory, there are 49152"},
	} {
		_, err := m.Launch(c.tile, 1)
		require.EqualError(t, err, c.err)
	}
	wrong := m
	wrong.Half, wrong.Lanes = true, true
	_, err := wrong.Launch(kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}, 1)
	require.EqualError(t, err, "matmul 8×128: results in the order of lanes: want bf16, and a multiple of 128 columns")
	m.K = 100
	_, err = m.Launch(kernels.Tile{BM: 32, BN: 64, BK: 32, WM: 2, WN: 2}, 1)
	require.EqualError(t, err, "matmul 8×100: 100 columns are no multiple of the group of 64")
	_, err = kernels.Prepare{K: 12}.Launch(1)
	require.EqualError(t, err, "matmul_prepare: 12 columns, want a multiple of 8")
}
