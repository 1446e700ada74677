//go:build unix

package hub

import (
	"errors"

	"golang.org/x/sys/unix"
)

// tryLock locks a file as the Python library filelock does. It returns false where another process has the lock.
func tryLock(f interface{ Fd() uintptr }) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
