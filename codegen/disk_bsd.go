//go:build unix && !linux && !darwin

package codegen

import "os"

// preallocate makes a file so long.
func preallocate(file *os.File, size int64) error { return file.Truncate(size) }
