package device

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ErrUnavailable is wrapped by errors that say what a machine lacks: the device, its driver or a library.
var ErrUnavailable = errors.New("not available")

// FaultError is a failure that the driver of a device reports of a call which was right: a device that was lost, a
// kernel that ended early, memory that was short.
type FaultError struct{ Err error }

func (e *FaultError) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e *FaultError) Unwrap() error { return e.Err }

// CheckRange returns an error if size bytes at an offset do not lie in a buffer of this number of bytes. what begins
// the error.
func CheckRange(what string, offset, size, buffer int) error {
	if offset < 0 || size < 0 || offset > buffer-size {
		return fmt.Errorf("%s: bytes %d to %d of a buffer of %d", what, offset, offset+size, buffer)
	}
	return nil
}

// CheckWrite returns an error if [Buffer.Write] must refuse size bytes at an offset. buffer is the size of the buffer
// in bytes. A buffer of [Device.Wrap] (wrapped) and one of [HostWriter.NewHostBuffer] (host) refuse every write.
func CheckWrite(what string, offset, size, buffer int, wrapped, host bool) error {
	if err := CheckRange(what+": write", offset, size, buffer); err != nil {
		return err
	}
	if wrapped {
		return fmt.Errorf("%s: write to wrapped memory, which is only read", what)
	}
	if host {
		return fmt.Errorf("%s: write to a buffer of the host's memory, which kernels write to", what)
	}
	return nil
}

// CheckPlace returns an error if Place does not accept this number of bytes.
func CheckPlace(what string, size int) error {
	if size > MaxPlaced {
		return fmt.Errorf("%s: %d bytes to place, at most %d are possible", what, size, MaxPlaced)
	}
	return nil
}

// CheckDispatch checks of a dispatch what is the same for Metal, CUDA and the emulator: the grid, the threadgroup
// against the kernel, its memory against the device, the arguments against their buffers.
func CheckDispatch(i int, d Dispatch, info Info) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("dispatch %d (%s): %s", i, d.Label, fmt.Sprintf(format, args...))
	}
	if d.Kernel == nil {
		return fail("there is no kernel")
	}
	for _, n := range d.Groups {
		if n < 1 {
			return fail("the grid is %v threadgroups, every number must be at least 1", d.Groups)
		}
	}
	if d.Groups[0] > 1<<31-1 || d.Groups[1] > 1<<16-1 || d.Groups[2] > 1<<16-1 {
		return fail("the grid is %v threadgroups, at most 2147483647, 65535 and 65535 are possible", d.Groups)
	}
	threads := 1
	for _, n := range d.Threads {
		if n < 1 || n > 1024 {
			return fail("the threadgroup is %v threads, every number must be from 1 to 1024", d.Threads)
		}
		threads *= n
	}
	if limit := d.Kernel.MaxThreads(); threads > limit {
		return fail("the threadgroup has %d threads, kernel %s allows %d", threads, d.Kernel.Name(), limit)
	}
	if d.Memory < 0 || d.Memory > info.TransferMemory {
		return fail("TG_MEMORY of %d bytes, the device allows %d", d.Memory, info.TransferMemory)
	}
	if len(d.Arguments) > 31 {
		return fail("%d arguments, at most 31 are possible", len(d.Arguments))
	}
	for j, a := range d.Arguments {
		switch {
		case a.Bytes != nil && a.Buffer != nil:
			return fail("argument %d is a buffer and bytes", j)
		case a.Bytes != nil:
			if len(a.Bytes) == 0 || len(a.Bytes) > MaxBytes || len(a.Bytes)%4 != 0 {
				return fail("argument %d has %d bytes, want a multiple of 4 up to %d", j, len(a.Bytes), MaxBytes)
			}
		case a.Buffer == nil:
			return fail("argument %d is not set", j)
		case a.Offset < 0 || a.Offset >= a.Buffer.Size() || a.Offset%4 != 0:
			return fail("argument %d is at offset %d of a buffer of %d bytes, want a multiple of 4 within it", j,
				a.Offset, a.Buffer.Size())
		}
	}
	return nil
}

// CountArguments counts the buffers of a kernel in a text, kernel void or [[kernel]] void: the highest n of its
// [[buffer(n)]], and one. It is false where there is no such kernel.
func CountArguments(text, kernel string) (int, bool) {
	// Texts are long and regular expressions slow: one looks only at places where the name stands.
	for at := 0; ; at += len(kernel) {
		next := strings.Index(text[at:], kernel)
		if next < 0 || kernel == "" {
			return 0, false
		}
		at += next
		if !kernelBefore.MatchString(text[max(0, at-maxBefore):at]) || !openBehind.MatchString(text[at+len(kernel):]) {
			continue
		}
		parameters, _, _ := strings.Cut(text[at+len(kernel):], "{")
		count := 0
		for _, m := range bufferIndex.FindAllStringSubmatch(parameters, -1) {
			n, _ := strconv.Atoi(m[1])
			count = max(count, n+1)
		}
		return count, true
	}
}

// maxBefore is the number of bytes before a kernel's name that say that it is one.
const maxBefore = 64

var (
	kernelBefore = regexp.MustCompile(`\bkernel(?:\]\])?\s+void\s+$`)
	openBehind   = regexp.MustCompile(`^\s*\(`)
)

var bufferIndex = regexp.MustCompile(`\[\[buffer\((\d{1,3})\)\]\]`)
