package codegen

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// dropsPages tells whether dropPages does something.
const dropsPages = true

// preallocate makes a file so long and takes the space for it, where the file system can.
func preallocate(file *os.File, size int64) error {
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

// syncData brings the bytes of a file to the disk, and of its metadata what reading them needs.
func syncData(file *os.File) error {
	return ignoringEINTR(func() error { return unix.Fdatasync(int(file.Fd())) })
}

// dropPages tells the kernel that the pages of a range of a file will not be needed; size 0 is to the end.
func dropPages(file *os.File, offset, size int64) {
	unix.Fadvise(int(file.Fd()), offset, size, unix.FADV_DONTNEED) //nolint:errcheck // advice
}

// cached is the part of a file that is in the page cache, 0 where the kernel does not tell.
func cached(file *os.File) float64 {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return 0
	}
	var s unix.Cachestat_t
	if err := unix.Cachestat(uint(file.Fd()), &unix.CachestatRange{Len: uint64(info.Size())}, &s, 0); err != nil {
		return 0
	}
	return float64(s.Cache) * float64(os.Getpagesize()) / float64(info.Size())
}
