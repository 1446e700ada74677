// Package cpu is the engine for machines without a GPU. It fuses a module (runtime/fuse), binds it to the
// shapes of a call as a plan, a list of closures over memory that is laid out in advance, and runs that on
// a pool of threads with the kernels of its subpackages.
//
// # Plans
//
// Dims are symbolic until a call tells the shapes of its inputs. A plan is made for these once: for single
// tokens, and for every size of a chunk that comes up. Reshapes, slices and transpositions are views and
// cost nothing. What lives at the same time has its place in one arena for each instance.
//
// # Invariants
//
//   - Every operation that has no kernel here runs on its reference kernel (ir/eval), inside of the plan:
//     slowly, never with another answer. So does everything where a shape is known only when it runs.
//   - Results do not depend on the number of threads.
//   - Weights are read from the file's map; nothing of them is copied but what is not stored by rows.
//   - The state belongs to the instance: in float32 with precision fp32, in the declared dtype with mixed.
//     Strict runs on the reference engine.
//
// Package cpu imports ir, ir/eval, ir/numeric, runtime/plan, runtime/engine, runtime/fuse, runtime/reference and
// runtime/strided; it must never import a model, a session or another engine.
package cpu
