//go:build unix

package outfile

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// tryLock locks an open file, if no other process has done so.
func tryLock(fd uintptr) error {
	if err := unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return nil // or a file system without locks
}

// removeOpen removes an open file and closes it, which unlocks it only when its name is gone.
func removeOpen(file File, path string) error {
	err := Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, file.Close())
}
