package gpu

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/strided"
)

// This file reads and writes parts of buffers: units of the pools of many sequences.

// ReadUnits is that of engine.Units.
func (x *instance) ReadUnits(buffer string, axis int, ids []int32) (*eval.Tensor, error) {
	s, _, u, err := x.units(buffer, axis, ids, false)
	if err != nil {
		return nil, err
	}
	defer x.exe.timeline.Unlock()
	n := u.Count * len(ids) * u.Length
	if s.host != nil {
		out := &eval.Tensor{DType: s.dtype, Shape: u.Shape}
		if s.host.I != nil {
			out.I = make([]int64, n)
			u.Each(func(from, to int) { copy(out.I[to:to+u.Length], s.host.I[from:]) })
		} else {
			out.F = make([]float32, n)
			u.Each(func(from, to int) { copy(out.F[to:to+u.Length], s.host.F[from:]) })
		}
		return out, nil
	}
	memory, offset := x.locate(s.slot)
	raw, size := make([]byte, n*s.format.size()), s.format.size()
	err = eachRun(u, func(at, to, length int) error {
		return memory.Read(offset+at*size, raw[to*size:(to+length)*size])
	})
	if err != nil {
		return nil, fmt.Errorf("buffer @%s: %w", buffer, err)
	}
	dense := value{dtype: s.dtype, format: s.format, shape: u.Shape}
	dense.stride = strided.RowMajor(u.Shape)
	return dense.decode(raw)
}

// WriteUnits is that of engine.Units.
func (x *instance) WriteUnits(buffer string, axis int, ids []int32, content *eval.Tensor) error {
	s, b, u, err := x.units(buffer, axis, ids, true)
	if err != nil {
		return err
	}
	defer x.exe.timeline.Unlock()
	if err := u.CheckUnits(b, content); err != nil {
		return err
	}
	if s.host != nil {
		u.Each(func(to, from int) {
			if s.host.I != nil {
				copy(s.host.I[to:to+u.Length], content.I[from:])
			} else {
				copy(s.host.F[to:to+u.Length], content.F[from:])
			}
		})
		return nil
	}
	memory, offset := x.locate(s.slot)
	raw, size := encode(s.format, content), s.format.size()
	err = eachRun(u, func(at, from, length int) error {
		return memory.Write(offset+at*size, raw[from*size:(from+length)*size])
	})
	if err != nil {
		return fmt.Errorf("buffer @%s: %w", buffer, err)
	}
	return nil
}

// units finds a buffer and the runs of some of its units. Where there is no error it has the timeline, and no call is
// begun.
func (x *instance) units(buffer string, axis int, ids []int32, leaveOut bool) (*state, *ir.Buffer,
	engine.UnitRuns, error) {
	b, err := engine.FindBuffer(x.exe.fused, buffer)
	if err != nil {
		return nil, nil, engine.UnitRuns{}, err
	}
	u, err := engine.RunsOfUnits(b, axis, ids, leaveOut)
	if err != nil {
		return nil, nil, u, err
	}
	x.exe.timeline.Lock()
	if err := x.undo(); err != nil {
		x.exe.timeline.Unlock()
		return nil, nil, u, err
	}
	return x.states[b], b, u, nil
}

// eachRun calls f with the runs in the buffer and in the tensor, and their length. Those that lie one behind the other
// in both, such as blocks of a sequence that came alone, are one.
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
