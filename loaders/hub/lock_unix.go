//go:build unix

package hub

import (
	"errors"

	"golang.org/x/sys/unix"
)

// tryLock takes the lock of a file, as the Python library filelock does; false where another process has it.
func tryLock(f interface{ Fd() uintptr }) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
