// Package standin builds and loads a C library that stands in for a GPU's libraries in tests, and gives it a compiler:
// texts of kernels become shared objects of the emulator. What the library imitates is the caller's; see the packages
// standin in cuda/internal and metal/internal.
//
// It imports package device, and must never be imported by anything but tests' stand-ins.
package standin
