package quantize

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		scheme Scheme
		cols   int
		want   string
	}{
		{"row not divisible", Scheme{Method: MinMax, Bits: 4, GroupSize: 64}, 96,
			"minmax quantization in groups of 64: a row has 96 weights, which 64 does not divide; choose another group size or leave the tensor unquantized"},
		{"shorter row", Scheme{Method: HQQ, Bits: 4, GroupSize: 64}, 32,
			"hqq quantization in groups of 64: a row has 32 weights, which 64 does not divide; choose another group size or leave the tensor unquantized"},
		{"whole row that MLX has no group for", Scheme{Method: TorchAOSymmetric, Bits: 8}, 48,
			"torchao-symmetric quantization in groups of 48: expected a multiple of 32"},
		{"coarse group of MLX", Scheme{Method: MinMax, Bits: 4, GroupSize: 256}, 256,
			"minmax quantization in groups of 256: expected 32, 64 or 128"},
		{"group that MLX has not", Scheme{Method: MinMax, Bits: 4, GroupSize: 96}, 96,
			"minmax quantization in groups of 96: expected 32, 64 or 128"},
		{"negative group", Scheme{Method: MinMax, Bits: 4, GroupSize: -32}, 96,
			"minmax quantization in groups of -32: expected 32, 64 or 128"},
		{"bits", Scheme{Method: MinMax, Bits: 3, GroupSize: 32}, 96, "minmax quantization to 3 bits: expected 4 or 8"},
		{"method", Scheme{Method: 9, Bits: 4, GroupSize: 32}, 96,
			"quantization method(9) is unknown; known are 0 (minmax) to 7 (learned)"},
		{"format", Scheme{Bits: 4, GroupSize: 32, Params: 7}, 96,
			"minmax quantization with scales of type float(7): expected bf16, f16 or f32"},
		{"format of torchao", Scheme{Method: TorchAOAsymmetric, Bits: 4, GroupSize: 32, Params: F16}, 96,
			"torchao-asymmetric quantization with scales of type f16: its arithmetic is defined for bf16 only"},
		{"iterations", Scheme{Method: HQQ, Bits: 4, GroupSize: 32, Iterations: 21}, 96,
			"hqq quantization with 21 iterations: expected 0, or 1 to 20 for hqq"},
		{"iterations without hqq", Scheme{Method: MinMax, Bits: 4, GroupSize: 32, Iterations: 1}, 96,
			"minmax quantization with 1 iterations: expected 0, or 1 to 20 for hqq"},
		{"no columns", Scheme{Bits: 4, GroupSize: 32}, 0,
			"minmax quantization of rows of 0 weights: expected 1 to 2147483647"},
		{"good", Scheme{Bits: 4, GroupSize: 32}, 96, ""},
		{"good row", Scheme{Method: HQQ, Bits: 8}, 5376, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.scheme.Check(c.cols)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}

func TestStoredGroupSize(t *testing.T) {
	for _, c := range []struct{ group, cols, want int }{
		{32, 4096, 32}, {64, 4096, 64}, {128, 4096, 128}, {256, 4096, 128},
		{0, 5376, 128}, {0, 192, 64}, {0, 96, 32}, {0, 48, 0}, {0, 16, 0},
	} {
		require.Equal(t, c.want, Scheme{Bits: 8, GroupSize: c.group}.StoredGroupSize(c.cols),
			"group %d of %d columns", c.group, c.cols)
	}
}

func TestMatrixShape(t *testing.T) {
	s := Scheme{Bits: 4, GroupSize: 32}
	for _, c := range []struct{ rows, weights int }{{2, 63}, {2, 96}, {0, 0}, {-1, 32}} {
		err := Quantize(&Result{}, make([]float32, c.weights), c.rows, 32, s)
		require.ErrorContains(t, err, "minmax quantization of a matrix [")
	}
	var search Search
	require.ErrorContains(t, search.Observe(make([]float32, 63), 2, 32, Scheme{Method: HQQ, Bits: 4}, nil),
		"[2, 32]: found 63 weights")
	require.EqualError(t, search.Observe(make([]float32, 64), 2, 32, s, nil),
		"search over a tensor for minmax quantization: expected hqq, no other method needs one")
}

func TestFits(t *testing.T) {
	hqq := Scheme{Method: HQQ, Bits: 4, GroupSize: 32}
	w := make([]float32, 2*64)
	var search Search
	require.EqualError(t, search.Observe(w, 2, 64, hqq, make([]Fit, 3)),
		"hqq quantization of a matrix [2, 64] with 3 fits: expected 4, one a group")
	require.EqualError(t, QuantizeFitted(&Result{}, w, 2, 64, hqq, make([]Fit, 4)),
		"hqq quantization with fits and 0 iterations: expected hqq with at least one")
	hqq.Iterations = 20
	require.EqualError(t, QuantizeFitted(&Result{}, w, 2, 64, hqq, make([]Fit, 5)),
		"hqq quantization of a matrix [2, 64] with 5 fits: expected 4, one a group")
	require.ErrorContains(t, QuantizeFitted(&Result{}, w, 3, 64, hqq, make([]Fit, 4)), "[3, 64]: found 128 weights")
	require.EqualError(t, QuantizeFitted(&Result{}, w, 2, 64, Scheme{Bits: 4, GroupSize: 32}, make([]Fit, 4)),
		"minmax quantization with fits and 0 iterations: expected hqq with at least one")
}

func TestNonFiniteWeights(t *testing.T) {
	for _, value := range []float32{float32(math.NaN()), float32(math.Copysign(math.NaN(), -1)), float32(math.Inf(1)),
		float32(math.Inf(-1))} {
		for _, s := range schemes {
			w := make([]float32, 5*384)
			for i := range w {
				w[i] = float32(i%17) - 8
			}
			w[3*384+259] = value
			err := Quantize(&Result{}, w, 5, 384, s)
			var at *ValueError
			require.ErrorAs(t, err, &at, "%v", s)
			require.Equal(t, [2]int{3, 259}, [2]int{at.Row, at.Col})
			require.ErrorContains(t, err, "row 3, column 259: the weight is ")
			if s.Method == HQQ {
				var search Search
				require.Equal(t, err, search.Observe(w, 5, 384, s, nil))
			}
		}
	}
}

// TestUnrepresentableScale has groups whose scale or bias is outside of its format.
func TestUnrepresentableScale(t *testing.T) {
	fill := func(even, odd float32) []float32 {
		w := make([]float32, 2*64)
		for i := 64; i < len(w); i += 2 {
			w[i], w[i+1] = even, odd
		}
		return w
	}
	for name, c := range map[string]struct {
		w      []float32
		scheme Scheme
	}{
		"extent beyond float32":     {fill(-3e38, 3e38), Scheme{Method: MinMax, Bits: 4, GroupSize: 64}},
		"constant beyond the steps": {fill(1e35, 1e35), Scheme{Method: MinMax, Bits: 4, GroupSize: 64}},
		"bias beyond float16":       {fill(1e5, 1e5), Scheme{Method: MinMax, Bits: 4, GroupSize: 64, Params: F16}},
		"torchao extent":            {fill(-3e38, 3e38), Scheme{Method: TorchAOAsymmetric, Bits: 4, GroupSize: 64}},
		"sum beyond float32":        {fill(-3e38, 3e38), Scheme{Method: HQQ, Bits: 4, GroupSize: 64}},
		"scale beyond float16":      {fill(-3e6, 3e6), Scheme{Method: HQQ, Bits: 4, GroupSize: 64, Params: F16}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Quantize(&Result{}, c.w, 2, 64, c.scheme)
			var at *ValueError
			require.ErrorAs(t, err, &at)
			require.Equal(t, [2]int{1, 0}, [2]int{at.Row, at.Col})
			require.ErrorContains(t, err, "the 64 weights from here on, between ")
		})
	}
}

