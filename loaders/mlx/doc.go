// Package mlx reads the quantized weights of checkpoints that mlx-lm wrote: for a module X the tensors
// X.weight (packed codes, u32), X.scales and X.biases, described by the section quantization (and, the same
// again, quantization_config) of config.json with bits and group_size for all modules and exceptions by module.
//
// # Invariants
//
//   - Codes, scales and biases are handed on as they are; nothing is decoded.
//   - A module is quantized if it has scales, which is mlx-lm's own rule; what config.json says of it must agree
//     with the shapes, or the error names the tensor.
//   - Modes are affine, mxfp4, mxfp8 and nvfp4; the latter three have scales of a byte and no biases. Other modes and
//     other quantizers are refused by name.
//
// Package mlx imports loaders/builder and loaders/huggingface and must never import passes, codegen or runtime.
package mlx
