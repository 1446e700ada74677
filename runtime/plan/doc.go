// Package plan has the planner of all engines. [Planner] binds a module to the shapes of a call: it evaluates symbolic
// sizes, finds the results that are views of an operand and the loads that are views of a buffer, determines how long
// values are needed, and assigns them offsets in an arena. An engine ([Target]) provides storage and kernels. The
// package also has what engines store for a module: decoded constants, plans by shapes, the labels that observers get,
// and the text that describes a plan.
//
// # Invariants
//
//   - The planner does not know what memory is. A view is an offset, a shape and strides in elements; a slot has an
//     offset in whatever unit the engine counts.
//   - A size is known or not known; it is never guessed. Where a size is not known when a plan is made, the engine uses
//     reference kernels.
//
// Package plan imports ir, ir/eval, runtime/engine (what observers are told) and runtime/strided; it must never import
// an engine that runs modules.
package plan
