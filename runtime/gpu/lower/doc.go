// Package lower has the rows that the GPU engine adds to the runtime's table of passes. They run when the shapes of a
// call are known. What comes out is an ir.Module that can be printed and evaluated like any other, whose operations are
// those that the engine has a kernel for: each operation selects its kernel, one to one.
//
// # Invariants
//
//   - A row makes an operation only if the device has the kernel and may use it: it asks [Target]. What a row leaves as it
//     was runs on the kernel of the operation that stands there, or on its reference kernel.
//   - Rows change no answer: an operation of the engine has an expansion (ir.OpDef.Expand), and the reference machine gives
//     the same for the module before and after.
//   - What memory a value lies in follows from the module alone: the layouts of the graph give it, and the planner
//     keeps to it.
//   - All rows edit one graph, which knows at any time who reads a value and where it lies. A row sees the operations in
//     the order in which it found them; what it makes takes its place when the row ends.
//
// Package lower imports ir, ir/eval, passes, runtime/plan, runtime/engine, runtime/strided and runtime/gpu/kernels; it
// must never import an engine or a device.
package lower
