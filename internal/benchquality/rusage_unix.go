//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
)

// peakMemory returns the most memory that a process had resident, in bytes.
func peakMemory(p *os.ProcessState) int64 {
	u, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10
}
