//go:build darwin || linux

package host

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Constants of Metal.
const (
	familyApple7     = 1007 // M1: the first with simdgroup matrices and what else the kernels need
	language31       = 3<<16 | 1
	mathSafe         = 0
	functionsPrecise = 1 // MTLMathFloatingPointFunctionsPrecise: what has no precise:: or fast:: before it
	shared           = 0
	untracked        = 1 << 8
	dispatchOverlap  = 1 // MTLDispatchTypeConcurrent
	scopeBuffers     = 1
	statusCompleted  = 4
	statusError      = 5
)

var (
	selName            = sel("name")
	selFamily          = sel("supportsFamily:")
	selMaxBuffer       = sel("maxBufferLength")
	selWorkingSet      = sel("recommendedMaxWorkingSetSize")
	selMaxThreadgroup  = sel("maxThreadgroupMemoryLength")
	selNewQueue        = sel("newCommandQueue")
	selNewFence        = sel("newFence")
	selNewResidency    = sel("newResidencySetWithDescriptor:error:")
	selAddResidencySet = sel("addResidencySet:")
	selAddAllocation   = sel("addAllocation:")
	selRemove          = sel("removeAllocation:")
	selCommit          = sel("commit")
	selRequest         = sel("requestResidency")
)

// gpu is a device with its queue.
type gpu struct {
	device, queue, fence id
	residency            id // a set of all buffers; 0 before macOS 15
	residencyChanged     bool
	maxBuffer            int
	info                 device.Info

	writeLibrary *library
	write        *kernel
	writes       []write // for the next Submit

	running   []id // command buffers in order, retained
	submitted int  // how many there were
	completed int
	err       error // of a command buffer: it stays until Recover
}

// Open makes the device of the system's default GPU.
func Open(libraries Libraries) (device.Device, error) {
	if err := load(libraries); err != nil {
		return nil, err
	}
	d := &gpu{}
	if err := pool(d.start); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	library, err := d.compile(device.Source{Name: "write", Text: writeText})
	if err != nil { // below macOS 14
		return nil, errors.Join(fmt.Errorf("%w: %w", err, device.ErrUnavailable), d.Close())
	}
	d.writeLibrary = library
	if d.write, err = library.kernel("put_bytes"); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *gpu) start() error {
	address, _, _ := purego.SyscallN(objc.device)
	if d.device = id(address); d.device == 0 {
		return fmt.Errorf("metal: the system has no GPU for Metal: %w", device.ErrUnavailable)
	}
	name := goString(id(send(d.device, selName)))
	if byte(send(d.device, selFamily, familyApple7)) == 0 {
		return fmt.Errorf("metal: %s is not of Apple's GPU family 7 (M1) or later: %w", name, device.ErrUnavailable)
	}
	if d.queue = id(send(d.device, selNewQueue)); d.queue == 0 {
		return errors.New("metal: newCommandQueue gives none")
	}
	if d.fence = id(send(d.device, selNewFence)); d.fence == 0 {
		return errors.New("metal: newFence gives none")
	}
	d.maxBuffer = int(send(d.device, selMaxBuffer))
	d.info = device.Info{
		Description: name, Machine: kernels.Machine{Target: kernels.Metal},
		Memory:            int64(send(d.device, selWorkingSet)),
		ThreadgroupMemory: int(send(d.device, selMaxThreadgroup)), MaxThreads: 1024, Unified: true,
	}
	if !responds(d.device, selNewResidency) { // macOS 14
		return nil
	}
	descriptor := id(send(class("MTLResidencySetDescriptor"), selNew))
	defer release(descriptor)
	var failure id
	d.residency = id(send(d.device, selNewResidency, uintptr(descriptor), uintptr(unsafe.Pointer(&failure))))
	if d.residency == 0 {
		return fmt.Errorf("metal: a residency set: %w", nsError(failure))
	}
	send(d.queue, selAddResidencySet, uintptr(d.residency))
	return nil
}

// keepResident adds a buffer to what stays resident, or removes it.
func (d *gpu) keepResident(change *selector, buffer id) {
	if d.residency != 0 {
		send(d.residency, change, uintptr(buffer))
		d.residencyChanged = true
	}
}

func (d *gpu) Name() string { return "metal" }

func (d *gpu) Info() device.Info { return d.info }

func (d *gpu) Close() error {
	var err error
	if d.queue != 0 {
		err = d.Wait()
	}
	if d.write != nil {
		err = errors.Join(err, d.write.Close())
	}
	if d.writeLibrary != nil {
		err = errors.Join(err, d.writeLibrary.Close())
	}
	release(d.residency, d.fence, d.queue, d.device)
	*d = gpu{}
	return err
}
