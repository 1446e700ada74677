// Package standin builds and loads a stand-in for the Objective-C runtime and Metal, so that package metal can be
// tested on Linux. The stand-in is written in C (standin.c). It runs kernels on the emulator of package kernels.
//
// A kernel's text is the very one that Apple's compiler would get: the prelude for Metal (macros and functions that
// all kernels use) and the kernel. Where it includes headers of Metal, it gets the emulator's prelude. So the prelude
// for Metal is tested too. A C and a C++ compiler are needed ($CC, $CXX).
//
// It is imported by tests, and by package metal with the tag standin, and must never import package host.
package standin

import _ "embed"

// standin.c is embedded as text and compiled by Load. Its build constraint keeps the go command from compiling it with
// the package.
//
//go:embed standin.c
var source []byte
