//go:build !linux && !darwin

package outfile

import "os"

// allocate sets the size of a file. Windows then reserves the space.
func allocate(file *os.File, size int64) error { return file.Truncate(size) }
