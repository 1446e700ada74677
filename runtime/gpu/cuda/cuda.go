//go:build (linux && !nocuda) || windows

package cuda

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// staticMemory is the size in bytes that a kernel's arrays may have in addition to its TG_MEMORY.
const staticMemory = 2048

// transferLeast is what device.Info says of it, found on an H100 with 12 layers of two models. Between a kernel with
// much dynamic shared memory and one with little, a multiprocessor divides its memory anew, for which it must be empty.
const transferLeast = 16 << 20

// gpu is a device with its stream.
type gpu struct {
	driver   *api
	compiler *compiler
	number   int32
	context  uintptr
	stream   uintptr
	overlap  bool // whether kernels may start early, see startEarly
	info     device.Info
	small    ring
	beside   beside
	large    staging
	slab     int // bytes, see uploadSlab

	products    sync.Mutex // guards what follows
	multiplier  *cublas
	productsErr error
}

// Open makes the device of a GPU. Its error wraps device.ErrUnavailable and says what is missing where there is
// no GPU, no driver or no NVRTC.
func Open(options Options) (device.Device, error) {
	driver, err := driver()
	if err != nil {
		return nil, err
	}
	d := &gpu{driver: driver, slab: uploadSlab}
	var count int32
	if err := d.call("cuDeviceGetCount", uintptr(unsafe.Pointer(&count))); err != nil {
		return nil, err
	}
	if options.Device < 0 || options.Device >= int(count) {
		return nil, fmt.Errorf("cuda: there is no GPU %d, the driver has %d: %w", options.Device,
			count, device.ErrUnavailable)
	}
	if err := d.call("cuDeviceGet", uintptr(unsafe.Pointer(&d.number)), uintptr(options.Device)); err != nil {
		return nil, err
	}
	attribute := map[uintptr]int{attributeMaxThreads: 0, attributeSharedMemory: 0, attributeMultiprocessors: 0,
		attributeMajor: 0, attributeMinor: 0, attributeMostSharedMemory: 0}
	for a := range attribute {
		var value int32
		if err := d.call("cuDeviceGetAttribute", uintptr(unsafe.Pointer(&value)), a, uintptr(d.number)); err != nil {
			return nil, err
		}
		attribute[a] = int(value)
	}
	if d.compiler, err = newCompiler(options.Cache, attribute[attributeMajor], attribute[attributeMinor]); err != nil {
		return nil, err
	}
	d.overlap = attribute[attributeMajor] >= 9 && driver.has("cuGraphAddDependencies_v2")
	if err := d.call("cuDevicePrimaryCtxRetain", uintptr(unsafe.Pointer(&d.context)), uintptr(d.number)); err != nil {
		return nil, err
	}
	if err := d.do(func() error { return d.start(attribute) }); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// start makes what needs the context.
func (d *gpu) start(attribute map[uintptr]int) error {
	name := make([]byte, 256)
	var free, total uint64
	var version int32
	err := d.call("cuDeviceGetName", uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)-1), uintptr(d.number))
	if err == nil {
		err = d.call("cuMemGetInfo_v2", uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	}
	if err == nil {
		err = d.call("cuDriverGetVersion", uintptr(unsafe.Pointer(&version)))
	}
	if err == nil {
		err = d.call("cuStreamCreate", uintptr(unsafe.Pointer(&d.stream)), streamNonBlocking)
	}
	if err == nil {
		err = d.small.open(d)
	}
	if err == nil {
		err = d.beside.open(d)
	}
	if err == nil {
		err = d.large.open(d)
	}
	if err != nil {
		return err
	}
	product, _, _ := strings.Cut(string(name), "\x00")
	d.info = device.Info{
		Description: fmt.Sprintf("%s, CUDA %d.%d, NVRTC %s", product, version/1000,
			version%1000/10, d.compiler.version),
		Machine:           kernels.Machine{Target: kernels.CUDA, Cores: attribute[attributeMultiprocessors]},
		Memory:            int64(free),
		ThreadgroupMemory: attribute[attributeSharedMemory], MaxThreads: attribute[attributeMaxThreads],
	}
	if d.compiler.transfers {
		d.info.TransferMemory, d.info.TransferLeast = max(0, attribute[attributeMostSharedMemory]-staticMemory),
			transferLeast
	}
	d.info.Groups = d.compiler.groups
	return nil
}

func (d *gpu) Name() string { return "cuda" }

func (d *gpu) Info() device.Info { return d.info }

func (d *gpu) Wait() error {
	return d.do(func() error { return d.call("cuStreamSynchronize", d.stream) })
}

// Recover returns the error again: the driver keeps an error of a kernel in the context, which all of the process
// share, and gives it for every call until the process ends.
func (d *gpu) Recover() error { return d.Wait() }

func (d *gpu) Close() error {
	if d.context == 0 {
		return nil
	}
	err := d.do(func() error {
		var errs []error
		if d.stream != 0 {
			errs = append(errs, d.call("cuStreamSynchronize", d.stream))
		}
		if d.multiplier != nil {
			errs = append(errs, d.multiplier.close(d))
		}
		errs = append(errs, d.small.close(d), d.beside.close(d), d.large.close(d))
		if d.stream != 0 {
			errs = append(errs, d.call("cuStreamDestroy_v2", d.stream))
		}
		return errors.Join(append(errs, d.call("cuCtxSetCurrent", 0))...)
	})
	d.context = 0
	return errors.Join(err, d.call("cuDevicePrimaryCtxRelease_v2", uintptr(d.number)))
}
