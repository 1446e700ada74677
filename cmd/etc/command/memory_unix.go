//go:build unix && !linux

package command

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// peakMemory returns the largest resident size of the process so far in bytes; 0 if unknown. Apple's kernel
// counts in bytes, the others in KiB.
func peakMemory() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10
}

// ownMemory, without the pages of files, is not known on this system.
func ownMemory() int64 { return 0 }
