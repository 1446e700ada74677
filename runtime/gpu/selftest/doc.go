// Package selftest runs the self-tests of compiled kernels (kernels.Case) before a device uses them, and stores in
// files which kernels have passed.
//
// # Invariants
//
//   - A kernel is tested at the shapes that it was compiled for, with its own definitions, once for each device, driver
//     and source text. The name of the result's file is the hash of these.
//   - A kernel that does not compile or run, or whose results are wrong, is a Failure, not an error. Every process
//     tests failures again. An error of the device is cleared (device.Recover) before the next test.
//   - Where the device does not recover from an error, as on CUDA, the process cannot use it any more. That is stored
//     too: later processes treat the kernel as a Failure without testing it.
//   - A kernel that cannot be tested, because there is no memory or no case for it, is used untested, and nothing is
//     stored.
//   - A file that cannot be read or written costs time and nothing else.
//
// Package selftest imports packages artifact, device and kernels, and must never import the planner or a host.
package selftest
