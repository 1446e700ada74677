//go:build (linux && !nocuda) || windows

package cuda

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Constants of the driver's API.
const (
	attributeMaxThreads        = 1
	attributeSharedMemory      = 8
	attributeMultiprocessors   = 16
	attributeMajor             = 75
	attributeMinor             = 76
	attributeMostSharedMemory  = 97 // of a threadgroup whose kernel asks for it
	functionMaxThreads         = 0
	functionDynamicShared      = 8
	functionCarveout           = 9
	streamNonBlocking          = 1
	eventTiming, eventNoTiming = 0, 2
	captureRelaxed             = 2
	statusNotReady             = 600
)

// driver is the driver's API, loaded once.
var driver = sync.OnceValues(func() (*api, error) {
	var path string
	var library uintptr
	var err error
	for _, path = range driverNames {
		if library, err = openLibrary(path); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cuda: %s, the library of NVIDIA's driver, is needed: %w: %w", driverNames[0],
			err, device.ErrUnavailable)
	}
	d, err := newAPI(path, library, []string{
		"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
		"cuGetErrorName", "cuGetErrorString",
		"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent", "cuMemGetInfo_v2",
		"cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
		"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventSynchronize",
		"cuEventQuery", "cuEventElapsedTime",
		"cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2",
		"cuMemcpyDtoHAsync_v2",
		"cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute",
		"cuGraphCreate", "cuGraphDestroy", "cuGraphAddKernelNode", "cuGraphAddEmptyNode", "cuGraphAddChildGraphNode",
		"cuGraphAddEventRecordNode",
		// CUDA 12.3
		"cuGraphInstantiateWithFlags", "cuGraphExecDestroy", "cuGraphUpload", "cuGraphLaunch",
		"?cuGraphAddDependencies_v2",
	})
	if err != nil {
		return nil, err
	}
	if status := d.result("cuInit", 0); status != 0 {
		return nil, fmt.Errorf("cuda: cuInit: %s: %w", describe(d, status), device.ErrUnavailable)
	}
	return d, nil
})

// describe returns the driver's description of a status.
func describe(d *api, status int) string {
	text := func(function string) string {
		var p *byte
		if d.result(function, uintptr(status), uintptr(unsafe.Pointer(&p))) != 0 || p == nil {
			return ""
		}
		return cString(p)
	}
	name := text("cuGetErrorName")
	if name == "" {
		return fmt.Sprintf("error %d", status)
	}
	return name + ": " + text("cuGetErrorString")
}

// call calls a function of the driver.
//
//go:uintptrescapes
func (d *gpu) call(name string, args ...uintptr) error {
	if status := d.driver.result(name, args...); status != 0 {
		return d.failure(name, status)
	}
	return nil
}

// failure says that a function of the driver gave a status.
func (d *gpu) failure(name string, status int) error {
	return &device.FaultError{Err: fmt.Errorf("cuda: %s: %s", name, describe(d.driver, status))}
}

// do runs f on a thread on which the device's context is current.
func (d *gpu) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.call("cuCtxSetCurrent", d.context); err != nil {
		return err
	}
	return f()
}

// cString returns the text at a C string.
func cString(p *byte) string {
	var b strings.Builder
	for ; *p != 0; p = (*byte)(unsafe.Add(unsafe.Pointer(p), 1)) {
		b.WriteByte(*p)
	}
	return b.String()
}

// cBytes returns a string with a zero at the end.
func cBytes(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }

// address of memory that is not Go's.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
