package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// bound is how far a sum of fp32 products may be from the twin's, relative to the largest result.
const bound = 2e-6

var affine4 = kernels.Format{Bits: 4, Group: 64}

func TestMatVec(t *testing.T) {
	t.Parallel()
	type tuning = kernels.Tuning
	cases := []struct {
		name string
		v    kernels.MatVec
		t    kernels.Tuning
	}{
		{"a tail of rows", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1}, N: 29}, tuning{}},
		{"permuted codes", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1}, N: 29}, tuning{Permute: true}},
		{"a tail of columns, split", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 576, M: 1}, N: 24}, tuning{Split: 4, Sets: 2, Rows: 2}},
		{"chunks of columns", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 1344, M: 1}, N: 12}, tuning{Chunk: 512, Split: 2, Sets: 1, Permute: true}},
		{"many steps", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 2624, M: 1, Norm: kernels.NormPlain}, N: 24}, tuning{Chunk: 256, Sets: 3, Permute: true}},
		{"short rows", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 45}, tuning{Lanes: 8, Sets: 2}},
		{"words of 8 bytes, split", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 20}, tuning{Bytes: 8, Lanes: 16, Split: 2, Sets: 1}},
		{"eight vectors", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 8}, N: 20}, tuning{Permute: true}},
		{"five of eight vectors, bf16", kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 16}, K: 520, M: 8}, N: 20}, tuning{Rows: 4, Split: 2, Chunk: 264}},
		{"norm in bf16", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1, Norm: kernels.NormBF16, Eps: 1e-3}, N: 16}, tuning{Permute: true}},
		{"norm in f32 of three vectors, split", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 4, Norm: kernels.NormF32, Eps: 1e-6}, N: 16}, tuning{Split: 2, Chunk: 256}},
		{"norm without weights, residual", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 2, Norm: kernels.NormPlain, Eps: 1e-6}, N: 18, Epilogue: kernels.AddMatrix}, tuning{}},
		{"bias", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 2}, N: 18, Epilogue: kernels.AddVector}, tuning{}},
		{"softcap", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 18, Epilogue: kernels.Softcap, Cap: 3}, tuning{}},
	}
	for _, f := range formats {
		cases = append(cases, struct {
			name string
			v    kernels.MatVec
			t    kernels.Tuning
		}{f.String(), kernels.MatVec{Vectors: kernels.Vectors{Format: f, K: 384, M: 1}, N: 19}, tuning{Permute: f.Group == 128}})
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := seeded(uint64(i))
			v, vectors := c.v, c.v.M-c.v.M/3 // of 4 or 8 vectors, some are missing
			l, err := v.Launch(c.t)
			require.NoError(t, err)
			w, x := r.weight(v.Format, v.N, v.K), r.floats(vectors*v.K)
			norm, norms := r.norm(v.Norm, v.K)
			extra := r.floats(v.M * v.N)
			got, want := blank(v.M*v.N), blank(vectors*v.N)
			kerneltest.Run(t, l, w.Words, w.scales, w.biases, x, norms, extra, got, []int32{int32(vectors), 0})
			v.Twin(&w.Weight, x, norm, extra, want)
			requireClose(t, want, got[:len(want)], bound)
			for _, rest := range got[len(want):] {
				require.True(t, math.IsNaN(float64(rest)), "a vector past the last is written")
			}
		})
	}
}

func TestMatVecMany(t *testing.T) {
	t.Parallel()
	for _, rows := range [][]int{{40, 8, 17, 33}, {24, 9}} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			t.Parallel()
			r := seeded(3)
			v := kernels.MatVecMany{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1, Norm: kernels.NormBF16, Eps: 1e-6}, N: rows}
			l, err := v.Launch(kernels.Tuning{Sets: 2, Permute: true})
			require.NoError(t, err)
			x := r.floats(v.K)
			norm, norms := r.norm(v.Norm, v.K)
			var args []any
			var weights []stored
			var results [][]float32
			for i := range 4 {
				if i >= len(rows) {
					args = append(args, args[:4]...)
					continue
				}
				w, y := r.weight(v.Format, rows[i], v.K), blank(rows[i])
				weights, results = append(weights, w), append(results, y)
				args = append(args, w.Words, w.scales, w.biases, y)
			}
			kerneltest.Run(t, l, append(args, x, norms, []int32{1, 0})...)
			for i, w := range weights {
				want := blank(rows[i])
				v.Twin(&w.Weight, x, norm, want)
				requireClose(t, want, results[i], bound)
			}
		})
	}
}

