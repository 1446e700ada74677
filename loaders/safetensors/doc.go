// Package safetensors reads and writes safetensors files and opens sharded checkpoints.
//
// The format (https://github.com/huggingface/safetensors, section "Format"): 8 bytes with the header's
// length as a little-endian integer, a JSON header that gives each tensor's dtype, shape and byte range,
// then the tensors' bytes, little-endian and row-major, without gaps.
//
// # Invariants
//
//   - A [File] that was opened has a header that is right in full: every dtype is known, every tensor's
//     shape fits its byte range, and the ranges cover the data part exactly once, up to the end of the file.
//     Nothing needs checking when a tensor is read.
//   - Tensor bytes are read by position (pread) into the caller's buffer. No file is mapped and no tensor is
//     held in memory, so a 67 GB checkpoint costs its headers.
//   - A header larger than [MaxHeaderBytes] is refused before it is read.
//   - Names of shards in an index are plain file names: an index cannot reach outside its directory.
//   - What [Write] writes is a pure function of the tensors and the metadata, whatever their order, and equals
//     what the reference implementation writes for them.
//
// Bad input gives a [*FormatError]; errors of the operating system are passed on with the file's name.
// All reading methods may be called from several goroutines.
//
// Package safetensors imports the standard library only, and nothing else of etc.
package safetensors
