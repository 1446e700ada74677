// Package bind has what the planners of the engines do alike when they bind a module to the shapes of a call: it
// evaluates symbolic sizes, finds the results that are views of an operand and the loads that are views of a buffer, and
// gives intermediate results their places in an arena.
//
// # Invariants
//
//   - Nothing is known of memory: a view is an offset, a shape and strides in elements, a place is an offset in whatever
//     unit the engine counts.
//   - A size is known or it is not; it is never guessed. What is not known when a plan is made is the engine's reference
//     kernels' business.
//
// Package bind imports ir, runtime/engine (what observers are told) and runtime/strided; it must never import an engine that
// runs modules.
package bind
