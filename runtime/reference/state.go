package reference

import (
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// Snapshot copies the content of every buffer.
func (x instance) Snapshot() ([]engine.State, error) {
	var out []engine.State
	for _, b := range x.Module().Buffers {
		out = append(out, engine.State{Buffer: b.Name, Tensor: x.Buffer(b).Clone()})
	}
	return out, nil
}

// Restore sets every buffer.
func (x instance) Restore(states []engine.State) error {
	buffers := x.Module().Buffers
	if err := engine.CheckStates(buffers, states); err != nil {
		return err
	}
	for i, b := range buffers {
		x.SetBuffer(b, states[i].Tensor.Clone())
	}
	return nil
}

var _ engine.Stateful = instance{(*eval.Machine)(nil)}
