package quantize

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/ir/numeric"
)

// TestKernels compares the kernels of this processor with plain Go, bit by bit.
func TestKernels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]int{4, 8}).Draw(t, "bits")
		n := 32 * rapid.IntRange(1, 8).Draw(t, "weights/32")
		w := weights(t, n)
		lo, hi, _ := extent(w)

		wantAbove, wantBelow := patternsGeneric(w)
		above, below := patterns(w)
		require.Equal(t, wantAbove, above)
		require.Equal(t, wantBelow, below)

		// Scales that cut off codes at one end too.
		p := params{(hi - lo) / float32(int(1)<<bits) * rapid.SampledFrom([]float32{1, -1, 0.7}).Draw(t, "step"), lo}
		if p.scale < 0 {
			p.bias = hi
		}
		if p.scale == 0 {
			p.scale = 1
		}
		want, got := make([]uint32, n*bits/32), make([]uint32, n*bits/32)
		packAffineGeneric(want, w, p, bits)
		packAffine(got, w, p, bits)
		require.Equal(t, want, got)

		scale := abs(p.scale)
		packSymmetricGeneric(want, w, make([]float32, n), scale, bits)
		packSymmetric(got, w, make([]float32, n), scale, bits)
		require.Equal(t, want, got)

		limit := float32(int(1) << (bits - 1))
		var wantLanes, lanes [vectorLen]float32
		require.Equal(t, updateSumsGeneric(&wantLanes, w, scale, limit), updateSums(&lanes, w, scale, limit))
		require.Equal(t, wantLanes, lanes)

		wantLevels, levels := make([]int16, n), make([]int16, n)
		perWeight := min(60000/(hi-lo), math.MaxFloat32)
		require.Equal(t, toLevelsGeneric(wantLevels, w, lo/2+hi/2, perWeight),
			toLevels(levels, w, lo/2+hi/2, perWeight))
		require.Equal(t, wantLevels, levels)

		raw := make([]byte, 2*n)
		numeric.F32SliceToBF16(raw, w)
		offset := rapid.IntRange(0, n).Draw(t, "first")
		wantFloats, floats := make([]float32, n-offset), make([]float32, n-offset)
		numeric.BF16SliceToF32(wantFloats, raw[2*offset:])
		decodeBF16(floats, raw[2*offset:])
		require.Equal(t, wantFloats, floats)
	})
}

// TestGridKernel does so for any levels and grids.
func TestGridKernel(t *testing.T) {
	word := rapid.Int16Range(-math.MaxInt16, math.MaxInt16)
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]int{4, 8}).Draw(t, "bits")
		n := 32 * rapid.IntRange(1, 4).Draw(t, "levels/32")
		levels := rapid.SliceOfN(word, n, n).Draw(t, "levels")
		grids := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) grid {
			return grid{word.Draw(t, "m"), rapid.Int16().Draw(t, "c")}
		}), 1, 13).Draw(t, "grids")
		want, got := make([]moments, len(grids)), make([]moments, len(grids))
		gridMomentsGeneric(want, levels, grids, bits)
		gridMoments(got, levels, grids, bits)
		require.Equal(t, want, got)
	})
}
