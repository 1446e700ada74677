// Package statefile writes the states of programs to files and reads them back: conversations, which etc run and the
// library keep ([WriteSession]), and states of prefixes, which etc serve keeps ([Slots]).
//
// # Invariants
//
//   - A state belongs to one program, one precision and one form of the state. Reading checks all three, and a checksum
//     of the content.
//   - Files hold what was said, so only their owner can read them.
//   - A file appears under its name only when it is whole.
//   - Errors have the kinds of internal/kind: a wrong request, or an invalid file.
//
// Package statefile must never import an engine or the command line.
package statefile
