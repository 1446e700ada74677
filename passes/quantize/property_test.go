package quantize

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// weights draws n weights of one magnitude, sometimes with outliers, zeros or a single sign, rounded
// to bf16 half of the time.
func weights(t *rapid.T, n int) []float32 {
	magnitude := float32(math.Ldexp(1, rapid.IntRange(-40, 20).Draw(t, "exponent")))
	bf16 := rapid.Bool().Draw(t, "bf16")
	shift := rapid.SampledFrom([]float32{0, 0, 0, -1, 1, 5}).Draw(t, "shift")
	zeros := rapid.SampledFrom([]int{0, 0, 0, 7, 90, 100}).Draw(t, "percent of zeros")
	state := rapid.Uint64().Draw(t, "seed")
	next := func() float32 { // xorshift64*: cheaper than a rapid draw a weight
		state ^= state >> 12
		state ^= state << 25
		state ^= state >> 27
		return float32(state*0x2545f4914f6cdd1d>>40) / (1 << 24)
	}
	w := make([]float32, n)
	for i := range w {
		switch {
		case int(100*next()) < zeros:
		case next() < 0.01:
			w[i] = magnitude * 20 * (next() - 0.5)
		default:
			w[i] = magnitude * (next() + next() + next() - 1.5 + shift)
		}
		if bf16 {
			w[i] = BF16.Round(w[i])
		}
	}
	return w
}

var schemes = []Scheme{
	{Method: MinMax, Bits: 4, GroupSize: 32},
	{Method: MinMax, Bits: 4, GroupSize: 64, Params: F32},
	{Method: MinMax, Bits: 8, GroupSize: 128},
	{Method: HQQ, Bits: 4, GroupSize: 32},
	{Method: HQQ, Bits: 4, GroupSize: 64, Params: F32},
	{Method: HQQ, Bits: 8, GroupSize: 128},
	{Method: HQQ, Bits: 8, Params: F32},
	{Method: TorchAOAsymmetric, Bits: 4, GroupSize: 64},
	{Method: TorchAOAsymmetric, Bits: 8, GroupSize: 32},
	{Method: TorchAOSymmetric, Bits: 4, GroupSize: 128},
	{Method: TorchAOSymmetric, Bits: 8},
	{Method: Best, Bits: 4, GroupSize: 32},
	{Method: Best, Bits: 4, GroupSize: 64},
	{Method: Best, Bits: 8, GroupSize: 128},
	{Method: Best, Bits: 8, GroupSize: 64, Params: F32},
	{Method: MinMax, Mode: ir.MXFP4, Bits: 4, GroupSize: 32},
	{Method: Best, Mode: ir.MXFP4, Bits: 4, GroupSize: 32},
	{Method: MinMax, Mode: ir.MXFP8, Bits: 8, GroupSize: 32},
	{Method: Best, Mode: ir.MXFP8, Bits: 8, GroupSize: 32},
}

func quantizedRapid(t *rapid.T, w []float32, cols int, s Scheme) *Result {
	r := &Result{}
	require.NoError(t, Quantize(r, w, len(w)/cols, cols, s))
	return r
}

