// Package kernels holds the GPU kernels. Each has one source for Metal, CUDA and the emulator. A family of kernels is
// three files: NAME.metal, the source; NAME.go, which returns the launch for a shape and has a reference implementation
// in plain Go; and NAME_test.go, which runs test cases on the emulator and compares.
//
// # Arguments
//
// The source alone says which buffers a kernel takes, in which order, and which of them it writes. go generate makes a
// struct from each parameter list (arguments_generated.go), whose fields all callers fill by name: Arguments. It also
// reads two kinds of comments. "absent: NAME" behind a buffer that a definition may turn off names the buffer that the
// device gets instead. "arguments: NAME" before a kernel says that it takes the same list as another kernel, which is
// checked.
//
// # Numbers
//
// Activations between kernels are fp32, and rows are dense. Weights are read as the file stores them, in MLX's layout
// (Format). Sums are in fp32, in an order that the kernel chooses. Only tiled products round activations and weights to
// bf16 (MatMul, ManyExperts), and tiled attention rounds queries and attention weights; both are used only with
// precision mixed.
//
// What is fixed for a model (rows, columns, bits, tuning) is a preprocessor definition before the source. What changes
// from call to call is in the buffer step, two int32: the number of tokens, which is at most the number that the launch
// was made for, and the position of the first. So a recorded launch can be replayed.
//
// # Invariants of the sources
//
//   - The first line is #include "port.h", the prelude of the target; further includes are in prelude/. See Source.
//   - Kernels are plain functions: [[max_total_threads_per_threadgroup(N)]] kernel void f(...). Every parameter has an
//     attribute. Buffers come in order, and a constant struct of 4-byte fields, if any, comes last. There are no kernel
//     templates, no function constants, and no comma in a parameter's type. go generate writes NAME.entry.h, the entry
//     points that CUDA and the emulator start.
//   - Threadgroup memory is declared with TG_ARRAY(type, name, n) in a kernel's scope. The default tuning of a launch
//     declares at most 32 KB, tunings for CUDA alone at most 48 KB. Helpers get it as a pointer and never declare it.
//     TG_MEMORY(name, bytes), once in a kernel, declares memory whose size the launch gives (Launch.Memory), up to 225
//     KB on Hopper. Asynchronous copies into it are counted with port_transfer, or each thread waits for its own
//     (port_copy). A port_arrivals counts the simdgroups that have read what was copied. The emulator checks the rules
//     of all three.
//   - Simdgroup operations and barriers are in uniform control flow. The emulator refuses anything else.
//   - A bfloat is read with float(x), written with bfloat(v), and never computed with. Packed bf16 is better read as
//     uint4 and split (port_bf16_low, port_bf16_high): Apple's M1 and M2 have no bf16 units.
//   - Vectors are constructed, and indexed by [i] or .x .y .z .w. There are no swizzles.
//   - UNROLL is put before loops over private arrays, whose indices must become constants; NOUNROLL before loops that a
//     compiler would only make long.
//   - There is no double, no lambda, no infinity as a start value (-1e30f instead), no fast math. precise:: is used
//     where accuracy counts. Two functions may be used by name in their fast form, because their exact forms take more
//     instructions or branches on NVIDIA. fast::exp2 computes the weights of attention, where its argument is finite
//     and at most 8. fast::divide requires a divisor between 2^-126 and 2^126, for which Metal promises 2.5 units in
//     the last place; for others the emulator returns NaN.
//   - Products of 16x16 matrices go through tile16. Code for one target is in its prelude, with a plain form in the
//     other preludes.
//   - A source that defines PORT_WAITS calls port_wait before it touches what other kernels write. On CUDA a kernel may
//     start while the kernels before it still run. Meanwhile it may read weights, and what the host wrote before the
//     sequence: step, and the tables of calls of several sequences. It may also read a state then, if no earlier kernel
//     of the sequence writes the state: a sequence starts only when everything submitted earlier is done. No kernel of
//     the same sequence is known to be done, however early it comes: each may start, and wait, as soon as the kernel
//     before it has started. So every threadgroup calls port_wait, even one that then has nothing to do.
//   - A source that defines PORT_RELEASES calls port_release in every threadgroup when the next kernel may start. What
//     a thread wrote and published with port_publish before that, the next kernel may read before its wait, with
//     port_published. If every threadgroup calls port_wait before port_release, the next kernel may so read what the
//     kernels before both wrote, too.
//   - port_last and port_simd_last, which find the last of several threadgroups or simdgroups, do not work on Metal. A
//     kernel that uses them has another form there, or does not run there.
//   - A kernel reads nothing past the end of a buffer, except for padding to 16 bytes.
//
// # Cases
//
// Every launch of a plan has a Case, or is part of the case of a later launch (case_*.go): launches with their buffers
// by name, the contents of these, and the contents that the reference implementation expects afterwards. Sizes say how
// much of the launch is run. As a self-test, which package selftest runs on the user's device before a kernel is used,
// it runs at its real shape on few rows. As the emulator's test (kerneltest.Check) it runs whole. As a benchmark
// (kernels/bench) it runs at the models' sizes, and results are not compared.
//
// Package kernels imports nothing of ours and no GPU library, and must never import runtime/gpu or a model.
package kernels
