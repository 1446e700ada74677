package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// ReadMemory reads the sizes of the main memory.
func ReadMemory() Memory {
	m := linuxMemory(os.DirFS("/"))
	m.limit(addressSpaceLeft)
	return m
}

// addressSpaceLeft is the address space, in bytes, that RLIMIT_AS (ulimit -v) left this process when it started, before
// any file was mapped; 0 where there is no limit.
var addressSpaceLeft = func() int64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &l); err != nil || l.Cur >= 1<<62 {
		return 0
	}
	return max(int64(l.Cur)-addressSpace(os.DirFS("/"), int64(os.Getpagesize())), 1)
}()

// CPUModel returns the name of the processor, "" where the system does not say.
func CPUModel() string { return linuxCPUModel(os.DirFS("/")) }

// DiskFree returns the bytes that a user may still write to the file system of a directory.
func DiskFree(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// cudaLibraries are the names of CUDA's driver library, libraryDirs where a loader looks for it.
var (
	cudaLibraries = []string{"libcuda.so.1", "libcuda.so"}
	libraryDirs   = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
		"/usr/lib", "/lib64", "/lib",
		"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/cuda/compat", "/run/opengl-driver/lib"}
)
