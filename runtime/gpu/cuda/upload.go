//go:build (linux && !nocuda) || windows

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/runtime/gpu/device"
)

const (
	// uploadSlab is the size in bytes of a slab, an allocation that several parts of an upload lie in. To make and free
	// a few slabs takes less time than to make and free an allocation for each part. Tests set gpu.slab to another size.
	uploadSlab = 1 << 30
	// uploadAlign is the multiple in bytes at which a part begins in a slab.
	uploadAlign = 256
	// uploadPiece is the number of bytes that a worker copies at a time, uploadPlaces the number of pieces that it has
	// under way.
	uploadPiece, uploadPlaces = 2 << 20, 2
	// uploadWorkers is the largest number of workers: from there on the bus is full.
	uploadWorkers = 12
)

// upload is a device.Upload. The parts are divided into pieces, which several workers take in order. A worker has a
// stream and pinned memory of its own. It copies a piece to the pinned memory and starts the transfer to the device.
// While that runs, it copies the next piece.
type upload struct {
	device  *gpu
	parts   []uploadPart
	slabs   []*buffer
	next    atomic.Int64 // the number of the next piece
	stopped atomic.Bool
	workers sync.WaitGroup
	able    atomic.Int64 // workers that have not failed to get a stream and memory
}

// uploadPart is a part of an upload.
type uploadPart struct {
	from   []byte
	buffer *buffer
	first  int           // the number of its first piece
	left   atomic.Int64  // pieces that are not on the device yet; negative after fail, which has set err
	done   chan struct{} // closed when left is 0 or negative
	err    atomic.Pointer[error]
}

// Upload begins to copy parts of memory to the device: see device.Uploader.
func (d *gpu) Upload(parts [][]byte) (device.Upload, error) {
	u := &upload{device: d, parts: make([]uploadPart, len(parts))}
	pieces := 0
	for i, p := range parts {
		if len(p) == 0 {
			return nil, fmt.Errorf("cuda: part %d of an upload is empty", i)
		}
		u.parts[i].from, u.parts[i].first, u.parts[i].done = p, pieces, make(chan struct{})
		n := (len(p) + uploadPiece - 1) / uploadPiece
		u.parts[i].left.Store(int64(n))
		pieces += n
	}
	if err := u.allocate(); err != nil {
		return nil, errors.Join(err, u.free())
	}
	workers := min(runtime.GOMAXPROCS(0), uploadWorkers, pieces)
	u.able.Store(int64(workers))
	for range workers {
		u.workers.Go(func() {
			if err := fault.Run("copying weights to the GPU", u.work); err != nil {
				u.fail(err)
			}
		})
	}
	return u, nil
}

// allocate makes the slabs and the buffers of the parts in them. A part that is larger than a slab has one of its size.
func (u *upload) allocate() error {
	for first := 0; first < len(u.parts); {
		size, end := 0, first
		for ; end < len(u.parts); end++ {
			n := (len(u.parts[end].from) + uploadAlign - 1) / uploadAlign * uploadAlign
			if end > first && size+n > u.device.slab {
				break
			}
			size += n
		}
		slab, err := u.device.allocate(size)
		if err != nil {
			return err
		}
		u.slabs = append(u.slabs, slab)
		at := 0
		for ; first < end; first++ {
			n := len(u.parts[first].from)
			u.parts[first].buffer = &buffer{device: u.device, address: slab.address + uintptr(at), size: n, wrapped: true,
				borrowed: true}
			at += (n + uploadAlign - 1) / uploadAlign * uploadAlign
		}
	}
	return nil
}

// work copies pieces until there are no more. A worker that gets no stream or no pinned memory leaves them to the
// others; that is an error of the last one only.
func (u *upload) work() error {
	fault.Readable()
	return u.device.do(func() (err error) {
		w := uploadWorker{device: u.device}
		defer func() { err = errors.Join(err, w.close()) }() // also where a file that was cut panics
		if err := w.open(); err != nil {
			if u.able.Add(-1) > 0 {
				return nil
			}
			return err
		}
		for place := 0; !u.stopped.Load(); place = (place + 1) % uploadPlaces {
			if err := u.arrived(&w, place); err != nil {
				return err
			}
			part, at, more := u.piece(int(u.next.Add(1)) - 1)
			if !more {
				break
			}
			if err := w.copy(place, part, at); err != nil {
				return err
			}
		}
		for place := range w.of {
			err = errors.Join(err, u.arrived(&w, place))
		}
		return err
	})
}

