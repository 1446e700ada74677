package reference

import (
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// ReadUnits is that of engine.Units.
func (x instance) ReadUnits(buffer string, axis int, ids []int32) ([]byte, error) {
	b, err := engine.FindBuffer(x.Module(), buffer)
	if err != nil {
		return nil, err
	}
	u, err := engine.RunsOfUnits(b, x.Precision(), axis, ids, false)
	if err != nil {
		return nil, err
	}
	return u.GatherTensor(x.Buffer(b)), nil
}

// WriteUnits is that of engine.Units. It writes a copy of the buffer: others may hold what a load gave of it.
func (x instance) WriteUnits(buffer string, axis int, ids []int32, content []byte) error {
	b, err := engine.FindBuffer(x.Module(), buffer)
	if err != nil {
		return err
	}
	u, err := engine.RunsOfUnits(b, x.Precision(), axis, ids, true)
	if err != nil {
		return err
	}
	if err := u.CheckUnits(content); err != nil {
		return err
	}
	s := x.Buffer(b).Clone()
	if err := u.ScatterTensor(s, content); err != nil {
		return err
	}
	x.SetBuffer(b, s)
	return nil
}

var _ engine.Units = instance{(*eval.Machine)(nil)}
