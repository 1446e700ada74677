// Package standin builds and loads a stand-in for the Objective-C runtime and Metal, for tests on Linux:
// standin.c, whose kernels run on the emulator of package kernels, behind the prelude for Metal: the emulator's own
// stands in for Metal's headers. It needs a C and a C++ compiler ($CC, $CXX).
//
// It is imported by tests, and by package metal with the tag standin, and must never import package host.
package standin

import _ "embed"

// The C of the stand-in is no part of the Go package: the constraint keeps the go command from compiling it.
//
//go:embed standin.c
var source []byte
