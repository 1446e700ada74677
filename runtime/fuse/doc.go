// Package fuse makes fused operations of lifted graphs: the projections, attention, state updates and
// mixtures of experts that an engine has kernels for, out of the many nodes that they are in a file. It
// goes by what the nodes compute, not by names or by who wrote the file.
//
// # Invariants
//
//   - The given module is not changed; the result shares its constants and buffers.
//   - The result is valid for precisions fp32 and mixed, where casts between floats round nothing. Values
//     keep their dtypes, so that the verifier can check every step.
//   - With them it computes the same, up to the order of sums and products. Where a file's operation gives
//     an answer for inputs without a meaning (a position outside of a cache) a fused one may give an error.
//   - What matches no pattern stays as it is.
//
// Package fuse imports ir, ir/eval and passes; it must never import an engine or read a file.
package fuse
