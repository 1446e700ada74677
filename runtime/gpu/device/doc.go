// Package device is what the GPU engine asks of a GPU: memory, compiled kernels, and recorded lists of
// dispatches. The hosts in runtime/gpu/metal, runtime/gpu/cuda and runtime/gpu/emulator implement it.
//
// # Order
//
// A device has one timeline. Write, Submit, Read and Fetch take their place on it in the order of the calls:
// a Submit sees every Write before it and none after it, and a Read sees the results of every Submit before it,
// of none after it. Write and Submit return before the device gets there, so that the host can prepare the
// next step while the device is busy; Read and Wait return when it has. So two steps may be in flight that
// share every buffer: a small buffer of the numbers that change (position, token, seed) is written, the first
// sequence submitted, the buffer written again, the second submitted.
//
// Within a sequence a dispatch may overlap the dispatches before it back to the last one with Barrier: those
// must not write what it reads or writes, nor read what it writes. Sequences do not overlap each other.
//
// # Invariants
//
//   - Offsets and sizes of buffers are in bytes, grids are in threadgroups. Offsets in bindings are multiples
//     of 4, or of 16 where the kernel reads vectors.
//   - Everything that can be checked before the device runs is checked by Record (CheckDispatch): a sequence
//     that was recorded can only end in an error of the device itself.
//   - A method may be called from any goroutine, but the calls must not overlap: the caller has one timeline
//     too. Compile is the exception: libraries may be compiled side by side.
//   - What is in use stays alive: a buffer, a library or a kernel is closed after the sequences that name it,
//     and a sequence after Wait.
//
// It imports package kernels, for the targets, and must never import the planner or a host.
package device
