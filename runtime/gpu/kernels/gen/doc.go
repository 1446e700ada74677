// Command gen writes NAME.entry.h beside each NAME.metal: for every kernel the entry that CUDA and the
// emulator start. The kernel's own text is not changed. go generate ./runtime/gpu/kernels runs it.
package main
