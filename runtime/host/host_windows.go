package host

import (
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

var globalMemoryStatus = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// memoryStatus is MEMORYSTATUSEX.
type memoryStatus struct {
	length, load                               uint32
	total, available                           uint64
	totalPage, availPage, totalVirt, availVirt uint64
	availExtended                              uint64
}

// ReadMemory reads the sizes of the main memory.
func ReadMemory() (m Memory) {
	s := memoryStatus{}
	s.length = uint32(unsafe.Sizeof(s))
	if ok, _, _ := globalMemoryStatus.Call(uintptr(unsafe.Pointer(&s))); ok != 0 {
		m.Total, m.Available = int64(s.total), int64(s.available)
	}
	var job windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	if err := windows.QueryInformationJobObject(0, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&job)), uint32(unsafe.Sizeof(job)), nil); err == nil {
		flags := job.BasicLimitInformation.LimitFlags
		m.limit(jobLimit(flags&windows.JOB_OBJECT_LIMIT_PROCESS_MEMORY != 0, uint64(job.ProcessMemoryLimit)))
		m.limit(jobLimit(flags&windows.JOB_OBJECT_LIMIT_JOB_MEMORY != 0, uint64(job.JobMemoryLimit)))
	}
	return m
}

// jobLimit returns a limit of the process's job in bytes, 0 where it is not set.
func jobLimit(set bool, n uint64) int64 {
	if !set || n > math.MaxInt64 {
		return 0
	}
	return int64(n)
}

// CPUModel returns the name of the processor, "" where the system does not say.
func CPUModel() string {
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, `HARDWARE\DESCRIPTION\System\CentralProcessor\0`,
		registry.QUERY_VALUE)
	if err != nil {
		return ""
	}
	defer k.Close()
	name, _, _ := k.GetStringValue("ProcessorNameString")
	return name
}

// DiskFree returns the bytes that a user may still write to the file system of a directory.
func DiskFree(dir string) (int64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, &os.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, &os.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	return int64(free), nil
}

// cudaLibraries are the names of CUDA's driver library, libraryDirs where it is installed.
var (
	cudaLibraries = []string{"nvcuda.dll"}
	libraryDirs   = []string{os.Getenv("SystemRoot") + `\System32`}
)
