// Package lower has the passes that the GPU engine adds to the runtime's table of passes. They run when the shapes of a
// call are known. The result is an ir.Module that can be printed and evaluated like any other. Each of its operations
// either has exactly one kernel of the engine, or runs on its reference kernel.
//
// # Invariants
//
//   - A pass makes an operation only if the device has the kernel and may use it; it asks [Target]. Operations that no
//     pass replaces run on their own kernel or on their reference kernel.
//   - Passes change no result. Every operation of the engine has an expansion (ir.OpDef.Expand), and the reference
//     engine computes the same for the module before and after a pass.
//   - The memory layout of a value follows from the module alone: the graph derives it, and the planner keeps to it.
//   - All passes edit one graph, which always knows who reads a value and how the value lies in memory. A pass sees the
//     operations in the order in which it found them. The operations that it makes are put in their places when the
//     pass ends.
//
// Package lower imports ir, ir/eval, passes, runtime/plan, runtime/engine, runtime/strided and runtime/gpu/kernels; it
// must never import an engine or a device.
package lower
