package cpu

import (
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// ReadUnits is that of engine.Units.
func (x *instance) ReadUnits(buffer string, axis int, ids []int32) (*eval.Tensor, error) {
	b, err := engine.FindBuffer(x.exe.fused, buffer)
	if err != nil {
		return nil, err
	}
	u, err := engine.RunsOfUnits(b, axis, ids, false)
	if err != nil {
		return nil, err
	}
	s, n := x.states[b], u.Count*len(ids)*u.Length
	if s.words != nil {
		out := eval.Ints(s.dtype, u.Shape, make([]int64, n))
		u.Each(func(from, to int) { s.getWords(out.I[to:to+u.Length], from) })
		return out, nil
	}
	if s.slot.i != nil {
		out := eval.Ints(s.dtype, u.Shape, make([]int64, n))
		u.Each(func(from, to int) { copy(out.I[to:to+u.Length], s.slot.i[from:]) })
		return out, nil
	}
	out := eval.Floats(s.dtype, u.Shape, make([]float32, n))
	u.Each(func(from, to int) { s.get(out.F[to:to+u.Length], from) })
	return out, nil
}

// WriteUnits is that of engine.Units.
func (x *instance) WriteUnits(buffer string, axis int, ids []int32, content *eval.Tensor) error {
	b, err := engine.FindBuffer(x.exe.fused, buffer)
	if err != nil {
		return err
	}
	u, err := engine.RunsOfUnits(b, axis, ids, true)
	if err != nil {
		return err
	}
	if err := u.CheckUnits(b, content); err != nil {
		return err
	}
	s := x.states[b]
	u.Each(func(to, from int) {
		if s.words != nil {
			s.putWords(to, content.I[from:from+u.Length])
		} else if s.slot.i != nil {
			copy(s.slot.i[to:to+u.Length], content.I[from:])
		} else {
			s.put(to, content.F[from:from+u.Length])
		}
	})
	return nil
}

var _ engine.Units = (*instance)(nil)
