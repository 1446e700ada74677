//go:build amd64 || arm64

package emulator

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// buffer is memory whose end, rounded up to a multiple of 16, is followed by a page that cannot be accessed; or memory
// of the caller.
type buffer struct {
	device  *emulator
	memory  []byte
	mapping []byte // what to unmap; nil for the caller's
	host    bool   // it was asked for as the host's
}

func (d *emulator) NewBuffer(size int) (device.Buffer, error) {
	if size < 1 || size > 1<<40 {
		return nil, fmt.Errorf("emulator: a buffer of %d bytes, want 1 to 2^40", size)
	}
	page := os.Getpagesize()
	padded := (size + 15) / 16 * 16
	whole := (padded + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, whole+page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("emulator: mapping a buffer of %d bytes: %w", size, err)
	}
	if err := syscall.Mprotect(all[whole:], syscall.PROT_NONE); err != nil {
		return nil, fmt.Errorf("emulator: protecting the end of a buffer: %w", err)
	}
	return &buffer{device: d, memory: all[whole-padded:][:size:size], mapping: all}, nil
}

// NewHostBuffer makes a buffer like NewBuffer, but refuses more.
func (d *emulator) NewHostBuffer(size int) (device.Buffer, error) {
	if size > device.MaxHostBuffer {
		return nil, fmt.Errorf("emulator: a buffer of %d bytes in the host's memory, want 1 to %d",
			size, device.MaxHostBuffer)
	}
	b, err := d.NewBuffer(size)
	if err == nil {
		b.(*buffer).host = true
	}
	return b, err
}

func (d *emulator) Wrap(memory []byte) (device.Buffer, error) {
	if len(memory) == 0 {
		return nil, fmt.Errorf("emulator: there is no memory to wrap")
	}
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(memory))); at%4 != 0 {
		return nil, fmt.Errorf("emulator: wrapped memory begins at %#x, want a multiple of 4", at)
	}
	return &buffer{device: d, memory: memory}, nil
}

func (b *buffer) Size() int { return len(b.memory) }

func (b *buffer) Write(offset int, from []byte) error {
	if err := b.checkWrite(offset, from); err != nil {
		return err
	}
	from = bytes.Clone(from)
	b.device.enqueue(func() error { copy(b.memory[offset:], from); return nil })
	return nil
}

// Place comes before all that has been submitted and did not run yet.
func (b *buffer) Place(offset int, from []byte) error {
	err := errors.Join(b.checkWrite(offset, from), device.CheckPlace("emulator", len(from)))
	if err == nil {
		copy(b.memory[offset:], from)
	}
	return err
}

func (b *buffer) checkWrite(offset int, from []byte) error {
	return device.CheckWrite("emulator", offset, len(from), len(b.memory), b.mapping == nil, b.host)
}

func (b *buffer) Read(offset int, to []byte) error {
	if err := device.CheckRange("emulator: read", offset, len(to), len(b.memory)); err != nil {
		return err
	}
	if err := b.device.Wait(); err != nil {
		return err
	}
	copy(to, b.memory[offset:])
	return nil
}

// fetch is read as late as the rules allow: after all that has been submitted when Bytes is called.
type fetch struct {
	buffer       *buffer
	offset, size int
}

func (b *buffer) Fetch(offset, size int) (device.Fetch, error) {
	if err := device.CheckRange("emulator: fetch", offset, size, len(b.memory)); err != nil {
		return nil, err
	}
	return fetch{b, offset, size}, nil
}

func (f fetch) Bytes() ([]byte, error) {
	to := make([]byte, f.size)
	return to, f.buffer.Read(f.offset, to)
}

func (b *buffer) Close() error {
	if b.mapping == nil {
		b.memory = nil
		return nil
	}
	all := b.mapping
	b.memory, b.mapping = nil, nil
	return syscall.Munmap(all)
}
