package batch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

// This file saves and restores states of executors: see save.go.

// partBytes is about the size of a part. One part is copied between two calls, so running answers wait no longer for
// it.
const partBytes = 8 << 20

// Form implements PartSaver.
func (x *raggedExecutor) Form() string {
	form := fmt.Sprintf("blocks of %d positions", x.layout.BlockRows)
	if s := x.options.Storage.String(); s != "" {
		form += ", " + s
	}
	return form
}

// poolOf returns the pool that the units of a buffer belong to, and the axis of the buffer that counts them.
func (x *raggedExecutor) poolOf(name string) (cache.Pool, int) {
	is := func(b *ir.Buffer) bool { return b.Name == name }
	if slices.ContainsFunc(x.model.Slots, is) {
		return x.layout.SlotPool(), 0
	}
	for i, r := range x.model.Rings {
		if slices.ContainsFunc(r.Buffers, is) {
			return x.layout.RingPool(i), 1
		}
	}
	return cache.BlockPool, 1
}

// Parts implements PartSaver. A part is a run of units of one buffer, of about partBytes.
func (x *raggedExecutor) Parts(units []cache.Unit) ([]UnitPart, error) {
	if _, ok := x.instance.(engine.Units); !ok {
		return nil, ErrNotSavable
	}
	var out []UnitPart
	for _, b := range x.module.Buffers {
		pool, axis := x.poolOf(b.Name)
		one, err := engine.RunsOfUnits(b, x.precision, axis, []int32{0}, false)
		if err != nil {
			return nil, err
		}
		size := one.Len() * b.Type.DType.Size()
		for ids := range slices.Chunk(idsOf(units, pool), max(1, partBytes/max(1, size))) {
			u, err := engine.RunsOfUnits(b, x.precision, axis, ids, true)
			if err != nil {
				return nil, err
			}
			out = append(out, UnitPart{Part{b.Name, b.Type.DType, u.DType, u.Shape}, axis, ids})
		}
	}
	return out, nil
}

// SavePart implements PartSaver.
func (x *raggedExecutor) SavePart(p UnitPart) ([]byte, error) {
	content, err := x.instance.(engine.Units).ReadUnits(p.Buffer, p.Axis, p.IDs)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, ErrNotSavable
	}
	return content, err
}

// RestorePart implements PartSaver.
func (x *raggedExecutor) RestorePart(p UnitPart, content []byte) error {
	err := x.instance.(engine.Units).WriteUnits(p.Buffer, p.Axis, p.IDs, content)
	if errors.Is(err, errors.ErrUnsupported) {
		return ErrNotSavable
	}
	return err
}

func idsOf(units []cache.Unit, pool cache.Pool) []int32 {
	var ids []int32
	for _, u := range units {
		if u.Pool == pool {
			ids = append(ids, u.ID)
		}
	}
	return ids
}

// Form implements Saver.
func (x *oneByOne) Form() string { return "a session" }

// Save implements Saver. The only unit is a slot, whose content is a session.
func (x *oneByOne) Save(units []cache.Unit) ([]Part, [][]byte, error) {
	if len(units) != 1 {
		return nil, nil, fmt.Errorf("%d units of a sequence, want its slot", len(units))
	}
	s, err := x.session(units[0].ID)
	if err != nil {
		return nil, nil, err
	}
	snapshot, err := s.Snapshot()
	if err != nil {
		return nil, nil, x.failed(units[0].ID, err)
	}
	var parts []Part
	var contents [][]byte
	for i, state := range snapshot.States {
		t := *state.Tensor
		snapshot.States[i].Tensor = nil // the content takes its place
		p := Part{state.Buffer, t.DType, eval.StateDType(t.DType, x.model.Precision), t.Shape}
		t.DType = p.Stored
		parts, contents = append(parts, p), append(contents, t.Encode())
	}
	return parts, contents, nil
}

// Restore implements Saver.
func (x *oneByOne) Restore(tokens []int32, units []cache.Unit, parts []Part, contents [][]byte) error {
	if len(units) != 1 {
		return fmt.Errorf("%d units of a sequence, want its slot", len(units))
	}
	slot := units[0].ID
	if slot == cache.None {
		return nil
	}
	s, err := x.session(slot)
	if err != nil {
		return err
	}
	p := &session.Snapshot{}
	for i, part := range parts {
		if want := eval.StateDType(part.DType, x.model.Precision); part.Stored != want {
			return fmt.Errorf("buffer %q of the state is in %s, expected %s", part.Buffer, part.Stored, want)
		}
		t, err := eval.Decode(part.Stored, part.Shape, contents[i])
		if err != nil {
			return fmt.Errorf("buffer %q of the state: %w", part.Buffer, err)
		}
		t.DType = part.DType
		p.States = append(p.States, engine.State{Buffer: part.Buffer, Tensor: t})
	}
	for _, t := range tokens {
		p.Tokens = append(p.Tokens, int(t))
	}
	if err := x.model.CheckSnapshot(p); err != nil {
		return err
	}
	return x.failed(slot, s.Restore(p))
}
