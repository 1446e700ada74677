package command

import (
	"bytes"
	"os"
	"strconv"
)

// peakMemory is the largest resident size of the process so far in bytes, file pages included; 0 if unknown.
func peakMemory() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}
