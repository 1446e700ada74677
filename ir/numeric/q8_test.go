package numeric

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQ8: a scale is the least bfloat16 that is no less than the product with 1/127, no code is beyond ±127, and a code
// is the nearest one.
func TestQ8(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 8))
	for trial := range 2000 {
		group := make([]float32, 1+r.IntN(40))
		high := float32(0)
		for i := range group {
			group[i] = float32(r.NormFloat64() * math.Pow(2, float64(trial%240-120)))
			high = max(high, float32(math.Abs(float64(group[i]))))
		}
		scale := Q8Scale(group)
		s, want := BF16ToF32(scale), float32(high*(1.0/127))
		require.GreaterOrEqual(t, s, want)
		require.Less(t, BF16ToF32(scale-1), want, "the next lower one is too small")
		for _, v := range group {
			code := Q8Code(v, scale)
			require.LessOrEqual(t, math.Abs(float64(code)), 127.0)
			require.LessOrEqual(t, math.Abs(float64(v)-float64(code)*float64(s)), float64(s)/2*1.0001)
		}
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	require.Equal(t, uint16(0), Q8Scale([]float32{0, float32(math.Copysign(0, -1))}))
	require.Equal(t, uint16(0x7f80), Q8Scale([]float32{1, -inf}))
	require.Equal(t, uint16(0x7fc0), Q8Scale([]float32{nan, 1}))
	require.Equal(t, uint16(0x7fc0), Q8Scale([]float32{1, nan, 2}))
	for _, scale := range []uint16{0, 0x7f80, 0x7fc0} {
		require.Zero(t, Q8Code(3, scale))
	}
	require.Equal(t, int8(127), Q8Code(math.MaxFloat32, 0x3f80))
	require.Equal(t, []int8{2, 2, -2}, []int8{Q8Code(1.5, 0x3f80), Q8Code(2.5, 0x3f80), Q8Code(-2.5, 0x3f80)},
		"ties to even")
}
