//go:build darwin || linux

package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

var (
	selNewBuffer = sel("newBufferWithLength:options:")
	selNoCopy    = sel("newBufferWithBytesNoCopy:length:options:deallocator:")
	selContents  = sel("contents")
)

// window is one of Metal's buffers, and where in the memory it begins.
type window struct {
	buffer id
	start  int
	length int
}

// buffer is shared memory: one window, or several over long mapped memory.
type buffer struct {
	device  *gpu
	memory  []byte
	skip    int // of the first page, before memory
	windows []window
	wrapped bool
}

func (d *gpu) NewBuffer(size int) (device.Buffer, error) { return d.newBuffer(size) }

func (d *gpu) newBuffer(size int) (*buffer, error) {
	if size < 1 || size > d.maxBuffer-15 {
		return nil, fmt.Errorf("metal: a buffer of %d bytes, want 1 to %d", size, d.maxBuffer-15)
	}
	length := (size + 15) / 16 * 16 // kernels may read on so far
	b := id(send(d.device, selNewBuffer, uintptr(length), shared|untracked))
	if b == 0 {
		return nil, fmt.Errorf("metal: there is no memory for a buffer of %d bytes", size)
	}
	d.keepResident(selAddAllocation, b)
	memory := unsafe.Slice((*byte)(pointer(send(b, selContents))), length)
	clear(memory)
	return &buffer{device: d, memory: memory[:size:size], windows: []window{{b, 0, length}}}, nil
}

// cover returns the starts and the length of windows over memory: one, or several of the largest length that
// overlap by half.
func cover(size, largest, page int) (starts []int, length int) {
	if size <= largest {
		return []int{0}, size
	}
	length = largest / (2 * page) * (2 * page)
	for start := 0; ; start += length / 2 {
		starts = append(starts, start)
		if start+length >= size {
			return starts, length
		}
	}
}

func (d *gpu) Wrap(memory []byte) (device.Buffer, error) {
	if len(memory) == 0 {
		return nil, errors.New("metal: there is no memory to wrap")
	}
	page := os.Getpagesize()
	start := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	b := &buffer{device: d, memory: memory, skip: int(start % uintptr(page)), wrapped: true}
	if start%4 != 0 {
		return nil, fmt.Errorf("metal: wrapped memory begins at %#x, want a multiple of 4", start)
	}
	size := (b.skip + len(memory) + page - 1) / page * page
	starts, length := cover(size, d.maxBuffer, page)
	for _, s := range starts {
		length := min(length, size-s)
		w := id(send(d.device, selNoCopy, start-uintptr(b.skip)+uintptr(s), uintptr(length), shared|untracked, 0))
		if w == 0 { // not memory that Metal can map
			return b.copied()
		}
		d.keepResident(selAddAllocation, w)
		b.windows = append(b.windows, window{w, s, length})
	}
	return b, nil
}

// copied returns a copy of memory that could not be wrapped.
func (b *buffer) copied() (device.Buffer, error) {
	memory := b.memory
	if err := b.Close(); err != nil {
		return nil, err
	}
	c, err := b.device.newBuffer(len(memory))
	if err != nil {
		return nil, fmt.Errorf("%w; it is for a copy of memory that Metal does not map", err)
	}
	copy(c.memory, memory)
	c.wrapped = true
	return c, nil
}

// at returns the window with the most room after an offset, and the offset in it.
func (b *buffer) at(offset int) (id, int) {
	offset += b.skip
	w := b.windows[0]
	for _, next := range b.windows[1:] {
		if next.start <= offset {
			w = next
		}
	}
	return w.buffer, offset - w.start
}

func (b *buffer) Size() int { return len(b.memory) }

func (b *buffer) checkWrite(offset int, from []byte) error {
	return device.CheckWrite("metal", offset, len(from), len(b.memory), b.wrapped, false)
}

func (b *buffer) Place(offset int, from []byte) error {
	err := errors.Join(b.checkWrite(offset, from), device.CheckPlace("metal", len(from)))
	if err == nil {
		copy(b.memory[offset:], from)
	}
	return err
}

func (b *buffer) Write(offset int, from []byte) error {
	if err := b.checkWrite(offset, from); err != nil {
		return err
	}
	d := b.device
	if err := d.collect(); err != nil {
		return err
	}
	switch {
	case len(from) == 0:
	case d.submitted == d.completed && len(d.writes) == 0:
		copy(b.memory[offset:], from)
	case len(from) <= maxWrite:
		d.writes = append(d.writes, write{b, offset, bytes.Clone(from)})
	default:
		if err := d.Wait(); err != nil {
			return err
		}
		copy(b.memory[offset:], from)
	}
	return nil
}

func (b *buffer) Read(offset int, to []byte) error {
	if err := device.CheckRange("metal: read", offset, len(to), len(b.memory)); err != nil {
		return err
	}
	if err := b.device.Wait(); err != nil {
		return err
	}
	copy(to, b.memory[offset:])
	return nil
}

// fetch waits for the first commands of the timeline.
type fetch struct {
	buffer       *buffer
	offset, size int
	commands     int
}

func (b *buffer) Fetch(offset, size int) (device.Fetch, error) {
	if err := device.CheckRange("metal: fetch", offset, size, len(b.memory)); err != nil {
		return nil, err
	}
	d := b.device
	if len(d.writes) > 0 { // they come before it
		if err := d.Wait(); err != nil {
			return nil, err
		}
	}
	return fetch{b, offset, size, d.submitted}, nil
}

func (f fetch) Bytes() ([]byte, error) {
	if err := f.buffer.device.waitFor(f.commands); err != nil {
		return nil, err
	}
	return bytes.Clone(f.buffer.memory[f.offset:][:f.size]), nil
}

func (b *buffer) Close() error {
	for _, w := range b.windows {
		b.device.keepResident(selRemove, w.buffer)
		release(w.buffer)
	}
	if b.device.residency != 0 && len(b.windows) > 0 { // at once: mapped memory may go away next
		send(b.device.residency, selCommit)
	}
	b.windows, b.memory = nil, nil
	return nil
}
