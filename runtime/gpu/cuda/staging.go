//go:build (linux && !nocuda) || windows

package cuda

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/etc-ml/etc/internal/fault"
)

// smallBytes is the size of a place in the ring: what a Write or a Fetch moves without a wait.
const smallBytes = 4096

// pinned is memory of the host that the device reads and writes by itself.
type pinned struct {
	address uintptr
	bytes   []byte
}

func (p *pinned) open(d *gpu, size int) error {
	if err := d.call("cuMemHostAlloc", uintptr(unsafe.Pointer(&p.address)), uintptr(size), 0); err != nil {
		return err
	}
	p.bytes = unsafe.Slice((*byte)(pointer(p.address)), size)
	return nil
}

func (p *pinned) close(d *gpu) error {
	if p.address == 0 {
		return nil
	}
	p.bytes = nil
	return d.call("cuMemFreeHost", p.address)
}

// event marks a place on the stream. One that was not recorded yet is past.
type event uintptr

func (e *event) open(d *gpu, flags uintptr) error {
	return d.call("cuEventCreate", uintptr(unsafe.Pointer(e)), flags)
}

func (e event) record(d *gpu) error { return d.call("cuEventRecord", uintptr(e), d.stream) }
func (e event) wait(d *gpu) error   { return d.call("cuEventSynchronize", uintptr(e)) }

// past reports whether the place was passed.
func (e event) past(d *gpu) (bool, error) {
	status := d.driver.result("cuEventQuery", uintptr(e))
	if status == 0 || status == statusNotReady {
		return status == 0, nil
	}
	return false, d.failure("cuEventQuery", status)
}

func (e event) close(d *gpu) error {
	if e == 0 {
		return nil
	}
	return d.call("cuEventDestroy_v2", uintptr(e))
}

// ring is pinned memory in small places that are used in turn. A half of the places for writes is free again when
// its event is past; every place for fetches has an event.
type ring struct {
	memory  pinned
	writes  int
	halves  [2]event
	fetches int
	done    [fetchPlaces]event
}

const (
	writePlaces = 128
	fetchPlaces = 16
)

func (r *ring) open(d *gpu) error {
	errs := []error{r.memory.open(d, (writePlaces+fetchPlaces)*smallBytes)}
	for i := range r.halves {
		errs = append(errs, r.halves[i].open(d, eventNoTiming))
	}
	for i := range r.done {
		errs = append(errs, r.done[i].open(d, eventNoTiming))
	}
	return errors.Join(errs...)
}

func (r *ring) close(d *gpu) error {
	errs := []error{r.memory.close(d)}
	for _, e := range append(r.halves[:], r.done[:]...) {
		errs = append(errs, e.close(d))
	}
	return errors.Join(errs...)
}

// write copies up to smallBytes to the device, in the stream's order.
func (r *ring) write(d *gpu, to uintptr, from []byte) error {
	const half = writePlaces / 2
	if r.writes%half == 0 {
		h := r.writes / half % 2
		if r.writes > 0 {
			if err := r.halves[1-h].record(d); err != nil {
				return err
			}
		}
		if err := r.halves[h].wait(d); err != nil {
			return err
		}
	}
	place := r.writes % writePlaces * smallBytes
	r.writes++
	copy(r.memory.bytes[place:], from)
	return d.call("cuMemcpyHtoDAsync_v2", to, r.memory.address+uintptr(place), uintptr(len(from)), d.stream)
}

// fetch copies up to smallBytes from the device, in the stream's order, to a place with an event: got, when that is
// past.
func (r *ring) fetch(d *gpu, from uintptr, size int) (place int, got []byte, err error) {
	at := (writePlaces + r.fetches%fetchPlaces) * smallBytes
	if err := d.call("cuMemcpyDtoHAsync_v2", r.memory.address+uintptr(at), from, uintptr(size), d.stream); err != nil {
		return 0, nil, err
	}
	place, err = r.mark(d)
	return place, r.memory.bytes[at:][:size], err
}

// mark records the event of the next place.
func (r *ring) mark(d *gpu) (place int, err error) {
	place = r.fetches % fetchPlaces
	r.fetches++
	return place, r.done[place].record(d)
}

// beside writes on a stream of its own, while work on the device's stream runs.
type beside struct {
	stream uintptr
	memory pinned
}

