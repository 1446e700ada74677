// Package single runs a program of one sequence as a ragged program (runtime/ragged) that has one: for forms of the
// state that only ragged programs have, caches of 8 bits and recurrent state in bf16. Sessions use it as any other
// engine.
//
// The pools have the units of one sequence, in their order: position p lies in block p/b, or in the block of that
// column of a window. The recurrent state is one slot, which calls update in place. Where the engine pipelines calls
// (engine.Pipelining) the state has two slots: a call reads one and writes the other, so that a call which began early
// and is dropped has overwritten nothing that is still needed. A snapshot has all pools, but of the two slots only the
// one with the state. So it has the same form on every engine, and follows from the tokens, whatever calls they came in,
// except for rows of caches behind the last token, which are written again before they are read.
//
// Draws on the device, calls that begin early, snapshots and measurements of kernels are offered where the engine
// offers them. Calls of more rows than the program declares (engine.LongCalls) are not.
//
// Package single imports ir, passes, runtime/engine, runtime/fuse, runtime/cache and runtime/ragged; it must never
// import an engine or a session.
package single
