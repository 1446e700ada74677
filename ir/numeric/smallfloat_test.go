package numeric

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Every finite code comes back, and the values of the formats are those of the specification.
func TestSmallFloatsComeBack(t *testing.T) {
	for code := range 16 {
		require.Equal(t, uint8(code), F32ToE2M1(E2M1ToF32(uint8(code))), code)
	}
	for code := range 256 {
		if code&127 < 127 {
			require.Equal(t, uint8(code), F32ToE4M3(E4M3ToF32(uint8(code))), code)
		}
		require.Equal(t, uint8(code), F32ToE8M0(E8M0ToF32(uint8(code))), code)
	}
	require.Equal(t, float32(6), E2M1ToF32(7))
	require.Equal(t, float32(-0.5), E2M1ToF32(9))
	require.Equal(t, float32(448), E4M3ToF32(0x7e))
	require.Equal(t, float32(0x1p-9), E4M3ToF32(1))
	require.Equal(t, float32(-0x1p-6), E4M3ToF32(0x88))
	require.Equal(t, float32(1), E8M0ToF32(127))
	require.Equal(t, float32(0x1p-127), E8M0ToF32(0))
	require.True(t, math.IsInf(float64(E8M0ToF32(255)), 1))
}

// Rounding goes to the nearest value, of two to the one with the even code.
func TestSmallFloatsRoundToNearest(t *testing.T) {
	for _, f := range []struct {
		name   string
		encode func(float32) uint8
		decode func(uint8) float32
		codes  int // of positive values
	}{{"e2m1", F32ToE2M1, E2M1ToF32, 8}, {"e4m3", F32ToE4M3, E4M3ToF32, 127}} {
		t.Run(f.name, rapid.MakeCheck(func(t *rapid.T) {
			x := rapid.OneOf(rapid.Float32Range(-600, 600), rapid.Float32Range(-8, 8),
				rapid.Float32Range(-0.1, 0.1)).Draw(t, "x")
			if rapid.Bool().Draw(t, "between") {
				i := rapid.IntRange(0, f.codes-2).Draw(t, "code")
				x = (f.decode(uint8(i)) + f.decode(uint8(i+1))) / 2
			}
			best, least := 0, math.Inf(1)
			for code := range f.codes {
				d := math.Abs(math.Abs(float64(x)) - float64(f.decode(uint8(code))))
				if d < least || d == least && code%2 == 0 {
					best, least = code, d
				}
			}
			if math.Signbit(float64(x)) {
				best += map[int]int{8: 8, 127: 128}[f.codes]
			}
			require.Equal(t, uint8(best), f.encode(x), "%g", x)
		}))
	}
	nan := float32(math.NaN())
	require.Equal(t, uint8(7), F32ToE2M1(nan)&7)
	require.Equal(t, uint8(0x7e), F32ToE4M3(nan)&127)
	require.Equal(t, uint8(15), F32ToE2M1(float32(math.Inf(-1))))
	require.Equal(t, uint8(8), F32ToE2M1(float32(math.Copysign(0, -1))))
}

// The exponent is that of the rounded logarithm: up from √2 on.
func TestE8M0RoundsTheLogarithm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := math.Float32frombits(rapid.Uint32Range(0, 0x7f7fffff).Draw(t, "bits"))
		want := 0.0
		if x > 0 {
			want = min(max(math.Round(float64(float32(math.Log2(float64(x))))), -127), 127) + 127
		}
		require.Equal(t, uint8(want), F32ToE8M0(x), "%g", x)
	})
	require.Equal(t, uint8(127), F32ToE8M0(1.4142))
	require.Equal(t, uint8(128), F32ToE8M0(1.4143))
	require.Equal(t, uint8(0), F32ToE8M0(0))
	require.Equal(t, uint8(255), F32ToE8M0(float32(math.Inf(1))))
	// log2 of the next float below 2^100.5 is rounded to 100.5, which goes up.
	require.Equal(t, uint8(228), F32ToE8M0(math.Float32frombits(227<<23|0x3504f3)))
	require.Equal(t, uint8(127-101), F32ToE8M0(math.Float32frombits((127-101)<<23|0x3504f4)),
		"-100.5 goes away from zero")
}
