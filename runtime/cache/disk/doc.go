// Package disk keeps what a prefix cache evicts in a folder: blocks and checkpoints of sequences, as bytes under names.
//
//   - A name says what the content is of, so a content is written once and never changed.
//   - A file is whole or not there. A damaged one is found by its checksum and removed.
//   - The files have no more bytes than the limit, apart from those that are still to be written; the longest unused
//     goes first.
//   - Only the owner can read the files: what a cache holds is what was said.
//
// The package imports internal/outfile alone and must never import an engine.
package disk
