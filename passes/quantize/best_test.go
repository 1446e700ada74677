package quantize

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/ir"
)

// groupErrors are the squared errors of the stored groups of r against w, in float64.
func groupErrors(w []float32, r *Result) []float64 {
	sums := make([]float64, len(r.Scales))
	eachError(w, r, func(g int, d float64) { sums[g] += float64(d * d) })
	return sums
}

// eachError calls f with the group and the error of every weight.
func eachError(w []float32, r *Result, f func(g int, d float64)) {
	codes := make([]uint8, len(w))
	Unpack(codes, r.Packed, r.Bits)
	for i, q := range codes {
		g := i / r.GroupSize
		f(g, float64(w[i])-float64(r.Scales[g])*float64(q)-float64(r.Biases[g]))
	}
}

// TestBestIsNoWorseThanMinMax compares group by group, up to the resolution of the search: it judges MinMax's pair
// by weights that are rounded to levels, which moves the root of a group's error by at most half a level for each
// weight, and by codes in fixed point, which for a weight near the middle of two codes may be the wrong one.
func TestBestIsNoWorseThanMinMax(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Scheme{Method: Best, Bits: rapid.SampledFrom([]int{4, 8}).Draw(t, "bits"),
			GroupSize: rapid.SampledFrom([]int{32, 64, 128}).Draw(t, "group"),
			Params:    rapid.SampledFrom([]Float{BF16, F32}).Draw(t, "params")}
		w := weights(t, 512)
		best := groupErrors(w, quantizedRapid(t, w, 256, s))
		s.Method = MinMax
		r := quantizedRapid(t, w, 256, s)
		minMax := groupErrors(w, r)
		near := 2 / float64(int(1)<<fractionBits(s.Bits)) // of a code, from the middle
		wrong := make([]float64, len(minMax))             // what wrong codes add to the error
		eachError(w, r, func(g int, d float64) {
			if scale := math.Abs(float64(r.Scales[g])); math.Abs(d) > (0.5-near)*scale {
				wrong[g] += 2 * near * scale * scale
			}
		})
		for g := range best {
			lo, hi, _ := extent(w[g*s.GroupSize:][:s.GroupSize])
			level := (float64(hi) - float64(lo)) / levelSpan
			bound := math.Sqrt(minMax[g]+wrong[g]) + math.Sqrt(float64(s.GroupSize))*level
			require.LessOrEqual(t, math.Sqrt(best[g]), bound*(1+1e-6), "group %d", g)
		}
	})
}

// TestBestGain has the root of the mean squared error of normal weights, relative to MinMax's and HQQ's.
func TestBestGain(t *testing.T) {
	const cols = 1 << 16
	w := make([]float32, cols)
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range w {
		w[i] = BF16.Round(float32(rng.NormFloat64() * 0.02))
	}
	rms := func(s Scheme) float64 {
		sum := 0.0
		for _, e := range groupErrors(w, quantized(t, w, cols, s)) {
			sum += e
		}
		return math.Sqrt(sum)
	}
	for _, c := range []struct {
		bits, group int
		want        float64 // of MinMax's error
	}{{4, 32, 0.885}, {4, 64, 0.905}, {4, 128, 0.92}, {8, 32, 0.69}, {8, 64, 0.72}, {8, 128, 0.765}} {
		t.Run(fmt.Sprintf("%d bits in groups of %d", c.bits, c.group), func(t *testing.T) {
			best := rms(Scheme{Method: Best, Bits: c.bits, GroupSize: c.group})
			require.Less(t, best, c.want*rms(Scheme{Method: MinMax, Bits: c.bits, GroupSize: c.group}))
			require.Less(t, best, rms(Scheme{Method: HQQ, Bits: c.bits, GroupSize: c.group}))
		})
	}
}

// TestBestGroups has groups that a search could trip over.
func TestBestGroups(t *testing.T) {
	const n = 32
	fill := func(f func(i int) float32) []float32 {
		w := make([]float32, n)
		for i := range w {
			w[i] = f(i)
		}
		return w
	}
	alternate := func(a, b float32) []float32 { return fill(func(i int) float32 { return []float32{a, b}[i%2] }) }
	for _, c := range []struct {
		name string
		w    []float32
		want float64 // largest error of a weight
	}{
		{"zeros", alternate(0, 0), 0},
		{"negative zeros", alternate(0, float32(math.Copysign(0, -1))), 0},
		{"constant", alternate(-1.5, -1.5), 0},
		{"two values", alternate(-0.5, 1), 0.005},
		{"two values near one", alternate(1, 1.0078125), 0.00002},
		{"a constant that bf16 has not", alternate(1.001, 1.001), 0.00002},
		{"far from zero", fill(func(i int) float32 { return 100 + float32(i)/16 }), 0.1},
		{"far below zero", fill(func(i int) float32 { return -100 - float32(i)/16 }), 0.1},
		{"one outlier", fill(func(i int) float32 { return []float32{100, 0.001}[min(i, 1)] }), 0.3},
		{"tiny", alternate(0x1p-120, -0x1p-121), 0x1p-23},
		{"small", alternate(0x1p-90, -0x1p-91), 0x1p-97},
		{"large", alternate(-0x1p120, 0x1p120), 0x1p112},
		{"largest that bf16 holds", alternate(0, 0x1.fep127), 0x1p120},
		{"multiples of a scale", fill(func(i int) float32 { return float32(i%16) - 8 }), 0.004},
	} {
		for _, bits := range []int{4, 8} {
			t.Run(fmt.Sprintf("%s/%d bits", c.name, bits), func(t *testing.T) {
				r := quantized(t, c.w, n, Scheme{Method: Best, Bits: bits, GroupSize: n})
				back := make([]float32, n)
				require.NoError(t, r.Dequantize(back))
				for i := range back {
					require.InDelta(t, float64(c.w[i]), float64(back[i]), c.want, "weight %d with scale %g and bias %g",
						i, r.Scales[0], r.Biases[0])
				}
			})
		}
	}
}

