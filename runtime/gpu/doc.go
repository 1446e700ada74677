// Package gpu is the engine for GPUs: Metal, CUDA, and an emulator of both for tests. It fuses a module
// (runtime/fuse), binds it to the shapes of a call as a plan, and records the plan's kernels (runtime/gpu/kernels)
// as sequences of a device (runtime/gpu/device), which a call replays.
//
// # Plans
//
// Dims are symbolic until a call tells the shapes of its inputs. A plan is made for these once: for single
// tokens, and for every size of a chunk that comes up. Numbers that follow from the inputs alone (positions,
// sizes, flags) are computed on the host and written into one small buffer before the first kernel runs, so that
// the recorded kernels are the same for every call. Reshapes, slices and transpositions are views and cost
// nothing. What lives at the same time has its place in one arena for each instance; results of a few bytes lie in the
// host's memory where a device with memory of its own can write to it (device.HostWriter).
//
// Calls of many sequences (ir/ragged.go) are plans like others: their tables are inputs, caches are pools of blocks and
// recurrent state is a pool of slots, which kernels find by the tables. So launches depend on the numbers of rows
// alone.
//
// What a kernel computes of several operations is decided before: the rows of runtime/gpu/lower make operations of the
// table that a kernel does as a whole, and each of these selects its kernel. So a normalization becomes the first part
// of a product, a sum or a convolution its last; rotation of queries and keys and the writes of both caches become one
// kernel, and for one token a part of attention.
//
// # Invariants
//
//   - An operation that has no kernel here runs on its reference kernel (ir/eval) between two sequences: slowly,
//     never with another answer. So does everything whose shape is known only when it runs. It takes its operands by
//     Buffer.Read and gives its results by Buffer.Write, copies also where the device shares memory with the host: reference
//     kernels take dense tensors of 64-bit integers and float32 (eval.Tensor), the device has views, bf16 and 32-bit integers.
//     Modules with control flow that is left after fusion run on the reference engine.
//   - A kernel runs after those that write what it reads, or use what it overwrites: a barrier stands where ranges
//     of bytes say so, and nowhere else.
//   - Matrices are wrapped over the file's map, with their scales and biases: nothing of them is copied where the device
//     shares memory with the host. Copied, as float32, are the weights of norms and convolutions, which are small, and scales
//     and biases that are not both bf16 or both float32; and, as they are, the stacks of experts that ExecuTorch's bf16
//     files store by columns.
//   - The state belongs to the instance: in float32 with precision fp32, in the declared dtype with mixed. Strict
//     runs on the reference engine.
//   - A call for a token may begin before the one before it was read (RunAhead). One that is not asked for then leaves nothing behind:
//     see ahead.go.
//   - Where Engine.SelfTest is set, no kernel is used whose self-test (kernels.Case) has failed on this device: another
//     takes its place, in the end the reference kernel of its operation.
//   - Where Engine.Tune is set, steps that can be launched in several ways (tuned) are measured before they are recorded
//     for the first time on this machine, and launched in the fastest way from then on (gpu/tune): those of a token among
//     the steps around them (windows), those of prompts in a chain (rotation). Measuring writes no state.
//   - What a call cannot do is an error before anything runs: kernels trust what was checked.
//
// Package gpu imports ir, ir/eval, ir/numeric, runtime/plan, runtime/engine, runtime/fuse, runtime/reference,
// runtime/strided and its own subpackages; it must never import a model, a session or another engine.
package gpu
