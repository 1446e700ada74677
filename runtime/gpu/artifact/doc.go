// Package artifact has what the caches of compiled kernels, of tuning and of self-tests do alike: where files lie, what
// they are named after, and how they are written.
//
// # Invariants
//
//   - A name is the hash of all that the content depends on, so that a file is never changed, only made again.
//   - A file is written aside and put in place whole.
//
// It imports nothing of ours, and must never know what is kept.
package artifact
