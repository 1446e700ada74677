//go:build linux || darwin || freebsd

package codegen

import "golang.org/x/sys/unix"

// freeSpace returns the space of a directory's disk that the user may take, in bytes.
func freeSpace(dir string) (int64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Bsize <= 0 {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
