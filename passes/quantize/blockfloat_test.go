package quantize

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func blockScheme(mode ir.QuantMode, method Method) Scheme {
	return Scheme{Method: method, Mode: mode, Bits: map[ir.QuantMode]int{ir.MXFP4: 4, ir.MXFP8: 8}[mode], GroupSize: 32}
}

// TestBlockFloatGoldens compares codes, scales and values with what testdata/mx.py computes for itself after MLX's
// kernel: ties, groups of zeros and of subnormals, the largest weights at the border between two scales.
func TestBlockFloatGoldens(t *testing.T) {
	g := readGoldens(t, "mx.safetensors")
	w := g.floats(t, "weights")
	for _, mode := range []ir.QuantMode{ir.MXFP4, ir.MXFP8} {
		t.Run(mode.String(), func(t *testing.T) {
			r := quantized(t, w, 128, blockScheme(mode, MinMax))
			scales := make([]uint8, len(r.Scales))
			for i, s := range r.Scales {
				scales[i] = numeric.F32ToE8M0(s)
			}
			require.Equal(t, g[mode.String()+".scales"].data, scales)
			require.Equal(t, g.words(t, mode.String()+".packed"), r.Packed)
			require.Empty(t, r.Biases)
			back := make([]float32, len(w))
			require.NoError(t, r.Dequantize(back))
			requireBits(t, g.floats(t, mode.String()+".values"), back, "values")
		})
	}
}

// blockErrors are the squared errors of groups of 32.
func blockErrors(t require.TestingT, w []float32, r *Result) []float64 {
	back := make([]float32, len(w))
	require.NoError(t, r.Dequantize(back))
	sums := make([]float64, len(w)/32)
	for i, x := range w {
		d := float64(x) - float64(back[i])
		sums[i/32] += float64(d * d)
	}
	return sums
}

// TestBlockFloatBestIsLeast: no exponent near MLX's, and none that the specification's example would take, has a
// smaller error than what Best has chosen.
func TestBlockFloatBestIsLeast(t *testing.T) {
	for _, mode := range []ir.QuantMode{ir.MXFP4, ir.MXFP8} {
		t.Run(mode.String(), rapid.MakeCheck(func(t *rapid.T) {
			w, f := weights(t, 32), blockFloatOf(mode)
			var best, plain Result
			require.NoError(t, Quantize(&best, w, 1, 32, blockScheme(mode, Best)))
			require.NoError(t, Quantize(&plain, w, 1, 32, blockScheme(mode, MinMax)))
			least, scale := blockErrors(t, w, &best)[0], numeric.F32ToE8M0(plain.Scales[0])
			for n := max(int(scale)-2, 0); n <= min(int(scale)+2, 254); n++ {
				words := make([]uint32, len(best.Packed))
				f.pack(words, w, uint8(n), best.Bits)
				other := plain
				other.Packed, other.Scales = words, []float32{numeric.E8M0ToF32(uint8(n))}
				require.LessOrEqual(t, least, blockErrors(t, w, &other)[0], "exponent %d", n-127)
			}
		}))
	}
}

// TestBlockFloatGain has the root of the mean squared error of normal weights, relative to the weights: MLX's choice
// and the best one.
func TestBlockFloatGain(t *testing.T) {
	const cols = 1 << 15
	w := make([]float32, cols)
	rng := rand.New(rand.NewPCG(5, 6))
	signal := 0.0
	for i := range w {
		w[i] = BF16.Round(float32(rng.NormFloat64() * 0.02))
		signal += float64(w[i]) * float64(w[i])
	}
	for _, c := range []struct {
		mode   ir.QuantMode
		method Method
		want   float64
	}{{ir.MXFP4, MinMax, 0.1162}, {ir.MXFP4, Best, 0.1108}, {ir.MXFP8, MinMax, 0.0548}, {ir.MXFP8, Best, 0.0265}} {
		t.Run(fmt.Sprint(c.mode, " ", c.method), func(t *testing.T) {
			noise := 0.0
			for _, e := range blockErrors(t, w, quantized(t, w, cols, blockScheme(c.mode, c.method))) {
				noise += e
			}
			require.InDelta(t, c.want, math.Sqrt(noise/signal), 0.01*c.want)
		})
	}
}

