// Package cache keeps computed weights in a directory, so that a second export computes only what has changed.
//
// An entry is a block of a computation ([ir.Blocked]) under a name that is a hash of everything that its bytes follow
// from: the version of the tool, the provenance of the computation, the content of the data that it reads, the number
// of the block. Nothing has to be told when a flag or a checkpoint changes: other blocks have other names.
//
// # Invariants
//
//   - An entry ends with a SHA-256 of its bytes and its name; one that does not agree is removed and computed again.
//   - Entries are written aside and renamed: a reader sees whole ones only, in any number of processes.
//   - The size of the directory is bounded; what has not been used for the longest time goes first.
//   - A cache never makes an export fail: where the directory cannot be written, nothing is kept.
//
// Package cache imports ir only.
package cache
