package single

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/ragged"
)

// A snapshot has one slot of recurrent state, whatever number the engine needs and wherever the state lies: so it does
// not depend on the calls that led to it, and every engine can restore it.

// snapshotBuffers returns the buffers of snapshots.
func (x *executable) snapshotBuffers(model *ragged.Model) []*ir.Buffer {
	out := slices.Clone(x.module.Buffers)
	for i, b := range out {
		if x.slots > 1 && slices.ContainsFunc(model.Slots, func(s *ir.Buffer) bool { return s.Name == b.Name }) {
			one := *b
			one.Type.Shape = slices.Clone(b.Type.Shape)
			one.Type.Shape[0] = ir.Const(1)
			out[i] = &one
		}
	}
	return out
}

// stateful is an instance whose state can be copied and set.
type stateful struct {
	of    *instance
	inner engine.Stateful
}

// Snapshot copies the state: see engine.Stateful.
func (x stateful) Snapshot() ([]engine.State, error) {
	states, err := x.inner.Snapshot()
	if err != nil {
		return nil, err
	}
	for i, b := range x.of.exe.module.Buffers {
		if b == x.of.exe.buffers[i] {
			continue
		}
		t := *states[i].Tensor
		n := len(t.F) / t.Shape[0]
		t.Shape = slices.Clone(t.Shape)
		t.Shape[0], t.F = 1, slices.Clone(t.F[int(x.of.slot)*n:][:n]) // a copy, so that the other slot is not kept
		states[i].Tensor = &t
	}
	return states, nil
}

// Restore sets the state: see engine.Stateful. The recurrent state comes to the first slot.
func (x stateful) Restore(states []engine.State) error {
	exe := x.of.exe
	if err := engine.CheckStates(exe.buffers, states); err != nil {
		return err
	}
	states = slices.Clone(states)
	for i, b := range exe.module.Buffers {
		if b == exe.buffers[i] {
			continue
		}
		t := *states[i].Tensor
		t.Shape = slices.Clone(t.Shape)
		t.Shape[0], t.F = int(exe.slots), make([]float32, len(t.F)*int(exe.slots))
		copy(t.F, states[i].Tensor.F)
		states[i].Tensor = &t
	}
	if err := x.inner.Restore(states); err != nil {
		return err
	}
	x.of.slot = 0
	return nil
}