// piece returns the part that a piece belongs to, and where the piece begins in it; more is false after the last one.
func (u *upload) piece(number int) (part *uploadPart, at int, more bool) {
	low, high := 0, len(u.parts) // the last part that begins at the piece or before it
	for high-low > 1 {
		if middle := (low + high) / 2; u.parts[middle].first <= number {
			low = middle
		} else {
			high = middle
		}
	}
	part = &u.parts[low]
	at = (number - part.first) * uploadPiece
	return part, at, at < len(part.from)
}

// arrived waits for the piece in a worker's place, if there is one, and counts it.
func (u *upload) arrived(w *uploadWorker, place int) error {
	part := w.of[place]
	if part == nil {
		return nil
	}
	w.of[place] = nil
	if err := w.done[place].wait(w.device); err != nil {
		return err
	}
	if part.left.Add(-1) == 0 {
		close(part.done)
	}
	return nil
}

// fail ends the upload. The parts that have not arrived give the error.
func (u *upload) fail(err error) {
	u.stopped.Store(true)
	for i := range u.parts {
		p := &u.parts[i]
		for n := p.left.Load(); n > 0; n = p.left.Load() {
			if p.err.Store(&err); p.left.CompareAndSwap(n, -1) {
				close(p.done)
			}
		}
	}
}

// Buffer waits until a part is on the device.
func (u *upload) Buffer(i int) (device.Buffer, error) {
	p := &u.parts[i]
	<-p.done
	if p.left.Load() < 0 {
		return nil, *p.err.Load()
	}
	return p.buffer, nil
}

// Close ends what is under way and frees the memory of all parts.
func (u *upload) Close() error {
	u.stopped.Store(true)
	u.workers.Wait()
	return u.free()
}

func (u *upload) free() (err error) {
	for _, s := range u.slabs {
		err = errors.Join(err, s.Close())
	}
	u.slabs = nil
	return err
}

// uploadWorker is a stream and the memory that it copies from.
type uploadWorker struct {
	device *gpu
	stream uintptr
	memory pinned
	done   [uploadPlaces]event
	of     [uploadPlaces]*uploadPart // whose piece is in the place
}

func (w *uploadWorker) open() error {
	d := w.device
	err := errors.Join(d.call("cuStreamCreate", uintptr(unsafe.Pointer(&w.stream)), streamNonBlocking),
		w.memory.open(d, uploadPlaces*uploadPiece))
	for i := range w.done {
		err = errors.Join(err, w.done[i].open(d, eventNoTiming))
	}
	return err
}

// copy brings the piece of a part that begins at an offset to the device, by way of a place.
func (w *uploadWorker) copy(place int, part *uploadPart, at int) error {
	memory := w.memory.bytes[place*uploadPiece:]
	n := copy(memory[:uploadPiece], part.from[at:])
	if err := w.device.call("cuMemcpyHtoDAsync_v2", part.buffer.address+uintptr(at),
		uintptr(unsafe.Pointer(&memory[0])), uintptr(n), w.stream); err != nil {
		return err
	}
	w.of[place] = part
	return w.device.call("cuEventRecord", uintptr(w.done[place]), w.stream)
}

// close waits for the copies under way, and gives everything up.
func (w *uploadWorker) close() error {
	var err error
	if w.stream != 0 {
		err = errors.Join(w.device.call("cuStreamSynchronize", w.stream), w.device.call("cuStreamDestroy_v2", w.stream))
	}
	for _, e := range w.done {
		err = errors.Join(err, e.close(w.device))
	}
	return errors.Join(err, w.memory.close(w.device))
}
