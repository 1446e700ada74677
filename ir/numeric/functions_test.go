package numeric

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

var points = flag.Int("points", 400, "random arguments per function and range in the accuracy test")

// interval is a set of arguments: between low and high evenly, or with
// evenly distributed exponents and random signs.
type interval struct {
	low, high   float64
	logarithmic bool
	signed      bool
}

func (v interval) draw(r *rand.Rand) float64 {
	if !v.logarithmic {
		return v.low + r.Float64()*(v.high-v.low)
	}
	x := math.Exp2(math.Log2(v.low) + r.Float64()*(math.Log2(v.high)-math.Log2(v.low)))
	x *= 1 + r.Float64()*0x1p-10
	if v.signed && r.IntN(2) == 0 {
		return -x
	}
	return x
}

func evenly(low, high float64) interval { return interval{low: low, high: high} }
func upTo(high float64) interval        { return interval{0x1p-1060, high, true, true} }
func around(low, high float64) interval { return interval{low, high, true, true} }
func positive(low, high float64) []interval {
	return []interval{{low, high, true, false}}
}

// function is an entry of the table that all tests of the elementary functions
// run over.
type function struct {
	name      string
	f         func(float64) float64
	oracle    func(real) real
	reference func(float64) float64 // of package math
	arguments []interval
	ulps      float64 // the error bound that the documentation gives
}

func sinOracle(x real) real { s, _ := bigSinCos(x); return s }
func cosOracle(x real) real { _, c := bigSinCos(x); return c }
func tanOracle(x real) real { s, c := bigSinCos(x); return quo(s, c) }

var angles = []interval{evenly(-7, 7), evenly(-1e5, 1e5), around(0x1p-30, 0x1p26), around(0x1p26, 0x1p1022)}

var functions = []function{
	{"Exp", Exp, bigExp, math.Exp, []interval{evenly(-708, 709.7), evenly(-1, 1), upTo(1)}, 0.51},
	{"Expm1", Expm1, bigExpm1, math.Expm1, []interval{evenly(-45, 709.7), evenly(-1, 1), upTo(1)}, 0.55},
	{"Log", Log, bigLog, math.Log, append(positive(0x1p-1074, 0x1p1023), evenly(0.9, 1.1), evenly(0.01, 4)), 0.6},
	{"Log1p", Log1p, bigLog1p, math.Log1p, append(positive(0x1p-60, 0x1p1023), evenly(-1, 1), upTo(1)), 0.51},
	{"Log2", Log2, func(x real) real { return quo(bigLog(x), ln2()) }, math.Log2,
		append(positive(0x1p-1074, 0x1p1023), evenly(0.9, 1.1), evenly(0.01, 4)), 0.51},
	{"Log10", Log10, func(x real) real { return quo(bigLog(x), bigLog(integer(10))) }, math.Log10,
		append(positive(0x1p-1074, 0x1p1023), evenly(0.9, 1.1), evenly(0.01, 4)), 0.51},
	{"Sin", Sin, sinOracle, math.Sin, angles, 0.75},
	{"Cos", Cos, cosOracle, math.Cos, angles, 0.75},
	{"Tan", Tan, tanOracle, math.Tan, angles, 0.9},
	{"Asin", Asin, bigAsin, math.Asin, []interval{evenly(-1, 1), evenly(0.999, 1), upTo(1)}, 0.52},
	{"Acos", Acos, bigAcos, math.Acos, []interval{evenly(-1, 1), evenly(0.999, 1), evenly(-1, -0.999), upTo(1)}, 0.52},
	{"Atan", Atan, bigAtan, math.Atan, []interval{evenly(-3, 3), upTo(0x1p1023)}, 0.52},
	{"Sinh", Sinh, bigSinh, math.Sinh, []interval{evenly(-710, 710), evenly(-2, 2), upTo(1)}, 0.55},
	{"Cosh", Cosh, bigCosh, math.Cosh, []interval{evenly(-710, 710), evenly(-2, 2), upTo(1)}, 0.55},
	{"Tanh", Tanh, bigTanh, math.Tanh, []interval{evenly(-25, 25), evenly(-2, 2), upTo(1)}, 0.52},
	{"Asinh", Asinh, bigAsinh, math.Asinh, []interval{evenly(-9, 9), upTo(0x1p1023)}, 0.51},
	{"Acosh", Acosh, bigAcosh, math.Acosh, append(positive(1, 0x1p1023), evenly(1, 1.01), evenly(1, 9)), 0.51},
	{"Atanh", Atanh, bigAtanh, math.Atanh, []interval{evenly(-1, 1), evenly(0.999, 1), upTo(1)}, 0.51},
	{"Erf", Erf, bigErf, math.Erf, []interval{evenly(-6, 6), evenly(-0.2, 0.2), upTo(1)}, 0.55},
}

