package numeric

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	inf     = math.Inf(1)
	nan     = math.NaN()
	zero    = 0.0
	negZero = math.Copysign(0, -1)
)

const least = math.SmallestNonzeroFloat64

// sameBits also compares the signs of zeros and requires the canonical NaN.
func sameBits(t *testing.T, want, got float64, format string, args ...any) {
	t.Helper()
	if math.Float64bits(want) != math.Float64bits(got) {
		t.Errorf("want %x, got %x: %s", want, got, fmt.Sprintf(format, args...))
	}
}

func TestSpecialArguments(t *testing.T) {
	signallingNaN := math.Float64frombits(0xfff0_0000_0000_0001)
	odd := []float64{zero, zero, negZero, negZero, least, least, -least, -least} // f(x) = x
	cases := map[string][]float64{                                               // argument, result, argument, result, ...
		"Exp": {zero, 1, negZero, 1, inf, inf, -inf, 0, 710, inf, -746, 0, math.MaxFloat64, inf, -math.MaxFloat64, 0,
			0x1.62e42fefa39efp9, 0x1.fffffffffff2ap1023, 0x1.62e42fefa39fp9, inf, -0x1.74910d52d3051p9, least,
			-0x1.74910d52d3052p9, 0},
		"Expm1": append(odd, inf, inf, -inf, -1, 710, inf, -math.MaxFloat64, -1),
		"Log":   {zero, -inf, negZero, -inf, 1, 0, inf, inf, -1, nan, -inf, nan, -least, nan},
		"Log1p": append(odd, -1, -inf, inf, inf, -1.5, nan, -inf, nan),
		"Log2": {zero, -inf, negZero, -inf, 1, 0, inf, inf, -1, nan, -inf, nan, 8, 3, 0.5, -1,
			least, -1074, 0x1p1023, 1023},
		"Log10": {zero, -inf, negZero, -inf, 1, 0, inf, inf, -1, nan, -inf, nan, 10, 1, 1000, 3, 1e22, 22},
		"Sin":   append(odd, inf, nan, -inf, nan),
		"Cos":   {zero, 1, negZero, 1, least, 1, inf, nan, -inf, nan},
		"Tan":   append(odd, inf, nan, -inf, nan),
		"Asin":  append(odd, 1, math.Pi/2, -1, -math.Pi/2, 1.5, nan, -1.5, nan, inf, nan, -inf, nan),
		"Acos": {1, 0, -1, math.Pi, zero, math.Pi / 2, negZero, math.Pi / 2, least, math.Pi / 2, 1.5, nan, -1.5,
			nan, inf, nan, -inf, nan},
		"Atan": append(odd, inf, math.Pi/2, -inf, -math.Pi/2, math.MaxFloat64, math.Pi/2, 1,
			math.Pi/4, -1, -math.Pi/4),
		"Sinh":  append(odd, inf, inf, -inf, -inf, 711, inf, -711, -inf),
		"Cosh":  {zero, 1, negZero, 1, least, 1, inf, inf, -inf, inf, -711, inf},
		"Tanh":  append(odd, inf, 1, -inf, -1, 25, 1, -25, -1),
		"Asinh": append(odd, inf, inf, -inf, -inf),
		"Acosh": {1, 0, inf, inf, 0.5, nan, -inf, nan, negZero, nan},
		"Atanh": append(odd, 1, inf, -1, -inf, 1.5, nan, -1.5, nan, inf, nan, -inf, nan),
		"Erf":   append(odd[:4:4], inf, 1, -inf, -1, 6, 1, -6, -1),
	}
	for _, f := range functions {
		t.Run(f.name, func(t *testing.T) {
			require.Contains(t, cases, f.name)
			for c := cases[f.name]; len(c) > 0; c = c[2:] {
				sameBits(t, c[1], f.f(c[0]), "%s(%g)", f.name, c[0])
			}
			for _, x := range []float64{nan, -nan, signallingNaN} {
				sameBits(t, nan, f.f(x), "%s of a NaN", f.name)
			}
		})
	}
}

