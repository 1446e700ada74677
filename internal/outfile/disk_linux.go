package outfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate sets the size of a file, and reserves the space for it if the file system can.
func allocate(file *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	err := ignoringEINTR(func() error { return unix.Fallocate(int(file.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return file.Truncate(size)
	}
	return err
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// syncData brings the content of a file to the disk, and the metadata that reading it needs.
func syncData(file *os.File) error {
	return ignoringEINTR(func() error { return unix.Fdatasync(int(file.Fd())) })
}
