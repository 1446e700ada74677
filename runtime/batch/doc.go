// Package batch runs calls of many sequences: the calls that runtime/schedule plans, or those of programs that feed
// sequences themselves.
//
// An [Executor] is a compiled language model with the blocks and slots of many sequences. There are two kinds. The
// ragged one runs all rows of a call in one pass over the program, which runtime/ragged has transformed for many
// sequences. The other one is for programs that cannot be transformed: it runs the entries of a call one by one, each
// with a state of its own. Both give the same answers.
//
// Streams may draft tokens ([Drafting]), from their text or with a draft model of the executor ([Drafter]). The next
// call verifies the drafts, in rows beside those of other streams, and wrong ones are rolled back.
//
// A call may begin before the tokens of the call before it are known ([Pipelined]): on a device that draws them, while
// the host reads and hands them out.
//
// A [Runner] answers many requests with one executor, on one goroutine: it passes arrivals and cancellations to the
// scheduler, the scheduler's call to the executor, and the results to the streams. A [Stream] holds its tokens until
// they are read.
//
// # Invariants
//
//   - The result of a row depends on the tokens of its sequence up to it and on its own [Row], not on what else is in
//     the call.
//   - An executor reads and writes only the units that the call names.
//   - The tokens of a request are those of etc run with the same prompt and parameters, whoever else is served.
//   - Nothing waits for a reader, and a cancelled stream ends within one call.
//   - After an error of Execute the content of the units that the call writes is undefined; all others are unchanged.
//     The same holds for a call that has begun and is not made in the end.
//
// Package batch imports runtime/cache, runtime/schedule, runtime/session, runtime/speculate, runtime/engine and the
// passes of the run table; it must never import an engine, a tokenizer or the command line.
package batch