// ulpsFrom is |got - want| in units of the last place of want.
func ulpsFrom(got float64, want real) float64 {
	if rounded := nearest(want); math.IsInf(rounded, 0) || math.IsInf(got, 0) || math.IsNaN(got) {
		if got == rounded {
			return 0
		}
		return math.Inf(1)
	}
	if want.Sign() == 0 {
		if got == 0 {
			return 0
		}
		return math.Inf(1)
	}
	ulp := max(want.MantExp(nil)-53, -1074)
	difference := sub(exact(got), want)
	return math.Abs(nearest(shift(difference, -ulp)))
}

// subnormalAllowance is the part of an error in ulps that a second rounding, to
// a subnormal number, may add.
func subnormalAllowance(got float64) float64 {
	if math.Abs(got) < 0x1p-1021 {
		return 0.5
	}
	return 0
}

func TestAccuracy(t *testing.T) {
	for _, f := range functions {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			worst, at := 0.0, 0.0
			for _, in := range f.arguments {
				for range *points {
					x := in.draw(r)
					ulps := ulpsFrom(f.f(x), f.oracle(exact(x))) - subnormalAllowance(f.f(x))
					if ulps > worst {
						worst, at = ulps, x
					}
					// Loose, and not for subnormals, since Go's own Acos loses digits
					// near 1 and its Log for amd64 is wrong for subnormals.
					reference := f.reference(x)
					if math.Abs(x) >= 0x1p-1022 && math.Abs(f.f(x)-reference) > 1e-7*math.Abs(reference) {
						t.Errorf("%s(%g) = %g, package math has %g", f.name, x, f.f(x), reference)
					}
				}
			}
			t.Logf("largest error %.4f ulp at %g", worst, at)
			require.LessOrEqual(t, worst, f.ulps, "%s(%g) = %g", f.name, at, f.f(at))
		})
	}
}

func TestAccuracyOfTwoArguments(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	type sample struct{ a, b float64 }
	draw := func(a, b interval) (out []sample) {
		for range *points {
			out = append(out, sample{a.draw(r), b.draw(r)})
		}
		return out
	}
	anything := upTo(0x1p1023)
	t.Run("Atan2", func(t *testing.T) {
		samples := append(draw(evenly(-3, 3), evenly(-3, 3)), draw(anything, anything)...)
		for _, scale := range []float64{0x1p-1050, 1, 0x1p1000} {
			for _, s := range draw(evenly(-3, 3), around(0x1p-12, 0x1p12)) {
				samples = append(samples, sample{s.a * scale, s.b * scale})
			}
		}
		worst := 0.0
		for _, s := range samples {
			ulps := ulpsFrom(Atan2(s.a, s.b), bigAtan2(exact(s.a), exact(s.b)))
			require.LessOrEqual(t, ulps, 0.52, "Atan2(%g, %g)", s.a, s.b)
			worst = max(worst, ulps)
		}
		t.Logf("largest error %.4f ulp", worst)
	})
	t.Run("Pow", func(t *testing.T) {
		samples := draw(evenly(0, 20), evenly(-200, 200))
		samples = append(samples, draw(interval{0x1p-1070, 0x1p1023, true, false}, around(0x1p-20, 2))...)
		samples = append(samples, draw(evenly(0.999, 1.001), evenly(-7e5, 7e5))...)
		for _, s := range draw(evenly(-50, 0), evenly(-60, 60)) {
			samples = append(samples, sample{s.a, math.Round(s.b)})
		}
		worst := 0.0
		for _, s := range samples {
			got := Pow(s.a, s.b)
			ulps := ulpsFrom(got, bigPow(exact(s.a), exact(s.b))) - subnormalAllowance(got)
			require.LessOrEqual(t, ulps, 0.55, "Pow(%g, %g)", s.a, s.b)
			worst = max(worst, ulps)
		}
		t.Logf("largest error %.4f ulp", worst)
	})
}
