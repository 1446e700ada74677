//go:build amd64 && !linux

package kernel

// requestAMX has no way to ask for the matrix unit here.
func requestAMX() bool { return false }