// TestExtremes quantizes groups at the ends of the range of float32 that can be quantized.
func TestExtremes(t *testing.T) {
	for _, s := range schemes {
		steps := 2.0
		if f := blockFloatOf(s.Mode); f != nil { // what is cut off where the scale's exponent is rounded down
			steps = (math.Sqrt2 - 1) * float64(f.largest)
		}
		for _, value := range []float32{0, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
			0x1p-126, 1e-30, 1e30, -1e30} {
			w := make([]float32, 384)
			for i := range w {
				w[i] = value * float32(i%3)
			}
			r := quantized(t, w, len(w), s)
			back := make([]float32, len(w))
			require.NoError(t, r.Dequantize(back))
			for i := range w {
				require.InDelta(t, float64(w[i]), float64(back[i]), steps*math.Abs(float64(r.Scales[i/r.GroupSize])),
					"%v, weight %d = %g", s, i, w[i])
			}
		}
	}
}

func TestDequantizeShape(t *testing.T) {
	r := quantized(t, make([]float32, 128), 64, Scheme{Bits: 4, GroupSize: 64})
	require.ErrorContains(t, r.Dequantize(make([]float32, 127)), "for 127 weights: expected 16, 2, 2 and 128")
	r.Packed = r.Packed[1:]
	require.ErrorContains(t, r.Dequantize(make([]float32, 128)), "with 15 words")
	for _, bad := range []Result{{}, {Bits: 3, GroupSize: 32, Cols: 32}, {Bits: 4, GroupSize: 4, Cols: 32},
		{Bits: 4, GroupSize: 64, Cols: 32}} {
		require.Error(t, bad.Dequantize(nil))
	}
}

// TestBias has a fractional zero point, as asymmetric hqq makes them: both operations round.
func TestBias(t *testing.T) {
	for _, c := range []struct {
		scale, zeroPoint float32
		bits             int
		format           Float
		want             float32
	}{
		{1.5, 0.30078125, 4, BF16, -12.5},        // 8.30078125 -> 8.3125, 12.46875 -> 12.5
		{1.5, 0.30078125, 4, F32, -12.451171875}, // exact
		{1.5, 0.30078125, 4, F16, -12.4453125},   // 8.30078125 is a tie -> 8.296875
		{0.0625, -8, 4, BF16, 0},                 // code 0 is zero
		{0x1.02p-4, 3, 8, BF16, -8.25},           // 131 * 1.0078125/16 = 8.2515
	} {
		require.Equal(t, c.want, Bias(c.scale, c.zeroPoint, c.bits, c.format), "%+v", c)
	}
}

// TestFloat checks sizes, names and the little-endian round trip of the formats.
func TestFloat(t *testing.T) {
	for f, want := range map[Float]struct {
		name  string
		size  int
		value float32 // 1 + 2^-9 rounded
	}{BF16: {"bf16", 2, 1}, F16: {"f16", 2, 1 + 0x1p-9}, F32: {"f32", 4, 1 + 0x1p-9}} {
		require.Equal(t, want.name, f.String())
		require.Equal(t, want.size, f.Size())
		require.Equal(t, want.value, f.Round(1+0x1p-9))
		b := make([]byte, 3*f.Size())
		f.Encode(b, []float32{1 + 0x1p-9, -2.5, 0})
		back := make([]float32, 3)
		f.Decode(back, b)
		require.Equal(t, []float32{want.value, -2.5, 0}, back)
	}
}