// TestSpecialPairs takes every pair of notable arguments: where the result
// follows from C99's special cases, which Go's own functions implement, and not
// from rounding, ours must agree to the bit.
func TestSpecialPairs(t *testing.T) {
	notable := []float64{zero, negZero, 1, -1, inf, -inf, nan, 2, -2, 3, -3, 0.5, -0.5, 1.5, -1.5, least, -least,
		math.MaxFloat64, -math.MaxFloat64, 0x1p53, -0x1p53, 0x1p53 - 1, 1 - 0x1p-53, -1 - 0x1p-52}
	isSpecial := func(z float64) bool {
		return z != z || z == 0 || math.IsInf(z, 0) || math.Abs(z) == 1
	}
	canonical := func(z float64) float64 {
		if z != z {
			return nan
		}
		return z
	}
	compared := 0
	for _, x := range notable {
		for _, y := range notable {
			if want := math.Pow(x, y); isSpecial(want) {
				sameBits(t, canonical(want), Pow(x, y), "Pow(%g, %g)", x, y)
				compared++
			}
			if want := math.Atan2(x, y); want != want || math.IsInf(x, 0) || math.IsInf(y, 0) || x == 0 || y == 0 {
				sameBits(t, canonical(want), Atan2(x, y), "Atan2(%g, %g)", x, y)
				compared++
			}
		}
	}
	require.Greater(t, compared, 500)
}

func TestExactPowers(t *testing.T) {
	for _, base := range []float64{2, 3, 5, 7, 10, 1.5, -2, -3, -1.25} {
		product := 1.0
		for n := 0; ; n++ {
			if exactly := mul(exact(product), exact(base)); exactly.MinPrec() > 53 || exactly.MantExp(nil) > 1024 {
				break
			}
			sameBits(t, product, Pow(base, float64(n)), "Pow(%g, %d)", base, n)
			product *= base
		}
	}
	sameBits(t, 0x1p-1074, Pow(2, -1074), "least subnormal")
	sameBits(t, 0, Pow(2, -1076), "underflow")
	sameBits(t, -0x1p-1073, Pow(-2, -1073), "negative subnormal")
	sameBits(t, 1e22, Pow(10, 22), "largest exact power of ten")
	sameBits(t, 3, Pow(9, 0.5), "square root")
}

// TestHugeAngles takes the arguments that are hardest to reduce: the float64
// nearest to a multiple of pi/2 (Kahan and McDonald; J.-M. Muller, Elementary
// Functions, section 11.2) and the largest ones.
func TestHugeAngles(t *testing.T) {
	for _, x := range []float64{
		6381956970095103 * 0x1p797, // within 2^-60.9 of a multiple of pi/2
		math.MaxFloat64, 0x1p1023, 1e22, 0x1p26, math.Nextafter(0x1p26, inf), 0x1p200, 1e300,
		math.Pi / 2, math.Pi, 3 * math.Pi / 2, 2 * math.Pi, 1e6 * math.Pi, math.Pi / 4, 3 * math.Pi / 4,
	} {
		for _, signed := range []float64{x, -x} {
			for _, f := range functions {
				if f.name == "Sin" || f.name == "Cos" || f.name == "Tan" {
					require.LessOrEqual(t, ulpsFrom(f.f(signed), f.oracle(exact(signed))), f.ulps,
						"%s(%g)", f.name, signed)
				}
			}
			sin, cos := Sincos(signed)
			sameBits(t, Sin(signed), sin, "Sincos(%g)", signed)
			sameBits(t, Cos(signed), cos, "Sincos(%g)", signed)
		}
	}
}

// TestBranchBorders takes the neighbours of every argument at which a function
// changes its method.
func TestBranchBorders(t *testing.T) {
	borders := []float64{0x1p-1022, 0x1p-900, 0x1p-60, 0x1p-54, 0x1p-29, 0x1p-28, 0x1p-27, 1.0 / 256,
		1.0 / 32, 1.0 / 16, 0.375, 0.5,
		math.Sqrt2 / 2, 1 - 1.0/16, 1, 1 + 1.0/256, 1 + 1.0/16, math.Sqrt2, 2, 5.96875, 20, 40, 42, 708.4, 709.7,
		0x1p26, 0x1p60, 0x1p1023}
	for _, f := range functions {
		for _, border := range borders {
			for _, x := range []float64{border, -border, math.Nextafter(border, 0), -math.Nextafter(border, 0),
				math.Nextafter(border, inf), -math.Nextafter(border, inf)} {
				got := f.f(x)
				if got == 0 || math.IsNaN(got) || math.IsInf(got, 0) {
					continue // TestSpecialArguments says where
				}
				if math.Abs(got) == 1 && math.Abs(x) > 5 {
					continue // Erf, Expm1 and Tanh at their limit, where the oracle is slow
				}
				ulps := ulpsFrom(got, f.oracle(exact(x))) - subnormalAllowance(got)
				require.LessOrEqual(t, ulps, f.ulps, "%s(%x) = %x", f.name, x, got)
			}
		}
	}
}
