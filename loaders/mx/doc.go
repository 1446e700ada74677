// Package mx reads the weights of checkpoints in MX formats that tools other than mlx-lm wrote. Codes are e2m1, two
// to a byte, the first in the lower half. Each group of columns in a row has a scale of one byte. It reads, for a
// matrix X [..., N, K],
//
//   - gpt-oss's form (quant_method mxfp4): X_blocks [..., N, K/32, 16] and X_scales [..., N, K/32];
//   - compressed-tensors' mxfp4-pack-quantized: X_packed [..., N, K/2] and X_scale [..., N, K/32];
//   - compressed-tensors' nvfp4-pack-quantized: the same with a scale e4m3 for each group of 16, [..., N, K/16], and
//     X_global_scale f32 [1], by which scales are divided.
//
// # Invariants
//
//   - Codes are handed on unchanged: read as 32-bit words, lowest byte first, they are the words that MLX packs. So are
//     scales, but for the case below.
//   - A global scale has no place in the nodes that multiply. It goes into the scales of the groups where it is a
//     power of two and every scale stays exact; else the checkpoint is refused, with this reason.
//
// Package mx imports loaders/builder and loaders/huggingface and must never import passes, codegen or runtime.
package mx