// TestRowSplitting quantizes a matrix in blocks of rows, in random order, with one reused Result, and
// expects the bits of one call over the whole. For HQQ the blocks are first searched by two
// Searches, which may keep fits.
func TestRowSplitting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(schemes).Draw(t, "scheme")
		rows, cols := rapid.IntRange(1, 9).Draw(t, "rows"), 128*rapid.IntRange(1, 10).Draw(t, "cols/128")
		w := weights(t, rows*cols)
		whole := quantizedRapid(t, w, cols, s)

		var starts []int
		for start := 0; start < rows; start += rapid.IntRange(1, rows).Draw(t, "block") {
			starts = append(starts, start)
		}
		block := func(i int) []float32 {
			end := rows
			if i+1 < len(starts) {
				end = starts[i+1]
			}
			return w[starts[i]*cols : end*cols]
		}
		order := rapid.Permutation(indices(len(starts))).Draw(t, "order")
		fitted := s.Method == HQQ && rapid.Bool().Draw(t, "keep fits")
		groups := make([]Fit, rows*(cols/s.group(cols)))
		fits := func(i int) []Fit {
			if !fitted {
				return nil
			}
			perRow := len(groups) / rows
			return groups[starts[i]*perRow:][:len(block(i))/cols*perRow]
		}
		if s.Method == HQQ {
			var searches [2]Search
			for _, i := range order {
				require.NoError(t, searches[i%2].Observe(block(i), len(block(i))/cols, cols, s, fits(i)))
			}
			searches[0].Merge(&searches[1])
			s.Iterations = searches[0].Iterations()
		}
		part := &Result{}
		for _, i := range order {
			if fitted {
				require.NoError(t, QuantizeFitted(part, block(i), len(block(i))/cols, cols, s, fits(i)))
			} else {
				require.NoError(t, Quantize(part, block(i), len(block(i))/cols, cols, s))
			}
			first := starts[i]
			require.Equal(t, whole.Packed[first*s.PackedCols(cols):][:len(part.Packed)], part.Packed)
			require.Equal(t, whole.Scales[first*s.ParamCols(cols):][:len(part.Scales)], part.Scales)
			if s.HasBiases() {
				require.Equal(t, whole.Biases[first*s.ParamCols(cols):][:len(part.Biases)], part.Biases)
			}
		}
	})
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestErrorBound checks each weight against its dequantized value.
func TestErrorBound(t *testing.T) {
	for _, c := range []struct {
		scheme Scheme
		steps  float64 // largest error in units of the scale; 0: half a step, or what MLX's stretched scale cuts off
	}{
		{Scheme{Method: MinMax, Bits: 4, GroupSize: 32, Params: F32}, 0},
		{Scheme{Method: MinMax, Bits: 8, GroupSize: 64, Params: F32}, 0},
		// Half a step, and the rounding of 1/scale to bf16: 2^-8 of a code of at most 15, 127.5.
		{Scheme{Method: TorchAOAsymmetric, Bits: 4, GroupSize: 64}, 0.65},
		{Scheme{Method: TorchAOSymmetric, Bits: 4, GroupSize: 64}, 0.6},
		{Scheme{Method: TorchAOSymmetric, Bits: 8}, 1.1},
	} {
		t.Run(fmt.Sprintf("%s/%dbit", c.scheme.Method, c.scheme.Bits), rapid.MakeCheck(func(t *rapid.T) {
			const cols = 256
			w := weights(t, 2*cols)
			r := quantizedRapid(t, w, cols, c.scheme)
			back := make([]float32, len(w))
			require.NoError(t, r.Dequantize(back))
			for g, scale := range r.Scales {
				step := math.Abs(float64(scale))
				first := g * r.GroupSize
				lo, hi, _ := extent(w[first : first+r.GroupSize])
				bound := c.steps * step
				if c.steps == 0 {
					levels := float64(int(1)<<r.Bits - 1)
					bound = max(step/2, float64(hi)-float64(lo)-levels*step)
				}
				largest := max(math.Abs(float64(lo)), math.Abs(float64(hi)))
				for i := first; i < first+r.GroupSize; i++ {
					require.LessOrEqual(t, math.Abs(float64(w[i])-float64(back[i])), bound+largest*1e-6,
						"weight %d = %g came back as %g, scale %g", i, w[i], back[i], scale)
				}
			}
		}))
	}
}

// TestMinMaxEdges checks what MLX's choice of sign is for: the edge of larger magnitude comes back
// exactly, and so does zero, up to the rounding of one sum.
func TestMinMaxEdges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Scheme{Method: MinMax, Bits: rapid.SampledFrom([]int{4, 8}).Draw(t, "bits"), GroupSize: 32, Params: F32}
		w := weights(t, 32)
		w[5] = 0
		r := quantizedRapid(t, w, 32, s)
		back := make([]float32, 32)
		require.NoError(t, r.Dequantize(back))
		if r.Biases[0] == 0 { // only a group within half of the least scale of zero has no edge
			lo, hi, _ := extent(w)
			require.LessOrEqual(t, max(-lo, hi), float32(minMaxEpsilon/2))
			return
		}
		for i, x := range w {
			if x == r.Biases[0] {
				require.Equal(t, x, back[i])
			}
		}
		require.LessOrEqual(t, abs(back[5]), abs(r.Biases[0])*0x1p-23)
	})
}

