package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// ReadMemory reads the size of the main memory.
func ReadMemory() (m Memory) {
	if n, err := unix.SysctlUint64("hw.memsize"); err == nil {
		m.Total = int64(n)
	}
	return m
}

// CPUModel returns the name of the processor, "" where the system does not say.
func CPUModel() string {
	name, _ := unix.Sysctl("machdep.cpu.brand_string")
	return name
}

// DiskFree returns the bytes that a user may still write to the file system of a directory.
func DiskFree(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// CUDA does not exist for macOS.
var cudaLibraries, libraryDirs []string
