// Package numeric holds the arithmetic that reference answers, exported
// constants and sampled tokens depend on: conversions between float32 and the
// 16-bit float formats, elementary functions, and MLX's counter-based random
// bits.
//
// # Invariants
//
// Every function returns the same bits on every operating system and CPU. Go's
// own math package does not promise that: Exp, Log and others are assembly on
// some architectures, and the compiler may fuse x*y+z into one rounding on
// arm64, loong64, ppc64le, riscv64, s390x and amd64 from level v3 on. The code
// here therefore
//
//   - uses only +, -, *, /, comparisons, conversions, integer operations and, of
//     package math, functions whose result is exact or, as Sqrt and FMA, rounded
//     once by definition;
//   - writes every product as float64(x*y) or float32(x*y), which the language
//     specification says forces a rounding (a test checks this rule on the
//     source);
//   - never calls a transcendental function of package math.
//
// A NaN that a function computes or passes on is the canonical quiet NaN of
// package math, since IEEE 754 leaves the sign and payload of a computed NaN
// open; only the conversions of halffloat.go keep both.
//
// The float64 functions state their error bounds, all below one ulp; tests
// measure them against series summed in arbitrary precision. The float32
// functions round those results once more.
//
// No function allocates unless its result is a new slice, and all are safe for
// concurrent use.
//
// # Imports
//
// The package imports the standard library only, and nothing else of this
// module, so that every layer may use it.
package numeric