// TestSameBits has the hash of what every method makes of one matrix. It holds on every processor.
func TestSameBits(t *testing.T) {
	const rows, cols = 24, 512
	rng := rand.New(rand.NewPCG(7, 8))
	w := make([]float32, rows*cols)
	for i := range w {
		// Sums of uniform values: normal enough, and the same everywhere.
		x := -2.0
		for range 4 {
			x += rng.Float64()
		}
		w[i] = BF16.Round(float32(math.Ldexp(x, -i/cols)))
		if i/64%9 == 8 {
			w[i] += 3 // far from zero
		}
	}
	for _, c := range []struct {
		scheme Scheme
		want   string
	}{
		{Scheme{Method: MinMax, Bits: 4, GroupSize: 64}, "a23cc672a92fe81e"},
		{Scheme{Method: MinMax, Bits: 8, GroupSize: 32}, "f403e920aa288095"},
		{Scheme{Method: HQQ, Bits: 4, GroupSize: 64}, "9c55d98b8ea2235f"},
		{Scheme{Method: HQQ, Bits: 8}, "b297ff9c79d28bdf"},
		{Scheme{Method: Best, Bits: 4, GroupSize: 32}, "4fe8a22942c05cfa"},
		{Scheme{Method: Best, Bits: 4, GroupSize: 64}, "d3d453cdf6ce355f"},
		{Scheme{Method: Best, Bits: 4, GroupSize: 128}, "d2c2ae4ad0e3f8ef"},
		{Scheme{Method: Best, Bits: 8, GroupSize: 32}, "b4f6469cf421b33d"},
		{Scheme{Method: Best, Bits: 8, GroupSize: 128, Params: F32}, "2aa593f0db08dfee"},
		{Scheme{Method: MinMax, Mode: ir.MXFP4, Bits: 4, GroupSize: 32}, "df7208890e933148"},
		{Scheme{Method: Best, Mode: ir.MXFP4, Bits: 4, GroupSize: 32}, "a96837f6f4d45bf5"},
		{Scheme{Method: MinMax, Mode: ir.MXFP8, Bits: 8, GroupSize: 32}, "04bedd1f18fc088d"},
		{Scheme{Method: Best, Mode: ir.MXFP8, Bits: 8, GroupSize: 32}, "023a65f489b75f25"},
	} {
		t.Run(schemeName(c.scheme), func(t *testing.T) {
			r := quantized(t, w, cols, c.scheme)
			hash := sha256.New()
			require.NoError(t, binary.Write(hash, binary.LittleEndian, r.Packed))
			require.NoError(t, binary.Write(hash, binary.LittleEndian, r.Scales))
			require.NoError(t, binary.Write(hash, binary.LittleEndian, r.Biases))
			require.Equal(t, c.want, fmt.Sprintf("%x", hash.Sum(nil)[:8]))
		})
	}
}

// schemeName names a test.
func schemeName(s Scheme) string {
	name := fmt.Sprintf("{%s %d %d %s %d}", s.Method, s.Bits, s.GroupSize, s.Params, s.Iterations)
	if s.Mode != ir.Affine {
		name = s.Mode.String() + " " + name
	}
	return name
}

// TestGrid compares the moments with sums over codes that are computed in two rounded steps.
func TestGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]int{4, 8}).Draw(t, "bits")
		y := rapid.SliceOfN(rapid.Int16Range(-math.MaxInt16, math.MaxInt16), 32, 32).Draw(t, "levels")
		grids := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) grid {
			return grid{rapid.Int16Range(-math.MaxInt16, math.MaxInt16).Draw(t, "m"), rapid.Int16().Draw(t, "c")}
		}), 1, 5).Draw(t, "grids")
		got := make([]moments, len(grids))
		gridMoments(got, y, grids, bits)
		for i, g := range grids {
			var want moments
			for _, level := range y {
				product := int64(math.Floor(float64(level)*float64(g.m)/0x1p15 + 0.5))
				code := math.Floor(float64(product+int64(g.c)) / float64(int(1)<<fractionBits(bits)))
				q := int32(min(max(code, 0), float64(int(1)<<bits-1)))
				want.q, want.qq, want.qy = want.q+q, want.qq+q*q, want.qy+q*int32(level)
			}
			require.Equal(t, want, got[i])
		}
	})
}

// TestGridOfScale checks that a grid gives a level the nearest code, ties aside.
func TestGridOfScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]int{4, 8}).Draw(t, "bits")
		codes := float64(int(1)<<bits - 1)
		sign := rapid.SampledFrom([]float64{1, -1}).Draw(t, "sign")
		p := affine{sign * levelSpan / codes * rapid.Float64Range(0.6, 1.5).Draw(t, "step"), 0}
		p.b = -p.a * codes * rapid.Float64Range(0.4, 0.6).Draw(t, "middle")
		g, ok := p.grid(bits)
		require.True(t, ok)
		level := rapid.Int16Range(-levelSpan/2, levelSpan/2).Draw(t, "level")
		var got [1]moments
		gridMoments(got[:], []int16{level}, []grid{g}, bits)
		exact := min(max((float64(level)-p.b)/p.a, 0), codes)
		require.InDelta(t, exact, float64(got[0].q), 0.52)
	})
	for _, p := range []affine{{0, 0}, {1, 0}, {0.1, 0}, {4000, 1e9}, {math.NaN(), 0}, {4000, math.Inf(1)}} {
		_, ok := p.grid(4)
		require.False(t, ok, "%v", p)
	}
}
