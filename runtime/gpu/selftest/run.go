package selftest

import (
	"errors"
	"fmt"
	"math"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Result is the difference between a kernel's results and those of its reference implementation, relative to the
// largest result, and the bound for it. Of several results it is the one that is closest to its bound, or furthest
// beyond it.
type Result struct{ Difference, Bound float64 }

// Passed reports whether the difference is within the bound.
func (r Result) Passed() bool { return r.Difference <= r.Bound }

// errMemory says that the device has no memory for a self-test.
var errMemory = errors.New("no memory for the buffers")

// errLost says that the device cannot be used any more after a self-test.
var errLost = errors.New("the device does not recover from it")

// Run runs a case with the kernels that kernel returns. The caller has locked the device, which must have no pending
// error. If the case ends in an error of the device, Run clears it where possible, so that later tests are not
// affected.
func Run(d device.Device, c *kernels.Case, kernel func(kernels.Launch) (device.Kernel, error)) (r Result, err error) {
	buffers := map[*kernels.Buffer]device.Buffer{}
	defer func() {
		for _, b := range buffers {
			err = first(err, b.Close())
		}
	}()
	for _, b := range c.Buffers {
		m, err := d.NewBuffer(b.Size)
		if err != nil {
			return r, fmt.Errorf("%w: %w", errMemory, err)
		}
		buffers[b] = m
		for _, p := range b.Parts() {
			if err := m.Write(p.At, p.Content); err != nil {
				return r, err
			}
		}
	}
	var list []device.Dispatch
	for i, l := range c.Launches {
		k, err := kernel(l.Launch)
		if err != nil {
			return r, err
		}
		x := device.Dispatch{Label: l.Launch.Kernel, Kernel: k, Groups: l.Launch.Groups, Threads: l.Launch.Threads,
			Memory: l.Launch.Memory, Barrier: i > 0}
		for _, b := range l.Buffers {
			x.Arguments = append(x.Arguments, device.Argument{Binding: device.Binding{Buffer: buffers[b]}})
		}
		if l.Launch.Params != nil {
			x.Arguments = append(x.Arguments, device.Argument{Bytes: l.Launch.Params})
		}
		list = append(list, x)
	}
	s, err := d.Record(list)
	if err != nil {
		return r, err
	}
	defer func() { err = first(err, s.Close()) }()
	if err = s.Submit(); err == nil {
		err = d.Wait()
	}
	if err != nil {
		if d.Recover() != nil {
			err = fmt.Errorf("%w: %w", errLost, err)
		}
		return r, err
	}
	return compare(c.Wants(), func(w kernels.Want, p []byte) error { return buffers[w.Buffer].Read(w.At(), p) })
}

// first returns the first error. Later ones may be its consequences.
func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// compare compares the results, which read returns, with the expected ones.
func compare(wants []kernels.Want, read func(w kernels.Want, p []byte) error) (Result, error) {
	worst := Result{}
	excess := -1.0
	for _, w := range wants {
		p := make([]byte, w.Size())
		if err := read(w, p); err != nil {
			return worst, err
		}
		r := Result{w.Difference(p), w.Bound.SelfTest}
		over := r.Difference / math.Max(r.Bound, math.SmallestNonzeroFloat64)
		if over > excess {
			worst, excess = r, over
		}
	}
	return worst, nil
}
