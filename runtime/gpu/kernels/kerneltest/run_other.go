//go:build !linux || (!amd64 && !arm64)

package kerneltest

import (
	"testing"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Limits of threadgroup memory in bytes: what every Metal device has, what a CUDA kernel may declare.
const (
	MetalMemory = 32 << 10
	CUDAMemory  = 48 << 10
)

const onLinux = "the emulator of kernels runs on Linux, on amd64 and arm64"

// Run is for Linux.
func Run(t testing.TB, _ kernels.Launch, _ ...any) { t.Skip(onLinux) }

// RunWithin is for Linux.
func RunWithin(t testing.TB, _ int, _ kernels.Launch, _ ...any) { t.Skip(onLinux) }

// Outcome is what a kernel given as a text for the emulator does under a schedule.
type Outcome struct {
	Err     error
	Buffers [][]byte
}

// Schedules is for Linux.
func Schedules(t testing.TB, _ string, _ kernels.Launch, _ ...any) []Outcome {
	t.Skip(onLinux)
	return nil
}

// Lint is for Linux.
func Lint(string) error { return nil }

// HasLint reports whether Lint checks anything.
func HasLint() bool { return false }
