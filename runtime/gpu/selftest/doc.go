// Package selftest tries compiled kernels by their self-tests (kernels.Case) before a device uses them, and
// remembers in files what has passed.
//
// # Invariants
//
//   - A kernel is tried at the shapes that it was compiled for, with its own definitions, once for each device, driver and
//     text of the kernel: the file that remembers it has a name made of the hash of these.
//   - A kernel that does not compile or run, or whose numbers are off, is a Failure, not an error; failures are tried again
//     by every process. An error of the device is forgotten (device.Recover) before the next kernel is tried.
//   - Where the device does not recover from the error, as on CUDA, the process cannot use it any more: that is remembered, too,
//     and the kernel is a Failure from the next start on without being tried.
//   - What cannot be tried, for want of memory or because there is no case, is taken on trust and not remembered.
//   - A file that cannot be read or written costs time and nothing else.
//
// It imports packages device, keep and kernels, and must never import the planner or a host.
package selftest
