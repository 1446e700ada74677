package tune

import (
	"os"
	"strings"
)

// system returns the version of NVIDIA's driver, or "" where there is none.
func system() string {
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
