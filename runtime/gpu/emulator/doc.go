// Package emulator is the host of a GPU that is none: kernels are compiled by the system's C++ compiler against
// the emulator of package kernels, and run on the processor. It is for tests.
//
// # Invariants
//
//   - Threadgroup memory starts as NaN, and every buffer ends at a page that cannot be touched.
//   - A sequence runs as late as the rules of package device allow, and dispatches between two barriers, their
//     threadgroups, simdgroups and lanes run in the order of the schedule: what depends on luck elsewhere fails
//     here under one schedule or another.
//   - Compiled kernels are kept in the user's cache folder, under the hash of their text, the emulator's text
//     and the compiler.
//
// It runs on Linux, amd64 and arm64; elsewhere Open says so. It imports packages device and kernels, and must
// never be imported by the program etc.
package emulator

// Options of Open.
type Options struct {
	// Schedule is 0 for dispatches, threadgroups and lanes in order, 1 for the reverse, else they are shuffled,
	// for every number in another way.
	Schedule uint32
	// TransferMemory is device.Info's: the largest TG_MEMORY in bytes, 0 for a device without transfers.
	TransferMemory int
	// TransferLeast is device.Info's.
	TransferLeast int
	// Groups and Lanes are those of kernels.Machine.
	Groups, Lanes bool
	// Cores is the number of multiprocessors that it says it has, 0 for as many as the machine has processors.
	Cores int
	// Cache is the folder of compiled kernels, "" for the user's.
	Cache string
}
