// Package cpu is the engine for machines without a GPU. It fuses a module (runtime/fuse) and binds it to the shapes of
// a call as a plan: a list of closures over memory with a fixed layout. It runs the plan on a pool of threads with the
// kernels of its subpackages.
//
// # Plans
//
// Dims are symbolic until a call gives the shapes of its inputs. A plan is made once for each set of shapes: for single
// tokens, and for every size of a chunk that occurs. Reshapes, slices and transpositions are views and cost nothing.
// Intermediate results lie in one arena for each instance, where those that are not in use at the same time share
// memory.
//
// # Invariants
//
//   - An operation without a kernel, or with a shape that is known only when it runs, runs on its reference kernel
//     (ir/eval) inside the plan: slowly, and with the same result.
//   - Results do not depend on the number of threads.
//   - Weights are read from the mapped file. Only weights that are not stored by rows are copied.
//   - State belongs to the instance. With precision fp32 it is float32, with mixed it has its declared dtype. Precision
//     strict runs on the reference engine.
//
// Package cpu imports ir, ir/eval, ir/numeric, runtime/plan, runtime/engine, runtime/fuse, runtime/reference and
// runtime/strided; it must never import a model, a session or another engine.
package cpu
