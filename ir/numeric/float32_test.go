package numeric

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

var float32Functions = map[string]func(float32) float32{
	"Exp": Exp32, "Expm1": Expm132, "Log": Log32, "Log1p": Log1p32, "Log2": Log232, "Log10": Log1032,
	"Sin": Sin32, "Cos": Cos32, "Tan": Tan32, "Asin": Asin32, "Acos": Acos32, "Atan": Atan32,
	"Sinh": Sinh32, "Cosh": Cosh32, "Tanh": Tanh32, "Asinh": Asinh32, "Acosh": Acosh32, "Atanh": Atanh32, "Erf": Erf32,
}

// TestFloat32IsCorrectlyRounded compares with the oracle rounded to float32.
func TestFloat32IsCorrectlyRounded(t *testing.T) {
	require.Len(t, float32Functions, len(functions))
	for _, f := range functions {
		t.Run(f.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 6))
			tested := 0
			for _, in := range f.arguments {
				for range *points / 4 {
					x := float32(in.draw(r))
					if x == 0 || math.IsInf(float64(x), 0) || math.IsNaN(f.f(float64(x))) ||
						math.IsInf(f.f(float64(x)), 0) {
						continue
					}
					want, _ := f.oracle(exact(float64(x))).Float32()
					got := float32Functions[f.name](x)
					require.Equal(t, math.Float32bits(want), math.Float32bits(got), "%s(%x) = %x, want %x", f.name, x,
						got, want)
					tested++
				}
			}
			require.Greater(t, tested, *points/4)
		})
	}
}

func TestFloat32Pairs(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range *points {
		x, y := r.Float32()*9, r.Float32()*60-30
		want, _ := bigPow(exact(float64(x)), exact(float64(y))).Float32()
		require.Equal(t, want, Pow32(x, y), "Pow32(%g, %g)", x, y)
		want, _ = bigAtan2(exact(float64(y)), exact(float64(x-4))).Float32()
		require.Equal(t, want, Atan232(y, x-4), "Atan232(%g, %g)", y, x-4)
		sin, cos := Sincos32(y)
		require.Equal(t, []float32{Sin32(y), Cos32(y)}, []float32{sin, cos})
	}
}

func TestFloat32Specials(t *testing.T) {
	for name, f := range float32Functions {
		require.Equal(t, uint32(float32QuietNaN), math.Float32bits(f(float32(math.NaN()))), name)
	}
	require.Equal(t, float32(math.Inf(1)), Exp32(89))
	require.Equal(t, float32(0), Exp32(-104))
	require.Equal(t, float32(0x1p-149), Exp32(-103.9))
	require.Equal(t, uint32(0x8000_0000), math.Float32bits(Sin32(float32(negZero))))
	require.Equal(t, float32(math.Inf(-1)), Log32(0))
}
