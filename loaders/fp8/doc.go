// Package fp8 reads the weights of checkpoints in 8-bit floating point with a scale for every block, as Qwen and others
// publish them: quant_method "fp8" in config.json, matrices in E4M3 (Micikevicius et al., FP8 Formats for Deep
// Learning, 2022), and beside each a tensor of scales whose name ends with "_scale_inv".
//
// # Invariants
//
//   - A weight is float32(code·scale): the product of two float32 numbers, rounded once.
//   - Weights stay lazy: neither codes nor values of a matrix are ever in memory as a whole.
//   - A matrix in E4M3 without scales, or with scales of another shape than its blocks ask for, is an error that
//     names it.
//
// Package fp8 imports ir, loaders/builder and loaders/huggingface, and must never import passes, codegen or runtime.
package fp8
