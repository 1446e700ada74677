// Command gen reads the kernels in each NAME.metal and writes, beside it, NAME.entry.h: for every kernel the entry that
// CUDA and the emulator start. It writes arguments_generated.go, too: for every kernel a struct of its buffers by name.
// The kernel's own text is not changed. go generate ./runtime/gpu/kernels runs it.
//
// A buffer that a definition turns off says in a comment which other one stands in its place:
//
//	device const float* gate [[buffer(5)]],  // absent: x
//
// A kernel that takes the same buffers as another one says so in the line before it:
//
//	// arguments: matvec
package main
