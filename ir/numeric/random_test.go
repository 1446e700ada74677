package numeric

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUniformAndGumbelGoldens compares with draws recorded elsewhere: each file
// holds n uniforms, then the n Gumbel values made from them, little-endian
// float32. The mlx files are of MLX 0.32.0 on a CPU; the sampling files are the same bits
// through another library's float32 logarithm.
func TestUniformAndGumbelGoldens(t *testing.T) {
	cases := []struct {
		file  string
		seed  int64
		n     int
		exact float64 // the least share of Gumbel values that agree to the bit
	}{
		{"gumbel_mlx_seed42_n1000.f32", 42, 1000, 0.98},
		{"gumbel_mlx_seed-1_n1000.f32", -1, 1000, 0.98},
		{"gumbel_sampling_seed-5_n512.f32", -5, 512, 0.6},
		{"gumbel_sampling_seed1234_n512.f32", 1234, 512, 0.6},
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			raw, err := os.ReadFile("testdata/" + c.file)
			require.NoError(t, err)
			require.Len(t, raw, 2*4*c.n)
			uniform, gumbel := make([]float32, c.n), make([]float32, c.n)
			F32SliceFromBytes(uniform, raw)
			F32SliceFromBytes(gumbel, raw[4*c.n:])

			got := make([]float32, c.n)
			FillUniform(got, Key(uint64(c.seed)))
			require.Equal(t, uniform, got)
			FillGumbel(got, Key(uint64(c.seed)))
			equal := 0
			for i := range got {
				if got[i] == gumbel[i] {
					equal++
				}
				// Around g = 0 one rounding of the inner logarithm is an absolute error.
				require.InDelta(t, 0, float64(got[i])-float64(gumbel[i]), 2e-6*max(math.Abs(float64(gumbel[i])), 0.125),
					"element %d: %g, want %g", i, got[i], gumbel[i])
			}
			require.GreaterOrEqual(t, float64(equal)/float64(c.n), c.exact)
		})
	}
}

func TestUniformEnds(t *testing.T) {
	cases := []struct {
		word uint32
		want float32
	}{
		{0, 0},
		{1, 0x1p-32},
		{1 << 31, 0.5},
		{0xffff_fe80, 0x1.fffffcp-1}, // a tie, to even
		{0xffff_fe81, 0x1.fffffep-1},
		{0xffff_ff7f, 0x1.fffffep-1},
		{0xffff_ff80, 0x1.fffffep-1}, // rounds to 1, over the bound
		{0xffff_ffff, 0x1.fffffep-1},
	}
	for _, c := range cases {
		require.Equal(t, c.want, UniformFromBits(c.word), "%#x", c.word)
	}
}

func TestGumbelEnds(t *testing.T) {
	require.Equal(t, float32(math.Inf(-1)), GumbelFromUniform(0))
	// -log(1-2^-24) is 2^-24 rounded to float32, and its logarithm -24 ln 2.
	require.Equal(t, float32(24*math.Ln2), GumbelFromUniform(0x1.fffffep-1))
	require.InDelta(t, 0, GumbelFromUniform(float32(1/math.E)), 1e-7)
}

func TestFillsAgreeWithWords(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 8, 9} {
		words, uniform, gumbel := make([]uint32, n), make([]float32, n), make([]float32, n)
		key := Key(99)
		FillWords(words, key)
		FillUniform(uniform, key)
		FillGumbel(gumbel, key)
		for i, word := range words {
			require.Equal(t, UniformFromBits(word), uniform[i])
			require.Equal(t, GumbelFromUniform(uniform[i]), gumbel[i])
		}
	}
}

func BenchmarkFillGumbel(b *testing.B) {
	dst := make([]float32, 248320)
	for b.Loop() {
		FillGumbel(dst, Key(42))
	}
}
