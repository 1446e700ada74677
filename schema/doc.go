// Package schema holds the two FlatBuffers schemas of a .pte file, ExecuTorch's program (program.fbs) and
// the MLX delegate's graph (mlxgraph.fbs), and what Go's FlatBuffers library lacks to read and write them
// safely: a verifier and a checked writer.
//
// Verify walks a buffer along its schema, as the verifiers that flatc generates for C++ do. A buffer that it
// accepts can be read with the generated accessors, and unpacked with the object API, without a panic and in
// memory proportional to the buffer. What the numbers in it mean (indices, enums, sizes) is not its business.
//
// The generated Go is in schema/program, schema/mlxgraph and schema/reflection. The .fbs files are the
// source; "go generate ./schema" renews the rest (see schema/gen).
//
// This package and those below it import nothing else of the project.
package schema

//go:generate go run ./gen
