package gpu_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
)

// uploader is the emulator as a device with memory of its own, which copies parts when they are asked for.
type uploader struct {
	device.Device
	mu      sync.Mutex
	parts   [][]byte
	wrapped [][]byte // what Wrap was called with, parts apart
	closed  int
	buffers map[int]device.Buffer
	refuse  error // of Upload
	fail    error // of Buffer
}

func (d *uploader) Wrap(memory []byte) (device.Buffer, error) {
	d.mu.Lock()
	d.wrapped = append(d.wrapped, memory)
	d.mu.Unlock()
	return d.Device.Wrap(memory)
}

func (d *uploader) Upload(parts [][]byte) (device.Upload, error) {
	if d.refuse != nil {
		return nil, d.refuse
	}
	d.parts, d.buffers = parts, map[int]device.Buffer{}
	return d, nil
}

func (d *uploader) Buffer(part int) (device.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	var err error
	if d.buffers[part] == nil {
		d.buffers[part], err = d.Device.Wrap(d.parts[part])
	}
	return d.buffers[part], err
}

// Close is the upload's, before that of the device.
func (d *uploader) Close() error {
	if d.closed++; d.closed == 1 && d.parts != nil {
		return nil
	}
	return d.Device.Close()
}

// mapped is data in memory, as that of a mapped file.
type mapped struct {
	ir.Data
	bytes []byte
}

func (m mapped) Bytes() []byte { return m.bytes }

// TestUploads: quantized weights go to a device that has memory of its own when it is opened, each once, and give the
// same results. One that cannot be copied is an error of the call. Where the device has no memory for all of them
// together, they are copied one by one.
func TestUploads(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: whole models on the emulator")
	}
	m := fusetest.Load(t, "etc-gemma4-chat-sample")
	for _, c := range m.Constants {
		p, err := ir.ReadData(c.Data)
		require.NoError(t, err)
		c.Data = mapped{c.Data, p}
	}
	e := emulated(t).(gpu.Engine)
	calls := []int{5, 1}
	want := runCalls(t, m, compile(t, e, m, engine.Options{Precision: eval.FP32}), calls)
	compileOn := func(d *uploader) engine.Executable {
		x, err := gpu.Engine{Device: e.Device, Open: func() (device.Device, error) {
			var err error
			d.Device, err = e.Open()
			return d, err
		}}.Compile(m, engine.Options{Precision: eval.FP32})
		require.NoError(t, err)
		return x
	}
	full := &uploader{refuse: errors.New("out of memory")}
	x := compileOn(full)
	i, err := x.NewInstance()
	require.NoError(t, err)
	requireClose(t, want, runCalls(t, m, i, calls), 0)
	require.NotEmpty(t, full.wrapped)
	require.NoError(t, i.Close())
	require.NoError(t, x.Close())
	require.Equal(t, 1, full.closed)
	for _, fail := range []error{nil, errors.New("the file was cut")} {
		d := &uploader{fail: fail}
		x := compileOn(d)
		require.NotEmpty(t, d.parts)
		i, err := x.NewInstance()
		require.NoError(t, err)
		if fail != nil {
			_, err := i.Run(t.Context(), fusetest.Inputs(m, 0, 5))
			require.ErrorIs(t, err, fail)
		} else {
			requireClose(t, want, runCalls(t, m, i, calls), 0)
			for _, p := range d.parts {
				for _, w := range d.wrapped {
					require.False(t, &p[0] == &w[0], "a part that is on its way is copied a second time")
				}
			}
			require.Greater(t, len(d.buffers), len(d.parts)*9/10, "what is copied is used")
		}
		require.NoError(t, i.Close())
		require.NoError(t, x.Close())
		require.Equal(t, 2, d.closed)
	}
}

// panicking is a device that panics after the copy of weights has begun.
type panicking struct{ *uploader }

func (d panicking) Info() device.Info { panic("no such device") }

// TestCompilePanics: a panic while a program is compiled ends the copy of its weights and closes the device.
func TestCompilePanics(t *testing.T) {
	m := fusetest.Load(t, "etc-gemma4-chat-sample")
	for _, c := range m.Constants {
		p, err := ir.ReadData(c.Data)
		require.NoError(t, err)
		c.Data = mapped{c.Data, p}
	}
	e, d := emulated(t).(gpu.Engine), &uploader{}
	e.Open = func(open func() (device.Device, error)) func() (device.Device, error) {
		return func() (_ device.Device, err error) {
			d.Device, err = open()
			return panicking{d}, err
		}
	}(e.Open)
	_, err := engine.Compile(e, m, engine.Options{Precision: eval.FP32})
	require.ErrorContains(t, err, "no such device")
	require.NotEmpty(t, d.parts)
	require.Equal(t, 2, d.closed, "the copy, then the device")
}
