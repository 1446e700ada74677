// Package codegen writes a lowered module as an ExecuTorch .pte for the MLX delegate: it gives every
// value a slot, encodes the operations as delegate nodes ([Encode]) and streams the program and the
// bytes of the constants to a file ([Write]).
//
// # Invariants
//
//   - Instructions keep the order of the module. The numbers of slots, chains and constants are a pure
//     function of the module, so the same module gives the same bytes.
//   - Offsets are known from shapes before any weight is read. Weights then stream through a bounded
//     pool of workers; memory does not grow with the checkpoint, bytes do not depend on the workers.
//   - A file appears under its name only when it is whole.
//   - Lifting what has been written gives the module that was written.
//   - Every entry of a module is a method with a delegate of its own, whose graph has the constants, the buffers and
//     the part of init that it needs ([ir.Module.Parts]). A weight that several need is stored once; a buffer of the
//     same name in several graphs is one buffer (ExecuTorch's runtime gives each method its own).
//
// A module must be legal for the wire before it comes here: no composite operations, and the copies
// that If and Scan need (passes/legalize.go makes it so; [Encode] refuses what is not).
//
// Package codegen imports ir and schema and must never import passes, loaders or runtime.
package codegen
