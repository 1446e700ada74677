//go:build unix

package container

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps size bytes of a file for reading. The file may be closed afterwards.
func mapFile(file *os.File, size int) (data []byte, release func() error, err error) {
	data, err = unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return data, func() error { return os.NewSyscallError("munmap", unix.Munmap(data)) }, nil
}
