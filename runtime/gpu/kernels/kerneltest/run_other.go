//go:build !linux || (!amd64 && !arm64)

package kerneltest

import (
	"errors"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// HasEmulator reports whether kernels can run on this machine's processor.
const HasEmulator = false

type library struct{}

func open(string) (*library, error) { return nil, errors.New(onLinux) }

func (*library) launch(kernels.Launch, int, uint32, []any) ([][]byte, error) {
	return nil, errors.New(onLinux)
}

// Lint is for Linux.
func Lint(string) error { return nil }

// HasLint reports whether Lint checks anything.
func HasLint() bool { return false }

// CompileCUDA is for Linux.
func CompileCUDA(string) error { return nil }
