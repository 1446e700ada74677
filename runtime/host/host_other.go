//go:build !linux && !darwin && !windows

package host

import (
	"errors"
	"os"
)

// ReadMemory knows nothing of this system.
func ReadMemory() Memory { return Memory{} }

// CPUModel knows nothing of this system.
func CPUModel() string { return "" }

// DiskFree knows nothing of this system.
func DiskFree(dir string) (int64, error) {
	return 0, &os.PathError{Op: "free space", Path: dir, Err: errors.ErrUnsupported}
}

var cudaLibraries, libraryDirs []string
