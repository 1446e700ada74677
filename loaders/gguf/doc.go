// Package gguf reads GGUF files, the format of llama.cpp: metadata, and tensors as floats or as the weights of MLX's
// forms that they equal.
//
// The format is that of ggml's gguf.h, versions 2 and 3 in little-endian order, in one file or split into shards
// (NAME-00001-of-00003.gguf). Of a tensor's element types it reads F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K, Q5_K,
// Q6_K and MXFP4, whose blocks are those of ggml-common.h.
//
// # Invariants
//
//   - Bad input gives a [*FormatError] that names file, place, what was expected and what was found. Nothing is
//     allocated that the file's own size does not bound, and metadata has a limit of its own.
//   - Tensors stay in the file until they are read, a block at a time; memory does not grow with them.
//   - What [Tensor.Carried] gives has exactly the values that ggml's reference dequantization gives, in float32.
//   - Shapes are in the order of PyTorch, the reverse of ggml's: the last dim is that of neighbours in memory.
//
// What a model's tensors are called, and what its converter did to them, is known to the model's builder.
// Package gguf imports ir and loaders/builder and must never import passes, codegen or runtime.
package gguf