func (s *beside) open(d *gpu) error {
	return errors.Join(d.call("cuStreamCreate", uintptr(unsafe.Pointer(&s.stream)), streamNonBlocking),
		s.memory.open(d, smallBytes))
}

func (s *beside) close(d *gpu) error {
	err := s.memory.close(d)
	if s.stream != 0 {
		err = errors.Join(err, d.call("cuStreamDestroy_v2", s.stream))
	}
	return err
}

// write copies up to smallBytes to the device and waits until they are there.
func (s *beside) write(d *gpu, to uintptr, from []byte) error {
	copy(s.memory.bytes, from)
	if err := d.call("cuMemcpyHtoDAsync_v2", to, s.memory.address, uintptr(len(from)), s.stream); err != nil {
		return err
	}
	return d.call("cuStreamSynchronize", s.stream)
}

// staging is a few large places for what does not fit the ring: while the device copies one, the host fills
// the next.
type staging struct {
	memory pinned
	bytes  int // of a place
	done   [stagingPlaces]event
	next   int
}

const (
	stagingPlaces = 4
	stagingBytes  = 16 << 20
)

func (s *staging) open(d *gpu) error {
	s.bytes = stagingBytes
	errs := []error{}
	for i := range s.done {
		errs = append(errs, s.done[i].open(d, eventNoTiming))
	}
	return errors.Join(errs...)
}

func (s *staging) close(d *gpu) error {
	errs := []error{s.memory.close(d)}
	for _, e := range s.done {
		errs = append(errs, e.close(d))
	}
	return errors.Join(errs...)
}

// take returns the next place once the device is done with it. The memory is made when it is first needed.
func (s *staging) take(d *gpu) (place int, err error) {
	if s.memory.address == 0 {
		if err := s.memory.open(d, stagingPlaces*s.bytes); err != nil {
			return 0, err
		}
	}
	place = s.next
	s.next = (s.next + 1) % stagingPlaces
	return place, s.done[place].wait(d)
}

func (s *staging) write(d *gpu, to uintptr, from []byte) error {
	for len(from) > 0 {
		place, err := s.take(d)
		if err != nil {
			return err
		}
		n := min(len(from), s.bytes)
		parallelCopy(s.memory.bytes[place*s.bytes:][:n], from[:n])
		if err := d.call("cuMemcpyHtoDAsync_v2", to, s.memory.address+uintptr(place*s.bytes), uintptr(n),
			d.stream); err != nil {
			return err
		}
		if err := s.done[place].record(d); err != nil {
			return err
		}
		to, from = to+uintptr(n), from[n:]
	}
	return nil
}

// read copies from the device to memory; a piece is copied out while the next is on its way.
func (s *staging) read(d *gpu, to []byte, from uintptr) error {
	type piece struct {
		place int
		to    []byte
	}
	var waiting []piece
	collect := func() error {
		p := waiting[0]
		waiting = waiting[1:]
		if err := s.done[p.place].wait(d); err != nil {
			return err
		}
		parallelCopy(p.to, s.memory.bytes[p.place*s.bytes:][:len(p.to)])
		return nil
	}
	for len(to) > 0 {
		if len(waiting) == stagingPlaces-1 {
			if err := collect(); err != nil {
				return err
			}
		}
		place, err := s.take(d)
		if err != nil {
			return err
		}
		n := min(len(to), s.bytes)
		if err := d.call("cuMemcpyDtoHAsync_v2", s.memory.address+uintptr(place*s.bytes), from, uintptr(n),
			d.stream); err != nil {
			return err
		}
		if err := s.done[place].record(d); err != nil {
			return err
		}
		waiting = append(waiting, piece{place, to[:n]})
		to, from = to[n:], from+uintptr(n)
	}
	for len(waiting) > 0 {
		if err := collect(); err != nil {
			return err
		}
	}
	return nil
}

// parallelCopy copies with several threads: one alone does not fill the bus, all the less from a mapped file.
func parallelCopy(to, from []byte) {
	const least = 1 << 20
	parts := min(runtime.GOMAXPROCS(0), 8, max(1, len(to)/least))
	size := (len(to) + parts - 1) / parts
	var group fault.Group
	for i := 1; i < parts; i++ {
		group.Go(func() { copy(to[i*size:min(len(to), (i+1)*size)], from[i*size:]) })
	}
	copy(to[:min(size, len(to))], from)
	group.Wait()
}
