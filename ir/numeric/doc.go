// Package numeric holds the arithmetic that reference answers, exported
// constants and sampled tokens depend on: conversions between float32 and the
// 16-bit float formats, transcendental functions, and MLX's counter-based
// random bits.
//
// # Invariants
//
// Every function returns the same bits on every operating system and CPU. Go's
// own math package does not promise that: Exp, Log and others are assembly on
// some architectures, and the compiler may fuse x*y+z into one rounding on
// arm64, ppc64le, riscv64 and s390x. The code here therefore
//
//   - uses only +, -, *, /, comparisons, conversions, integer operations and the
//     correctly rounded math.Sqrt, all of which IEEE 754 defines to the bit;
//   - writes each product that feeds an addition as float64(x*y) or
//     float32(x*y), which the language specification says forces a rounding;
//   - never calls a transcendental function of package math.
//
// The one exception is the payload and sign of a NaN that arithmetic produces,
// which IEEE 754 leaves open; functions that return a NaN of their own return
// the canonical quiet NaN of the math package.
//
// No function allocates unless its result is a new slice, and all are safe for
// concurrent use.
//
// # Imports
//
// The package imports the standard library only, and nothing else of this
// module, so that every layer may use it.
package numeric
