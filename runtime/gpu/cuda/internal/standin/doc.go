// Package standin builds a stand-in for NVIDIA's driver and for NVRTC, for tests on Linux without a GPU:
// standin.c, whose kernels run on the emulator of package kernels. It needs a C and a C++ compiler ($CC, $CXX).
//
// It is imported by tests only, and must never import package cuda.
package standin

import _ "embed"

//go:embed standin.c
var source []byte
