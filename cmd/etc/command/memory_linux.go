package command

import (
	"bytes"
	"os"
	"strconv"
)

// peakMemory returns the largest resident size of the process so far in bytes, file pages included; 0 if unknown.
func peakMemory() int64 { return processStatus("VmHWM") }

// ownMemory returns the resident memory of the process now that is not of files: what it takes from others; 0 if
// unknown.
func ownMemory() int64 { return processStatus("RssAnon") }

// processStatus returns a size in /proc/self/status (proc_pid_status(5)) in bytes; 0 where it is not.
func processStatus(key string) int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(key+":")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}
