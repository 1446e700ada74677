//go:build unix

package command

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// leastFiles is the number of files that the process must be able to have open: with fewer, Go's runtime ends with a
// trace before a command can say anything.
const leastFiles = 16

// checkFiles refuses a limit of open files that is too low for anything.
func checkFiles() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || uint64(l.Cur) >= leastFiles {
		return nil
	}
	return fmt.Errorf("this process may have %d files open, at least %d are needed; raise the limit (ulimit -n)", l.Cur,
		leastFiles)
}
