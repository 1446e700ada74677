// Package serving measures a server of OpenAI's completions as its clients see it: the time until the first part of an
// answer, the time between the parts, and tokens per second, with so many streams at a time.
//
// # Invariants
//
//   - Requests are bounded in number, and no more run at a time than were asked for.
//   - Every request gets a prompt of its own, pseudo-random. Prompts of equal seeds are equal: a server that has seen
//     them in an earlier run may have them in its prefix cache, which a row tells (cached tokens).
//   - All answers have the length that was asked for; an answer of another length is an error, never a figure.
//   - One request of each stream runs unmeasured before a row is measured. Answers without a text have no times.
//   - Times are those of the client's clock, from before the request is sent until its bytes were read.
//
// The package needs /tokenize, which makes prompts of a length in tokens, as etc serve and llama.cpp's server have it.
// It imports nothing of ours and must never import the command line.
package serving