// TestUpdatesReduceError checks that an HQQ update never increases the squared error of a group.
func TestUpdatesReduceError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]int{4, 8}).Draw(t, "bits")
		w := weights(t, 64)
		lo, hi, _ := extent(w)
		scale := startScale(max(-lo, hi), bits)
		previous := math.Inf(1)
		for range maxIterations {
			var sum float64
			for _, x := range w {
				d := float64(x) - float64(scale)*float64(roundToEven(clamp(x/scale, float32(int(1)<<(bits-1)))))
				sum += float64(d * d)
			}
			// Below the least scale the update cannot choose freely.
			if scale > hqqEpsilon {
				require.LessOrEqual(t, sum, previous*(1+1e-5))
				previous = sum
			}
			scale = updateScale(w, scale, bits)
		}
	})
}

func TestPackRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]int{4, 8}).Draw(t, "bits")
		codes := rapid.SliceOfN(rapid.Uint8Range(0, uint8(1<<bits-1)), 32, 32).Draw(t, "codes")
		words := make([]uint32, len(codes)*bits/32)
		Pack(words, codes, bits)
		for i, code := range codes {
			require.Equal(t, uint32(code), words[i*bits/32]>>(i*bits%32)&(1<<bits-1))
		}
		back := make([]uint8, len(codes))
		Unpack(back, words, bits)
		require.Equal(t, codes, back)
	})
}

// TestDequantizeReadsGroups compares Dequantize with the definition, code by code.
func TestDequantizeReadsGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(schemes).Draw(t, "scheme")
		const rows, cols = 3, 384
		r := quantizedRapid(t, weights(t, rows*cols), cols, s)
		codes := make([]uint8, rows*cols)
		Unpack(codes, r.Packed, r.Bits)
		back := make([]float32, rows*cols)
		require.NoError(t, r.Dequantize(back))
		for i, code := range codes {
			g := i/cols*(cols/r.GroupSize) + i%cols/r.GroupSize
			want := float32(0)
			switch s.Mode {
			case ir.MXFP4:
				want = float32(r.Scales[g] * numeric.E2M1ToF32(code))
			case ir.MXFP8:
				want = float32(r.Scales[g] * numeric.E4M3ToF32(code))
			default:
				want = float32(r.Scales[g]*float32(code)) + r.Biases[g]
			}
			require.Equal(t, want, back[i])
		}
	})
}

// TestPackRounded compares the packers with a plain formula, on ties and outside the range too.
func TestPackRounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]int{4, 8}).Draw(t, "bits")
		offset := rapid.Int32Range(-5, 200).Draw(t, "offset")
		halves := rapid.SliceOfN(rapid.Int32Range(-600, 600), 32, 32).Draw(t, "twice t")
		quotients := make([]float32, len(halves))
		want := make([]uint8, len(halves))
		for i, h := range halves {
			quotients[i] = float32(h) / 2
			q := int(math.RoundToEven(float64(h)/2)) + int(offset)
			want[i] = uint8(min(max(q, 0), 1<<bits-1))
		}
		words := make([]uint32, len(halves)*bits/32)
		packRounded(words, quotients, offset, bits)
		got := make([]uint8, len(want))
		Unpack(got, words, bits)
		require.Equal(t, want, got)
	})
}

// TestExtent compares extent with a plain loop, over any bit patterns.
func TestExtent(t *testing.T) {
	patterns := rapid.OneOf(rapid.Uint32(), rapid.SampledFrom([]uint32{
		0, 1 << 31, 1, 1<<31 | 1, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000}))
	positive, negative := uint32(0), uint32(0)
	rapid.Check(t, func(t *rapid.T) {
		switch rapid.IntRange(0, 3).Draw(t, "signs") {
		case 0:
			positive, negative = 1<<31, 0
		case 1:
			positive, negative = 0, 1<<31
		default:
			positive, negative = 0, 0
		}
		w := make([]float32, 8)
		finite := true
		lo, hi := float32(math.Inf(1)), float32(math.Inf(-1))
		for i := range w {
			w[i] = math.Float32frombits(patterns.Draw(t, "bits")&^positive | negative)
			finite = finite && isFinite(w[i])
			lo, hi = min(lo, w[i]), max(hi, w[i])
		}
		gotLo, gotHi, gotFinite := extent(w)
		require.Equal(t, finite, gotFinite)
		if finite {
			require.True(t, lo == gotLo && hi == gotHi, "%v: expected %g..%g, found %g..%g", w, lo, hi, gotLo, gotHi)
		}
	})
}
