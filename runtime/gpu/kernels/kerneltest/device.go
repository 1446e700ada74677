package kerneltest

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/cuda"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/metal"
)

// deviceName is the device that runs kernels instead of the emulator, or "".
func deviceName() string { return os.Getenv("ETC_KERNELTEST_DEVICE") }

// hosts are the devices that ETC_KERNELTEST_DEVICE names.
var hosts = map[string]func() (device.Device, error){
	"cuda":  func() (device.Device, error) { return cuda.Open(cuda.Options{}) },
	"metal": metal.Open,
}

var openDevice = sync.OnceValues(func() (device.Device, error) {
	host := hosts[deviceName()]
	if host == nil {
		return nil, fmt.Errorf("ETC_KERNELTEST_DEVICE: there is no device %q", deviceName())
	}
	return host()
})

// timeline guards the device, whose calls must not overlap.
var timeline sync.Mutex

// OnMetal reports whether ETC_KERNELTEST_DEVICE names Metal.
func OnMetal() bool { return deviceName() == "metal" }

// RunOnMetal runs a kernel of a text for Metal that is not one of package kernels, and leaves the results in the
// buffers.
func RunOnMetal(t testing.TB, text string, l kernels.Launch, buffers ...any) {
	t.Helper()
	require.True(t, OnMetal())
	d, err := openDevice()
	require.NoError(t, err)
	require.NoError(t, runOnDevice(d, text, l, buffers))
}

// runOnDevice runs a launch of a text's kernel on the device and leaves the results in the buffers.
func runOnDevice(d device.Device, text string, l kernels.Launch, buffers []any) (err error) {
	library, err := d.Compile(device.Source{Name: cmp.Or(l.File, l.Kernel) + ".metal", Text: text})
	if err != nil {
		return err
	}
	timeline.Lock()
	defer timeline.Unlock()
	defer func() { err = firstError(err, library.Close()) }()
	kernel, err := library.Kernel(l.Kernel)
	if err != nil {
		return err
	}
	x := device.Dispatch{Label: l.Kernel, Kernel: kernel, Groups: l.Groups, Threads: l.Threads, Memory: l.Memory}
	memory := make([][]byte, len(buffers))
	for i, b := range buffers {
		memory[i] = raw(b)
		if first := slices.IndexFunc(memory[:i],
			func(other []byte) bool { return same(other, memory[i]) }); first >= 0 {
			x.Arguments = append(x.Arguments, x.Arguments[first])
			continue
		}
		buffer, err := d.NewBuffer(max(1, len(memory[i])))
		if err != nil {
			return err
		}
		defer buffer.Close()
		if err := buffer.Write(0, memory[i]); err != nil {
			return err
		}
		x.Arguments = append(x.Arguments, device.Argument{Binding: device.Binding{Buffer: buffer}})
	}
	if l.Params != nil {
		x.Arguments = append(x.Arguments, device.Argument{Bytes: l.Params})
	}
	s, err := d.Record([]device.Dispatch{x})
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, s.Close()) }()
	err = s.Submit()
	for i := 0; err == nil && i < len(buffers); i++ {
		err = x.Arguments[i].Buffer.Read(0, memory[i])
	}
	if err != nil {
		_ = d.Recover() // other tests go on, if they can
	}
	return err
}

// firstError is the first error.
func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// same reports whether two slices are the same memory.
func same(a, b []byte) bool { return len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] }
