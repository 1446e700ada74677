package gpu

import (
	"fmt"

	"github.com/etc-ml/etc/runtime/engine"
)

// This file reads and writes parts of buffers: units (blocks or slots) of the pools that many sequences share.

// ReadUnits is that of engine.Units.
func (x *instance) ReadUnits(buffer string, axis int, ids []int32) ([]byte, error) {
	s, u, err := x.units(buffer, axis, ids, false)
	if err != nil {
		return nil, err
	}
	defer x.exe.timeline.Unlock()
	if s.host != nil {
		return u.GatherTensor(s.host), nil
	}
	memory, offset := x.locate(s.slot)
	size := u.DType.Size()
	out := make([]byte, u.Len()*size)
	err = eachRun(u, func(at, to, length int) error {
		return memory.Read(offset+at*size, out[to*size:(to+length)*size])
	})
	if err != nil {
		return nil, fmt.Errorf("buffer @%s: %w", buffer, err)
	}
	return out, nil
}

// WriteUnits is that of engine.Units.
func (x *instance) WriteUnits(buffer string, axis int, ids []int32, content []byte) error {
	s, u, err := x.units(buffer, axis, ids, true)
	if err != nil {
		return err
	}
	defer x.exe.timeline.Unlock()
	if err := u.CheckUnits(content); err != nil {
		return err
	}
	if s.host != nil {
		return u.ScatterTensor(s.host, content)
	}
	memory, offset := x.locate(s.slot)
	size := u.DType.Size()
	err = eachRun(u, func(at, from, length int) error {
		return memory.Write(offset+at*size, content[from*size:(from+length)*size])
	})
	if err != nil {
		return fmt.Errorf("buffer @%s: %w", buffer, err)
	}
	return nil
}

// units finds a buffer and the runs of some of its units. Where there is no error it has the timeline, and no call is
// begun. Buffers on the device have the dtype of contents: see newState.
func (x *instance) units(buffer string, axis int, ids []int32, leaveOut bool) (*state, engine.UnitRuns, error) {
	b, err := engine.FindBuffer(x.exe.fused, buffer)
	if err != nil {
		return nil, engine.UnitRuns{}, err
	}
	u, err := engine.RunsOfUnits(b, x.exe.precision, axis, ids, leaveOut)
	if err != nil {
		return nil, u, err
	}
	x.exe.timeline.Lock()
	if err := x.dropPending(); err != nil {
		x.exe.timeline.Unlock()
		return nil, u, err
	}
	return x.states[b], u, nil
}

// eachRun calls f with the offset in the buffer, the offset in the tensor and the length of each run. Runs that are
// contiguous in both, such as the blocks of a sequence that was alone, are merged.
func eachRun(u engine.UnitRuns, f func(buffer, tensor, length int) error) (err error) {
	at, to, length := 0, 0, 0
	flush := func() {
		if length > 0 && err == nil {
			err = f(at, to, length)
		}
	}
	u.Each(func(buffer, tensor int) {
		if length > 0 && buffer == at+length && tensor == to+length {
			length += u.Length
			return
		}
		flush()
		at, to, length = buffer, tensor, u.Length
	})
	flush()
	return err
}

var _ engine.Units = (*instance)(nil)
