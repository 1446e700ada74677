// Package prequantized reads the bundles that ExecuTorch's quantize_and_save scripts write (examples/models/qwen3_5_moe
// and gemma4_31b): a directory with config.json, tokenizer files and one model.safetensors whose tensors are torchao's
// tensor subclasses taken apart (torchao/prototype/safetensors): for a weight M.W the tensors M._W_qdata, M._W_scale
// and M._W_zero_point, described by JSON under the name of the weight in the file's metadata.
//
// Two subclasses are read, those that the scripts write for the MLX and the portable path: Int4Tensor (codes of 4 bits,
// two a byte, scales and zero points [K/group, N]) and IntxUnpackedToInt8Tensor (a signed byte a code, [N, K/group]).
// Both say w = (code - zero)·scale, which MLX's form holds as scale·code + bias.
//
// # Invariants
//
//   - Codes and scales are those of the bundle. Biases are -scale·(zero + offset), rounded to the dtype of the scales
//     as ExecuTorch's exporter does it.
//   - Other subclasses, those packed for CUDA among them, are refused by name.
//
// Package prequantized imports ir and loaders/builder and must never import passes, codegen or runtime.
package prequantized
