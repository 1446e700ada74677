//go:build !linux

package outfile

import "os"

// syncData brings the bytes of a file to the disk.
func syncData(file *os.File) error { return file.Sync() }
