// Package kerneltest runs kernels in tests: on the emulator under several schedules, and through the checks
// of their text that this machine has the compilers for.
//
// # Invariants
//
//   - Buffers end at a page that cannot be read, threadgroup memory starts as NaN, undefined behaviour ends the
//     process with the kernel's line, and every schedule must give the same bytes: a missing barrier shows.
//   - Where clang is there, the text for Metal is read as C++ for OpenCL, which checks address spaces. Where
//     ETC_NVRTC names NVRTC's library, the text for CUDA is compiled by it.
//   - Where ETC_KERNELTEST_DEVICE is cuda or metal, launches run on that device instead of the emulator, with the
//     same reference implementations and bounds; a test of a launch that asks for more TG_MEMORY than the device has
//     is skipped.
//
// The emulator runs on Linux with a C++ compiler ($CXX, else c++); elsewhere its tests are skipped. It is imported by
// tests only.
package kerneltest
