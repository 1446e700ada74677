// Package bench measures how fast a language model runs, in the terms of llama-bench: ppN is the prefill of
// a prompt of N tokens, tgN is the generation of N tokens one by one, from an empty
// context or, with a depth, after so many tokens.
//
// # Invariants
//
//   - Every shape is run once, unmeasured, in the same process before it is measured: weights are read,
//     kernels are chosen and compiled, memory is allocated (requirement E10).
//   - Every measured call is waited for: a session hands out results on the host.
//   - Prompts are pseudo-random but the same in every run, on every device. Generation begins with such a token and
//     goes on with those that the program gives, stop tokens too, as an answer does: an engine may begin the next
//     call before the host has the token.
//   - A figure comes with its spread; the median stands for a row, never the best.
//
// Package bench imports runtime/session and runtime/batch; it must never import an engine or the command line.
package bench
