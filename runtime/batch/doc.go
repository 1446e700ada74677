// Package batch runs calls of many sequences: what runtime/schedule plans, or what the sequences of this package feed.
//
// An [Executor] is a compiled language model with the blocks and slots of many sequences. There are two kinds. The
// ragged one runs all rows of a call in one pass over the program, which runtime/ragged has made one of many sequences.
// The other one is for programs that cannot be made ragged: it runs the entries of a call one by one, each with a state
// of its own. Both give the same answers.
//
// Streams may draft tokens ([Drafting]), from their text or with a draft that the executor has ([Drafter]): their next
// call verifies them, in rows beside those of other streams, and what is wrong is taken back.
//
// A [Runner] answers many requests with one executor: arrivals and cancellations go to the scheduler, its call to the
// executor, what that gives to the streams, all on one goroutine. A [Stream] holds its tokens until they are read.
//
// # Invariants
//
//   - What a row gives depends on the tokens of its sequence up to it and on its own [Row], not on what else is in the call.
//   - An executor reads and writes the units that the call names, and no others.
//   - The tokens of a request are those of etc run with the same prompt and parameters, whoever else is there.
//   - Nobody waits for a reader, and a cancelled stream ends within one call.
//   - After an error of Execute the units that the call writes hold nothing that can be trusted; all others are as before.
//
// Package batch imports runtime/cache, runtime/schedule, runtime/session, runtime/speculate, runtime/engine and the
// passes of the run table; it must never import an engine, a tokenizer or the command line.
package batch
