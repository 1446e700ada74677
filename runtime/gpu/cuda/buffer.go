//go:build (linux && !nocuda) || windows

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// buffer is memory of the GPU, or of the host.
type buffer struct {
	device  *gpu
	address uintptr
	size    int
	wrapped bool
	// borrowed says that the memory is a part of an upload's: see upload.go.
	borrowed bool
	host     pinned // where it is the host's, which has the same address on the GPU
	awaited  int    // the offset of the word of it that tells when it is written, or -1: see await
	pending  bool   // a launch that writes to the buffer may still run: nobody has waited for it
}

func (d *gpu) NewBuffer(size int) (device.Buffer, error) {
	b, err := d.allocate(size)
	if err != nil {
		return nil, err
	}
	if err := d.do(func() error {
		return d.call("cuMemsetD8Async", b.address, 0, uintptr(size),
			d.stream)
	}); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (d *gpu) NewHostBuffer(size int) (device.Buffer, error) {
	if size < 1 || size > device.MaxHostBuffer {
		return nil, fmt.Errorf("cuda: a buffer of %d bytes in the host's memory, want 1 to %d",
			size, device.MaxHostBuffer)
	}
	b := &buffer{device: d, size: size}
	if err := d.do(func() error { return b.host.open(d, (size+15)/16*16) }); err != nil {
		return nil, err
	}
	clear(b.host.bytes)
	b.address, b.awaited = b.host.address, -1
	return b, nil
}

func (d *gpu) allocate(size int) (*buffer, error) {
	if size < 1 || size > 1<<46 {
		return nil, fmt.Errorf("cuda: a buffer of %d bytes, want 1 to 2^46", size)
	}
	b := &buffer{device: d, size: size}
	// Kernels may read on to a multiple of 16.
	err := d.do(func() error {
		return d.call("cuMemAlloc_v2", uintptr(unsafe.Pointer(&b.address)), uintptr((size+15)/16*16))
	})
	if err != nil {
		return nil, fmt.Errorf("%w (a buffer of %d bytes; the GPU had %d free at the start)", err, size, d.info.Memory)
	}
	return b, nil
}

func (d *gpu) Wrap(memory []byte) (device.Buffer, error) {
	if len(memory) == 0 {
		return nil, errors.New("cuda: there is no memory to wrap")
	}
	b, err := d.allocate(len(memory))
	if err != nil {
		return nil, err
	}
	if err := b.Write(0, memory); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.wrapped = true
	return b, nil
}

func (b *buffer) Size() int { return b.size }

func (b *buffer) checkWrite(offset int, from []byte) error {
	return device.CheckWrite("cuda", offset, len(from), b.size, b.wrapped, b.host.bytes != nil)
}

func (b *buffer) Place(offset int, from []byte) error {
	d := b.device
	err := errors.Join(b.checkWrite(offset, from), device.CheckPlace("cuda", len(from)))
	if err != nil || len(from) == 0 {
		return err
	}
	return d.do(func() error { return d.beside.write(d, b.address+uintptr(offset), from) })
}

func (b *buffer) Write(offset int, from []byte) error {
	if err := b.checkWrite(offset, from); err != nil || len(from) == 0 {
		return err
	}
	d := b.device
	return d.do(func() error {
		if len(from) <= smallBytes {
			return d.small.write(d, b.address+uintptr(offset), from)
		}
		return d.large.write(d, b.address+uintptr(offset), from)
	})
}

func (b *buffer) Read(offset int, to []byte) error {
	if err := device.CheckRange("cuda: read", offset, len(to), b.size); err != nil {
		return err
	}
	if len(to) > smallBytes {
		d := b.device
		return d.do(func() error { return d.large.read(d, to, b.address+uintptr(offset)) })
	}
	if len(to) == 0 {
		return b.device.Wait()
	}
	f, err := b.Fetch(offset, len(to))
	if err != nil {
		return err
	}
	got, err := f.Bytes()
	copy(to, got)
	return err
}

// fetch is a read of the bytes at from, which are valid when an event of the ring has passed, or when word was written.
type fetch struct {
	device *gpu
	place  int
	from   []byte
	host   *buffer // where from is its memory
	word   *uint32 // nil for none
}

func (b *buffer) Fetch(offset, size int) (device.Fetch, error) {
	if err := device.CheckRange("cuda: fetch", offset, size, b.size); err != nil {
		return nil, err
	}
	if size < 1 || size > smallBytes {
		return nil, fmt.Errorf("cuda: fetch of %d bytes, want 1 to %d", size, smallBytes)
	}
	d := b.device
	f := fetch{device: d}
	err := d.do(func() (err error) {
		if b.host.bytes == nil {
			f.place, f.from, err = d.small.fetch(d, b.address+uintptr(offset), size)
			return err
		}
		f.from, f.host = b.host.bytes[offset:][:size], b
		if size == 4 && offset == b.awaited {
			f.word = b.word(offset)
		}
		f.place, err = d.small.mark(d)
		return err
	})
	return f, err
}

func (f fetch) Bytes() (out []byte, err error) {
	err = f.device.do(func() error {
		e := f.device.small.done[f.place]
		var err error
		if f.word != nil {
			err = f.device.glance(f.word, e)
		} else {
			err = e.wait(f.device)
		}
		if f.host != nil {
			f.host.pending = false
		}
		out = bytes.Clone(f.from)
		return err
	})
	return out, err
}

func (b *buffer) Close() error {
	if b.address == 0 {
		return nil
	}
	address := b.address
	if b.address = 0; b.borrowed {
		return nil
	}
	if b.host.bytes != nil {
		return b.device.do(func() error { return b.host.close(b.device) })
	}
	return b.device.do(func() error { return b.device.call("cuMemFree_v2", address) })
}
