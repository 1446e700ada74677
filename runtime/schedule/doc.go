// Package schedule decides what the next call of a model runs: which sequences, how many rows of each, in
// which blocks and slots. It knows token ids, positions and units of memory; it knows no engine, no clock and
// no tokenizer. Its input is arrivals, cancellations and the tokens that a call gave; its output is the table
// of the next call.
//
// Policies, in the order in which they apply:
//
//   - Admission: in order of arrival, while memory has room for what all admitted sequences are known to
//     need, verify slots included. A prompt begins after the longest prefix that the tree has.
//   - Decode first: every sequence whose prompt is in gets a row in every call.
//   - Prompts take the rows that are left, at most Config.Chunk of them beside decoding rows, so that a
//     running stream never waits for more than one chunk. They take turns of Config.Quantum rows (deficit
//     round robin).
//   - Drafts get the rows that are left behind that.
//   - Short of memory, a call takes it from unused prefixes, then does without new checkpoints, then without
//     drafts, then preempts the youngest sequence: its cache goes back to the tree, and it is admitted again
//     in its old place.
//
// # Invariants
//
//   - The oldest sequence gets rows in every call, so that all end, whatever arrives.
//   - What a sequence holds is the first tokens of it, and the call feeds those after.
//   - The tokens of a sequence do not depend on who shares its calls. This package guarantees the part that is
//     its own: a call reads what the sequence itself, or one with the same ids before, has written.
//   - One call at a time: Next, run it, Done. The next one can be planned before Done, where it follows from the
//     first one: Ahead.
//
// A Scheduler is deterministic and not safe for concurrent use.
//
// Package schedule imports runtime/cache and must never import an engine.
package schedule
