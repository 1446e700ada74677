//go:build unix

package outfile

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Flags with which a name is opened: a link is refused, and a FIFO does not make the process wait for a reader.
const (
	noFollow = syscall.O_NOFOLLOW
	noWait   = syscall.O_NONBLOCK
)

// foreign says why a regular file is not one that only this user writes, "" where it is.
func foreign(info fs.FileInfo) string {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	if s.Nlink > 1 {
		return fmt.Sprintf("has %d names (hard links), expected one", s.Nlink)
	}
	if uid := os.Geteuid(); int(s.Uid) != uid {
		return fmt.Sprintf("belongs to the user with id %d, expected %d, who runs this", s.Uid, uid)
	}
	return ""
}
