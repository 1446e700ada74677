// Package plan has the planner of all engines: [Planner] binds a module to the shapes of a call. It evaluates symbolic
// sizes, finds the results that are views of an operand and the loads that are views of a buffer, tells how long values
// live, and gives them their places in an arena. An engine ([Target]) gives storage and kernels. What engines keep of a
// module is here, too: decoded constants, plans by shapes, what observers are told of steps, and the text that
// describes a plan.
//
// # Invariants
//
//   - Nothing is known of memory: a view is an offset, a shape and strides in elements, a place is an offset in whatever
//     unit the engine counts.
//   - A size is known or it is not; it is never guessed. What is not known when a plan is made is the engine's reference
//     kernels' business.
//
// Package plan imports ir, ir/eval, runtime/engine (what observers are told) and runtime/strided; it must never import
// an engine that runs modules.
package plan