// TestBlockFloatRefusals: each says what was expected.
func TestBlockFloatRefusals(t *testing.T) {
	for _, c := range []struct {
		scheme Scheme
		cols   int
		want   string
	}{
		{Scheme{Mode: ir.MXFP4, Bits: 4, GroupSize: 64}, 64,
			"minmax quantization: mode mxfp4 has group sizes of [32], found 64"},
		{Scheme{Mode: ir.MXFP4, Bits: 8, GroupSize: 32}, 64,
			"minmax quantization: mode mxfp4 has bits of [4], found 8"},
		{Scheme{Mode: ir.NVFP4, Bits: 4, GroupSize: 32}, 64,
			"minmax quantization: mode nvfp4 has group sizes of [16], found 32"},
		{Scheme{Mode: ir.NVFP4, Bits: 4, GroupSize: 16, Method: HQQ}, 64, "hqq quantization to nvfp4: expected minmax"},
		{Scheme{Mode: ir.MXFP8, Bits: 8, GroupSize: 32, Method: HQQ}, 64, "hqq quantization to mxfp8: expected minmax"},
		{Scheme{Mode: ir.MXFP8, Bits: 8, GroupSize: 32, Params: F32}, 64, "its scales are bytes"},
		{Scheme{Mode: ir.MXFP8, Bits: 8, GroupSize: 32}, 48, "a row has 48 weights, which 32 does not divide"},
		{Scheme{Mode: 9, Bits: 4, GroupSize: 32}, 64, "mode must be one of 4, found number 9"},
	} {
		require.ErrorContains(t, c.scheme.Check(c.cols), c.want)
	}
	w := make([]float32, 64)
	w[40] = float32(math.NaN())
	err := Quantize(&Result{}, w, 2, 32, blockScheme(ir.MXFP4, MinMax))
	require.EqualError(t, err, "row 1, column 8: the weight is NaN, expected a finite number; the checkpoint is damaged or was trained to divergence")
}

// nearestOf is the code of the value of a table nearest to x, of two the even one; what is beyond the table is its end.
func nearestOf(table []float64, x float64) int {
	best := 0
	for code, v := range table {
		a, b := math.Abs(v-x), math.Abs(table[best]-x)
		if a < b || a == b && code%2 == 0 {
			best = code
		}
	}
	return best
}

// TestNVFP4 holds scales and codes to their definition, by trying all: MLX's, whose global scale is 1.
func TestNVFP4(t *testing.T) {
	levels := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	var scales []float64
	for code := range 127 {
		mantissa, exponent := code&7, code>>3
		if exponent == 0 {
			scales = append(scales, math.Ldexp(float64(mantissa), -9))
		} else {
			scales = append(scales, math.Ldexp(1+float64(mantissa)/8, exponent-7))
		}
	}
	nvfp4 := Scheme{Mode: ir.NVFP4, Bits: 4, GroupSize: 16}
	best := nvfp4
	best.Method = Best
	rng := rand.New(rand.NewPCG(7, 8))
	var gain [2]float64
	for range 300 {
		w, size := make([]float32, 32), math.Ldexp(1, rng.IntN(16)-7)
		for i := range w[:16] { // the second group is zeros
			w[i] = BF16.Round(float32(rng.NormFloat64() * size))
		}
		var r Result
		require.NoError(t, Quantize(&r, w, 1, 32, nvfp4))
		require.Equal(t, []int{16, 4, 2}, []int{r.GroupSize, len(r.Packed), len(r.Scales)})
		most := 0.0
		for _, x := range w {
			most = max(most, math.Abs(float64(x)))
		}
		code := nearestOf(scales, float64(float32(most)/6))
		raw := make([]byte, 2)
		r.EncodeScales(raw)
		require.Equal(t, []byte{byte(code), 0}, raw)
		require.Equal(t, scales[code], float64(r.Scales[0]))
		for i, x := range w[:16] {
			want := nearestOf(levels, float64(float32(math.Abs(float64(x)))/float32(scales[code])))
			require.Equal(t, want, int(r.Packed[i/8]>>(i%8*4)&7), "%v under %v", x, scales[code])
		}
		require.Equal(t, []uint32{0, 0}, r.Packed[2:])
		var other Result
		require.NoError(t, Quantize(&other, w, 1, 32, best))
		for i, q := range []*Result{&r, &other} {
			back := make([]float32, 32)
			require.NoError(t, q.Dequantize(back))
			for j, x := range w {
				gain[i] += math.Pow(float64(x-back[j])/most, 2)
			}
		}
	}
	require.Less(t, gain[1], 0.95*gain[0])

	// What e4m3 does not reach needs a global scale.
	for _, x := range []float32{2700, 5.8e-3} {
		w := make([]float32, 48)
		w[37] = -x
		err := Quantize(&Result{}, w, 1, 48, nvfp4)
		require.ErrorContains(t, err, "row 0, column 32: the 16 weights from here on need the scale")
		require.ErrorContains(t, err, "global scale")
	}
}
