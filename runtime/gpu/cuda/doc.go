// Package cuda is the host of NVIDIA GPUs: the driver's API and NVRTC, found at run time, without cgo.
//
// # Invariants
//
//   - Everything of a device is on one stream, so that the timeline of package device holds by itself. A
//     sequence is one CUDA graph, whose edges are its barriers.
//   - What passes between host and device goes through pinned memory of a fixed size: a ring of small places
//     for Write and Fetch, a few larger ones for what is long. Results of a few bytes lie in such memory themselves.
//   - No context is current on a thread between calls: every method makes the device's current (do).
//   - Compiled kernels are kept in the user's cache folder under the hash of the text, the options, NVRTC's
//     version and the architecture; they are written aside and renamed.
//   - From Hopper on kernels start early and wait on the GPU (overlap.go); memory is ordered as without.
//   - Errors name the call and what the driver says of it; an error of a kernel shows at the next call that
//     waits, and stays.
//
// It runs on Linux and Windows; with -tags nocuda, and elsewhere, Open says so. (Loading libraries makes the
// Linux program a dynamic one; with the tag it is static.) It imports packages device, keep and kernels, and must
// never import the planner. Tests run on a GPU where there is one, else on a stand-in for its driver.
package cuda

// Options of Open.
type Options struct {
	// Device is the number of the GPU, from 0.
	Device int
	// Cache is the folder of compiled kernels, "" for the user's.
	Cache string
}
