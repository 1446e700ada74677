//go:build unix && !linux && !darwin && !freebsd

package codegen

// freeSpace is not known on this system.
func freeSpace(string) (int64, bool) { return 0, false }
