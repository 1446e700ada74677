package codegen

import (
	"os"

	"golang.org/x/sys/unix"
)

// dropsPages tells whether dropPages does something.
const dropsPages = true

// dropPages tells the kernel that the pages of a range of a file will not be needed; size 0 is to the end.
func dropPages(file interface{ Fd() uintptr }, offset, size int64) {
	unix.Fadvise(int(file.Fd()), offset, size, unix.FADV_DONTNEED) //nolint:errcheck // advice
}

// cached returns the part of a file that is in the page cache, 0 where the kernel does not tell.
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
