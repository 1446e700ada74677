// Package gpu is the engine for GPUs: Metal, CUDA, and an emulator of both for tests. It fuses a module
// (runtime/fuse), binds it to the shapes of a call as a plan, and records the plan's kernels (runtime/gpu/kernels)
// as sequences of a device (runtime/gpu/device), which a call replays.
//
// # Plans
//
// Dims are symbolic until a call gives the shapes of its inputs. A plan is made once for each set of shapes: for single
// tokens, and for every size of a chunk that occurs. Values that follow from the inputs alone (positions, sizes, flags)
// are computed on the host and written into one small buffer, the uniforms, before the first kernel runs. So the
// recorded kernels are the same for every call. Reshapes, slices and transpositions are views and cost nothing.
// Intermediate results lie in one arena for each instance, where those that are not in use at the same time share
// memory. Results of a few bytes lie in the host's memory if a device with memory of its own can write to it
// (device.HostWriter).
//
// Calls of many sequences (ir/ragged.go) have plans too. Their tables are inputs, caches are pools of blocks, and
// recurrent state is a pool of slots; kernels find blocks and slots by the tables. So the recorded launches depend only
// on the numbers of rows.
//
// Which operations one kernel computes together is decided before planning. The passes of runtime/gpu/lower merge
// operations into ones that a kernel computes as a whole, and each of these has exactly one kernel. For example, a norm
// becomes the first part of a product, and a residual sum its last; the rotation of queries and keys and both cache
// writes become one kernel, and for one token a part of attention.
//
// # Invariants
//
//   - An operation without a kernel, or with a shape that is known only when it runs, runs on its reference kernel
//     (ir/eval) between two sequences of kernels: slowly, and with the same result. Its operands are copied by
//     Buffer.Read and its results by Buffer.Write, even where the device shares memory with the host: reference kernels
//     take dense tensors of float32 and 64-bit integers (eval.Tensor), while the device has views, bf16 and 32-bit
//     integers. Modules with control flow left after fusion run on the reference engine.
//   - A kernel runs after the kernels that write what it reads or use what it overwrites. A barrier stands where ranges
//     of bytes overlap in that way, and nowhere else.
//   - Kernels read matrices from the mapped file, with their scales and biases, where the device shares memory with
//     the host. Copies are made of the weights of norms and convolutions, which are small (as float32); of scales and
//     biases that are not both bf16 or both float32 (as float32); and of the stacks of experts that ExecuTorch's bf16
//     files store by columns (as they are).
//   - State belongs to the instance. With precision fp32 it is float32, with mixed it has its declared dtype. Precision
//     strict runs on the reference engine.
//   - Calls for one token may be pipelined (RunPipelined): the next call is submitted before the result of this one was
//     read. If the caller asks for another call, the early one leaves no trace: see pipelining.go.
//   - If Engine.SelfTest is set, no kernel is used whose self-test (kernels.Case) has failed on this device. Another
//     kernel takes its place, in the end the reference kernel of the operation.
//   - If Engine.Tune is set, steps with several variants of their launch are measured before the plan is recorded for
//     the first time on this machine, and use the fastest variant from then on (gpu/tune). Those of a plan for one
//     token are measured among their neighbours (tune_in_place.go), those of prompts in a chain that reads other
//     weights in every run (tune_cold_cache.go). A measurement does not change state.
//   - A call that cannot run is an error before anything runs. Kernels do not repeat the checks.
//
// Package gpu imports ir, ir/eval, ir/numeric, runtime/plan, runtime/engine, runtime/fuse, runtime/reference,
// runtime/strided and its own subpackages; it must never import a model, a session or another engine.
package gpu
