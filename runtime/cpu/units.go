package cpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// ReadUnits is that of engine.Units.
func (x *instance) ReadUnits(buffer string, axis int, ids []int32) ([]byte, error) {
	s, u, err := x.units(buffer, axis, ids, false)
	if err != nil {
		return nil, err
	}
	if raw := s.bytes(u.DType); raw != nil {
		return u.Gather(raw), nil
	}
	return u.GatherTensor(s.elements()), nil
}

// WriteUnits is that of engine.Units.
func (x *instance) WriteUnits(buffer string, axis int, ids []int32, content []byte) error {
	s, u, err := x.units(buffer, axis, ids, true)
	if err != nil {
		return err
	}
	if err := u.CheckUnits(content); err != nil {
		return err
	}
	if raw := s.bytes(u.DType); raw != nil {
		u.Scatter(raw, content)
		return nil
	}
	return u.ScatterTensor(s.elements(), content)
}

// units finds a buffer and the runs of some of its units.
func (x *instance) units(buffer string, axis int, ids []int32, leaveOut bool) (*state, engine.UnitRuns, error) {
	b, err := engine.FindBuffer(x.exe.fused, buffer)
	if err != nil {
		return nil, engine.UnitRuns{}, err
	}
	u, err := engine.RunsOfUnits(b, x.exe.precision, axis, ids, leaveOut)
	return x.states[b], u, err
}

// bytes returns the memory of a buffer where it holds elements of that dtype; nil where it holds them in another form.
func (s *state) bytes(d ir.DType) []byte {
	switch {
	case s.words != nil && d == ir.U32:
		return s.words
	case s.half != nil && d == ir.BF16:
		return s.half
	case s.slot.f != nil && d == ir.F32:
		return bytesOf(s.slot.f)
	}
	return nil
}

// elements returns a buffer that is held as float32 or int64 numbers, in its own memory.
func (s *state) elements() *eval.Tensor {
	return &eval.Tensor{DType: s.dtype, Shape: s.shape, F: s.slot.f, I: s.slot.i}
}

var _ engine.Units = (*instance)(nil)
