// Package host drives Metal's compute half through the Objective-C runtime.
//
// # Invariants
//
//   - A message is one call of objc_msgSend whose arguments are machine words; structs of three words (MTLSize)
//     are passed as each calling convention wants them (abi_amd64.go, abi_arm64.go). Nothing is reflected on.
//   - Objects that new… and Create… functions give are released by Close; what else is kept is retained. Objects
//     that are autoreleased live within pool. Command buffers do not retain what they use: package device's rule
//     is that it stays alive.
//   - Metal tracks no hazards (buffers are untracked). Within a sequence dispatches are ordered by memory
//     barriers, sequences are ordered by one fence, which each waits for and then updates.
//   - A Write while the GPU is busy is recorded and put before the dispatches of the next Submit by a kernel of
//     the host's own; with an idle GPU, and always where it is large, it is a copy to shared memory.
//   - Place is a copy to shared memory while command buffers run that use other bytes of the buffer. Apple's rule,
//     that what the processor changes is complete before a command buffer that accesses it is committed, names whole
//     resources: that it holds for bytes, as it does where a buffer is a ring of parts, is an assumption.
//   - Mapped memory is wrapped without a copy, in windows that overlap by half where it exceeds the largest
//     buffer: a binding has at least half such a window after its offset.
//   - Kernels are compiled with Metal 3.1, math mode safe and precise functions, and have simdgroups of 32 threads.
//
// It runs on macOS against the system's libraries, and on Linux against the stand-in that the tests build
// (package standin). It imports packages device and kernels, and must never import the planner.
package host
