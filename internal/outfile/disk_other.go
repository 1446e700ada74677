//go:build !linux && !darwin

package outfile

import "os"

// allocate sets the size of a file; on Windows that takes the space for it.
func allocate(file *os.File, size int64) error { return file.Truncate(size) }
