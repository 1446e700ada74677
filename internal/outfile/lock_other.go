//go:build !unix && !windows

package outfile

import "errors"

// tryLock does nothing: this system has no locks.
func tryLock(uintptr) error { return nil }

func removeOpen(file File, path string) error { return errors.Join(file.Close(), Remove(path)) }
