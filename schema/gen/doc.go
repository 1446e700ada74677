// Command gen regenerates everything in schema/ that is made from the .fbs files: the Go of the ExecuTorch
// program and of the MLX delegate graph (with the object API), the Go of FlatBuffers' own reflection schema,
// and the binary schemas that the verifier reads.
//
// It compiles flatc with g++ from the flatbuffers module in Go's module cache, so that the compiler and the
// runtime library are always of one version, and keeps it under the user's cache directory. The test of this
// package generates into a temporary folder and compares with what is checked in.
//
// Run it as "go generate ./schema" from the project's root. Nothing imports it.
package main
