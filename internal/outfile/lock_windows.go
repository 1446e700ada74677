package outfile

import (
	"errors"

	"golang.org/x/sys/windows"
)

// tryLock locks an open file, if no other process has done so. A range far behind the end is locked, so that reading
// and writing stay free.
func tryLock(fd uintptr) error {
	at := &windows.Overlapped{Offset: 0, OffsetHigh: 1 << 30}
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(fd), flags, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return nil
}

// removeOpen closes a file, which has to come first here, and removes it, unless another process has opened it since.
func removeOpen(file File, path string) error {
	err := file.Close()
	Remove(path) //nolint:errcheck // it locks nothing when it stays
	return err
}
