// Package kernels holds the GPU kernels: one text for Metal, CUDA and the emulator. A family of kernels is
// NAME.metal, the text; NAME.go, which gives the launch for a shape and a reference implementation in plain Go; and
// NAME_test.go, which runs cases of the text on the emulator against it.
//
// # Arguments
//
// The text alone says which buffers a kernel takes, in which order, and which it writes. go generate makes a struct of
// each list (arguments_generated.go), which all that launches the kernel fills by name: Arguments. Two comments are
// read, too: "absent: NAME" behind a buffer that a definition may turn off names what the device gets in its place, and
// "arguments: NAME" before a kernel says that it takes what another one takes, which is checked.
//
// # Numbers
//
// Activations between kernels are fp32 and rows are dense. Weights are read as they lie in the file, in MLX's
// layout (Format). Sums are in fp32, in an order of the kernel's own. Only tiled products round activations and weights
// to bf16 (MatMul, ManyExperts), and attention by tiles its queries and weights, and only where precision mixed asks
// for them.
//
// What a model fixes (rows, columns, bits, tuning) is a definition before the text. What changes from step to
// step stands in the buffer step, two int32: the number of tokens, which is at most what the launch was made
// for, and the position of the first. So a recorded launch can be replayed.
//
// # Invariants of the text
//
//   - The first line is #include "port.h", the target's prelude; further includes stand in prelude/. See Source.
//   - Kernels are plain functions: [[max_total_threads_per_threadgroup(N)]] kernel void f(...), every parameter
//     with an attribute, buffers in order and a constant struct of 4-byte fields, if any, last. No templates of
//     kernels, no function constants, no comma inside of a parameter's type. go generate writes NAME.entry.h,
//     the entries that CUDA and the emulator start.
//   - Threadgroup memory is declared by TG_ARRAY(type, name, n) at a kernel's scope, at most 32 KB in all, of
//     what a launch takes by default, and 48 KB in tunings for CUDA alone. It
//     is what a helper gets by a pointer, never what a helper declares. TG_MEMORY(name, bytes), once in a kernel, is what a
//     launch gives it beside that, Launch.Memory: up to 225 KB on Hopper. Copies into it that run beside the threads are
//     counted by port_transfer, whose rules the emulator checks.
//   - simd operations and barriers stand in uniform control flow; the emulator refuses anything else.
//   - bfloat is read by float(x), written by bfloat(v), and never computed with. Packed bf16 is better read as
//     uint4 and split (port_bf16_low, port_bf16_high): Apple's M1 and M2 have no bf16 units.
//   - Vectors are constructed, and indexed by [i] or .x .y .z .w; no swizzles.
//   - UNROLL stands before loops over private arrays, whose indices must become constants; NOUNROLL before loops that a
//     compiler would only make long.
//   - No double, no lambdas, no infinity as a start value (-1e30f), no fast math; precise:: for what counts. Two functions
//     are exceptions by name, whose exact forms take more steps or branches on NVIDIA: fast::exp2 for the weights of
//     attention, whose argument is 0 at most and finite, and fast::divide, whose divisor must be within 2^-126 and 2^126,
//     where Metal promises 2.5 units of the last place; elsewhere the emulator's gives NaN.
//   - Work on matrices of 16x16 goes through tile16; tricks of a target stand in its prelude, with a plain form
//     in the others'.
//   - A text that defines PORT_WAITS calls port_wait before it touches what other kernels write: on CUDA a kernel may
//     start while those before it still run, and read weights meanwhile. A state, too, where no kernel of the sequence
//     writes it before: a sequence starts when all that was submitted before it is done, so the last one that wrote the
//     state is. Nothing is known of kernels of the same sequence, however far back: each may start, and wait, as soon
//     as the one before it has started.
//   - A text that defines PORT_RELEASES says by port_release when the kernel behind it may start, in every threadgroup. What a
//     thread wrote and published by port_publish before, that kernel may read before its wait, by port_published.
//   - port_last, which finds the last of some threadgroups, is not for Metal: what uses it has a form with another kernel.
//   - A kernel reads nothing past the end of a buffer, its padding to 16 bytes excepted.
//
// # Cases
//
// Every launch of a plan has a Case, or is part of that of a launch behind it (case_*.go): launches with buffers by
// name, what these hold, and what the reference implementation says that the launches leave in them. Sizes say how much
// of it is run: as a self-test of the compiled kernel at its real shape, on few rows, which package selftest runs on
// the user's device before a kernel is used; whole, as the emulator's test (kerneltest.Check); or at the models' sizes,
// as the benchmark (kernels/bench), which asks for no answers.
//
// Package kernels imports nothing of ours and no GPU library, and must never import runtime/gpu or a model.
package kernels