func TestMatVecGLU(t *testing.T) {
	t.Parallel()
	for i, v := range []kernels.MatVecGLU{
		{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 21, Activation: kernels.SiLU},
		{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 3}, N: 21, Activation: kernels.GELUTanh},
		{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 32}, K: 256, M: 1, Norm: kernels.NormF32}, N: 21, Activation: kernels.GELU},
		{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 21, Activation: kernels.Sigmoid},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			r := seeded(uint64(i))
			l, err := v.Launch(kernels.Tuning{Rows: 2, Split: 2, Permute: i%2 == 0})
			require.NoError(t, err)
			gate, up, x := r.weight(v.Format, v.N, v.K), r.weight(v.Format, v.N, v.K), r.floats(v.M*v.K)
			norm, norms := r.norm(v.Norm, v.K)
			got, want := blank(v.M*v.N), blank(v.M*v.N)
			kerneltest.Run(t, l, gate.Words, gate.scales, gate.biases, up.Words, up.scales, up.biases, x, norms, got, []int32{int32(v.M), 0})
			v.Twin(&gate.Weight, &up.Weight, x, norm, want)
			requireClose(t, want, got, 3*bound)
		})
	}
}

func TestTunings(t *testing.T) {
	v := kernels.Vectors{Format: affine4, K: 2048, M: 1}
	cuda, metal := v.Tunings(kernels.CUDA, 8192, 1), v.Tunings(kernels.Metal, 8192, 1)
	require.Greater(t, len(cuda), 20)
	require.True(t, cuda[0].Permute)
	require.False(t, metal[0].Permute)
	require.Equal(t, 1, cuda[0].Split)
	require.Equal(t, 2, v.Tunings(kernels.CUDA, 2048, 1)[0].Split, "few rows are split")
	for _, v := range []kernels.Vectors{v, {Format: kernels.Format{Bits: 32}, K: 2048, M: 8}, {Format: kernels.Format{Bits: 8, Group: 128}, K: 512, M: 4}, {Format: kernels.Format{Bits: 16}, K: 21504, M: 2}} {
		for _, target := range []kernels.Target{kernels.CUDA, kernels.Metal} {
			all := v.Tunings(target, 4096, 1)
			require.NotEmpty(t, all)
			for _, tuning := range all {
				_, err := kernels.MatVecGLU{Vectors: v, N: 4096}.Launch(tuning)
				require.NoError(t, err)
			}
		}
	}
}

func TestMatVecRefusals(t *testing.T) {
	for _, c := range []struct {
		v   kernels.MatVec
		t   kernels.Tuning
		err string
	}{
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 100, M: 1}, N: 8}, kernels.Tuning{}, "matvec [8]×100: 100 columns are no multiple of the group of 64"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 9}, N: 8}, kernels.Tuning{}, "matvec [8]×128: 9 vectors at once, want 1 to 8"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 1}, N: 8}, kernels.Tuning{Lanes: 4}, "matvec [8]×128: tuning: 4 lanes for a row, want 8, 16 or 32"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 8}, N: 8}, kernels.Tuning{Rows: 5}, "matvec [8]×128: tuning: 5 rows of 8 vectors do not fit 32 lanes"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 1}, N: 8}, kernels.Tuning{Split: 8, Sets: 8}, "matvec [8]×128: tuning: 8 sets of 8 simdgroups, want 1 to 32 simdgroups"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 32}, K: 128, M: 1}, N: 8}, kernels.Tuning{Bytes: 16}, "matvec [8]×128: tuning: 16 bytes a lane do not suit rows of 128 columns of f32"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 1}, N: 8}, kernels.Tuning{Chunk: 100}, "matvec [8]×128: tuning: chunks of 100 columns, want a multiple of 32"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 8192, M: 1}, N: 8}, kernels.Tuning{Chunk: 8192}, "matvec [8]×8192: tuning: 34004 bytes of threadgroup memory, there are 32768"},
	} {
		_, err := c.v.Launch(c.t)
		require.EqualError(t, err, c.err)
	}
}
