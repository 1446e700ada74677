package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func TestUnaryFloats(t *testing.T) {
	for _, k := range []struct {
		op       string
		x, want  float64
		relative float64
	}{
		{"sigmoid", 0, 0.5, 0}, {"sigmoid", -200, 0, 0}, {"sigmoid", 200, 1, 0},
		{"sigmoid", -20, 2.061153618190204e-9, 1e-7},
		{"silu", -100, 0, 1e-7}, {"silu", 100, 100, 0}, {"silu", 1, 0.7310585786300049, 1e-7},
		{"tanh", 100, 1, 0}, {"exp", 88.5, math.Exp(88.5), 1e-7}, {"exp", 89, math.Inf(1), 0},
		{"exp", math.Inf(-1), 0, 0},
		{"expm1", 1e-10, 1e-10, 1e-7}, {"log", 0, math.Inf(-1), 0}, {"log", -1, math.NaN(), 0},
		{"log1p", 1e-10, 1e-10, 1e-7},
		{"log2", 8, 3, 0}, {"log10", 1000, 3, 0}, {"rsqrt", 4, 0.5, 0}, {"rsqrt", 0, math.Inf(1), 0},
		{"sqrt", -1, math.NaN(), 0},
		{"reciprocal", 0, math.Inf(1), 0}, {"erf", 3, 0.9999779095030014, 1e-7}, {"sin", 1e6, math.Sin(1e6), 1e-6},
		{"arcsin", 2, math.NaN(), 0}, {"arccosh", 0.5, math.NaN(), 0}, {"arctanh", 1, math.Inf(1), 0},
		{"floor", -1.5, -2, 0}, {"ceil", -1.5, -1, 0}, {"square", -3, 9, 0}, {"abs", math.Inf(-1), math.Inf(1), 0},
		{"sign", math.NaN(), 0, 0}, {"sign", -0.5, -1, 0}, {"neg", 2, -2, 0},
	} {
		got := float64(must(t, k.op, nil, f32(nil, float32(k.x))).F[0])
		if k.want != k.want {
			require.True(t, got != got, "%s(%v) is %v, want NaN", k.op, k.x, got)
		} else if math.IsInf(k.want, 0) {
			require.Equal(t, k.want, got, "%s(%v)", k.op, k.x)
		} else {
			require.InDelta(t, k.want, got, k.relative*math.Abs(k.want)+1e-40, "%s(%v)", k.op, k.x)
		}
	}
}

// Functions of floats turn every integer dtype into f32; the others keep it and wrap.
func TestUnaryIntegers(t *testing.T) {
	for _, d := range []ir.DType{ir.Bool, ir.U8, ir.I8, ir.I64, ir.U64} {
		got := must(t, "sqrt", nil, list(d, 0, 1))
		require.Equal(t, f32([]int{2}, 0, 1), got)
	}
	require.Equal(t, float32(1<<32), must(t, "sqrt", nil, list(ir.U64, -1)).F[0], "-1 is stored for 2^64-1")
	for _, k := range []struct {
		op      string
		d       ir.DType
		x, want int64
	}{
		{"abs", ir.I8, -128, -128}, {"abs", ir.I64, -5, 5}, {"abs", ir.U64, -1, -1}, {"neg", ir.U8, 1, 255},
		{"neg", ir.I32, math.MinInt32, math.MinInt32}, {"square", ir.U8, 16, 0}, {"square", ir.I16, 200, -25536},
		{"sign", ir.U64, -1, 1}, {"sign", ir.I32, -9, -1}, {"sign", ir.Bool, 1, 1},
		{"floor", ir.I64, math.MaxInt64, math.MaxInt64},
		{"ceil", ir.U8, 200, 200}, {"round", ir.I64, math.MaxInt64, math.MaxInt64}, {"square", ir.Bool, 1, 1},
		{"bitwise_invert", ir.U8, 1, 254}, {"bitwise_invert", ir.I64, 0, -1}, {"bitwise_invert", ir.Bool, 1, 0},
	} {
		require.Equal(t, list(k.d, k.want), must(t, k.op, nil, list(k.d, k.x)), "%s of %s %d", k.op, k.d, k.x)
	}
	refuses(t, "logical_not", "neg", nil, list(ir.Bool, 1))
	refuses(t, "f32", "bitwise_invert", nil, f32(nil, 1))
}

func TestRound(t *testing.T) {
	for _, k := range []struct {
		decimals int
		x, want  *Tensor
	}{
		{0, f32([]int{6}, 0.5, 1.5, -0.5, 2.5, nan, inf),
			f32([]int{6}, 0, 2, float32(math.Copysign(0, -1)), 2, nan, inf)},
		{1, f32([]int{2}, 0.25, 0.35), f32([]int{2}, 0.2, 0.4)}, // 0.35·10 rounds to 3.5 in f32
		{-1, f32([]int{2}, 15, 25), f32([]int{2}, 20, 20)},
		{-1, list(ir.I32, 15, 25, -7), list(ir.I32, 20, 20, -10)},
		{50, f32([]int{2}, 0, 1), f32([]int{2}, nan, nan)}, // 10^50 is infinite in f32
	} {
		requireSame(t, k.want, must(t, "round", &ir.RoundAttrs{Decimals: k.decimals}, k.x))
	}
}

func TestGelu(t *testing.T) {
	x := f32([]int{4}, -3, -0.5, 0, 2)
	for approximate, want := range map[string][]float64{
		"none":  {-0.0040496940948, -0.1542687693524, 0, 1.9544997361036},
		"other": {-0.0040496940948, -0.1542687693524, 0, 1.9544997361036},
		"tanh":  {-0.0036373920817, -0.1542859883, 0, 1.9545976400},
	} {
		got := must(t, "gelu", &ir.GeluAttrs{Approximate: approximate}, x)
		for i, w := range want {
			require.InDelta(t, w, got.F[i], 2e-7, "%s %v", approximate, x.F[i])
		}
	}
}

// Strict rounds silu as the delegate's two operations do.
func TestSiluRoundsTwice(t *testing.T) {
	x := float32(1.140625)
	got := mustIn(t, Strict, "silu", nil, Floats(ir.BF16, nil, []float32{x})).F[0]
	require.Equal(t, numeric.RoundBF16(x*numeric.RoundBF16(sigmoid(x))), got)
	require.NotEqual(t, got, mustIn(t, Mixed, "silu", nil, Floats(ir.BF16, nil, []float32{x})).F[0])
}

// Large tensors are cut into parts; every element must be there.
func TestUnaryParts(t *testing.T) {
	x := iota32(1 << 17)
	got := mustIn(t, Strict, "neg", nil, Floats(ir.BF16, x.Shape, x.F))
	for i, v := range got.F {
		if v != -numeric.RoundBF16(float32(i)) {
			require.Equal(t, -numeric.RoundBF16(float32(i)), v, "element %d", i)
		}
	}
}
