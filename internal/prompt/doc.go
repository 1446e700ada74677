// Package prompt converts text and conversations to a model's tokens and back, with what a program's file holds for
// that: the tokenizer, the chat template, the tokens that end an answer, and the sampling defaults.
//
// # Invariants
//
//   - Text that people write never becomes a control token: in a conversation the names of special tokens are plain
//     text. A raw prompt is parsed, because the user asks for that.
//   - Errors have the kinds of internal/kind: a wrong request, or an invalid file.
//
// The command line and the library use it. Package prompt must never import an engine or the command line.
package prompt
