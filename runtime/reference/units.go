package reference

import (
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// ReadUnits is that of engine.Units.
func (x instance) ReadUnits(buffer string, axis int, ids []int32) (*eval.Tensor, error) {
	b, err := engine.FindBuffer(x.Module(), buffer)
	if err != nil {
		return nil, err
	}
	u, err := engine.RunsOfUnits(b, axis, ids, false)
	if err != nil {
		return nil, err
	}
	s, n := x.Buffer(b), u.Count*len(ids)*u.Length
	if s.I != nil {
		out := eval.Ints(s.DType, u.Shape, make([]int64, n))
		u.Each(func(from, to int) { copy(out.I[to:to+u.Length], s.I[from:]) })
		return out, nil
	}
	out := eval.Floats(s.DType, u.Shape, make([]float32, n))
	u.Each(func(from, to int) { copy(out.F[to:to+u.Length], s.F[from:]) })
	return out, nil
}

// WriteUnits is that of engine.Units. It writes a copy of the buffer: others may hold what a load gave of it.
func (x instance) WriteUnits(buffer string, axis int, ids []int32, content *eval.Tensor) error {
	b, err := engine.FindBuffer(x.Module(), buffer)
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
	s := x.Buffer(b).Clone()
	u.Each(func(to, from int) {
		if s.I != nil {
			copy(s.I[to:to+u.Length], content.I[from:])
		} else {
			copy(s.F[to:to+u.Length], content.F[from:])
		}
	})
	x.SetBuffer(b, s)
	return nil
}

var _ engine.Units = instance{(*eval.Machine)(nil)}
