// Package diff tells what differs between two .pte files: methods, constant methods, metadata, graphs and
// weights.
//
// # Invariants
//
//   - What is compared is meaning, not layout: the order of constants, the numbers of values and symbols, the
//     prefix that ExecuTorch gives the names of a delegate make no difference. Two files without a difference
//     compute the same.
//   - A weight is one thing however it is stored: codes, scales and biases are compared as the weight that
//     they stand for, with another quantization of it or with its dense form.
//   - Memory is bounded by the largest row of a weight and by the biases that an init chain derives, not by
//     the size of the files.
//
// Package diff imports ir and the reading half of the runtime; it must never import an engine, codegen or the
// command line.
package diff
