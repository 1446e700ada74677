// Package eval is the reference semantics of every operation of the IR, in plain Go: what an
// operation computes, in which order it rounds, and which arguments it refuses. Every other engine is
// tested against it.
//
// A [Tensor] is dense and row-major. Floating-point elements are held as float32 whatever the dtype,
// integers and bools as int64. Three precisions exist ([Precision]):
//
//   - FP32: no float is rounded below float32, mutable buffers included.
//   - Mixed: as FP32, but a value written to a buffer is rounded to the buffer's dtype.
//   - Strict: every result is rounded to the dtype that MLX would give it.
//
// Tensors are values: a kernel never writes to its arguments. It may return an argument's storage
// (reshape does); [Machine] copies where an in-place buffer update could be seen through such an alias.
//
// Answers are the same on every OS and CPU: products that feed sums are written float32(x*y), so that
// no compiler fuses them, and transcendental functions come from package numeric.
//
// Package eval imports ir, ir/numeric and internal/fault and must never import passes, runtime or loaders.
package eval
