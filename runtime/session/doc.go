// Package session drives a language model program: it recognises the forms of forward that exporters
// write, prefills prompts in chunks that the program can take, decodes token by token, keeps the seed
// schedule, and samples on the host where the program gives logits.
//
// # Invariants
//
//   - A session owns its state. Sessions of one model never see each other's.
//   - What a parameter cannot do is an error before anything runs, never ignored.
//   - The token at position p of a session depends on the tokens before it, the parameters and the seed,
//     not on how the prompt was cut into chunks.
//
// Package session imports ir, runtime/engine and runtime/program; it must never import an engine, a
// tokenizer or the command line.
package session
