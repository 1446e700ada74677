// Package kernel holds the inner loops of the CPU engine: products of stored matrices with activations, and
// operations on vectors.
//
// # Levels
//
// Every kernel is written in plain Go, level "generic", which defines its result, and for some levels of
// CPU in assembly that gen writes. The best level that the CPU has is chosen at start; SetLevel forces one.
// Levels differ in the order of float32 additions and in fused multiplications, so results differ by
// rounding: sums of products by at most 1e-5·Σ|x·w|, elementary functions by 4 ulp. Integer sums and
// roundings to 8 bits and to bfloat16 are the same everywhere.
//
// # Invariants
//
//   - At one level the result of a row depends on the row and the activations alone: not on the range of
//     rows of the call, nor on the number of threads.
//   - Weights are read where they are, at any alignment, without a copy; a panel of some rows is unpacked
//     for products with many vectors, and rows of small floats are expanded, some at a time (smallfloat.go).
//   - Exported functions check lengths and panic when they do not fit: that is a mistake of the caller,
//     who has checked the file. Code behind them trusts its arguments. Nothing reads outside the slices
//     given.
//   - Nothing allocates, except Activations that grow, and memory for rows that are expanded when more calls than
//     ever run at once.
//
// # Imports
//
// The standard library and golang.org/x/sys/cpu; nothing else of this module.
package kernel
