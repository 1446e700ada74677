// Package single runs a program of one sequence as a ragged program (runtime/ragged) that has one: for forms of the
// state that only ragged programs have, caches of 8 bits and recurrent state in bf16. Sessions use it as any other
// engine.
//
// The pools have the units of one sequence, in their order: position p lies in block p/b, or in the block of that
// column of a window; the recurrent state is slot 0. So the state is a function of the tokens, and snapshots of it are
// the pools.
//
// Package single imports ir, passes, runtime/engine, runtime/fuse, runtime/cache and runtime/ragged; it must never
// import an engine or a session.
package single
