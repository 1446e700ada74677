// Package evaluate measures how well a program answers: questions with exact answers, perplexity of a text,
// and the Kullback-Leibler divergence from another program.
//
// # Invariants
//
//   - A figure is a function of the program, the input and the options, never of the machine: logarithms and
//     exponentials are those of ir/numeric, sums are taken in float64 in a fixed order.
//   - Every question and every window of a text starts from an empty context.
//   - What does not fit the context or the vocabulary is an error before anything runs.
//
// Package evaluate imports runtime/session and ir/numeric; it must never import an engine, a tokenizer or the
// command line.
package evaluate
