// Package prompt makes a model's prompt of a text or a conversation, and text of the model's tokens, by what a
// program's file carries: its tokenizer, its chat template, the tokens that end an answer, and the defaults of
// sampling.
//
// # Invariants
//
//   - What people write names no token that steers the model: in a conversation the names of special tokens are text. A
//     raw prompt is parsed, because that is asked for.
//   - Errors are of the kinds of internal/kind: what was asked for, or what the file holds.
//
// The command line and the library stand on it. Package prompt must never import an engine or the command line.
package prompt
