package gpu

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// state is the content of an ir.Buffer. It lies on the device in float32, bfloat16 or codes of 8 bits. Integers, and
// floats of a width that kernels do not write, lie on the host.
type state struct {
	dtype ir.DType
	shape []int
	size  int

	slot   *slot
	format format
	coded  bool // rows of codes of 8 bits: see ir/cacherow.go
	host   *eval.Tensor
}

// kernelType returns the dtype of the content as kernels name it.
func (s *state) kernelType() kernels.DType {
	if s.coded {
		return kernels.U32
	}
	return s.format.kernelType()
}

// newStates allocates the buffers.
func (x *instance) newStates() error {
	x.exe.timeline.Lock()
	defer x.exe.timeline.Unlock()
	coded := plan.CodedCaches(x.exe.entries)
	for _, b := range x.exe.fused.Buffers {
		s, err := x.newState(b, coded[b])
		if err != nil {
			return err
		}
		x.states[b] = s
	}
	return nil
}

func (x *instance) newState(b *ir.Buffer, coded bool) (*state, error) {
	dims, _ := b.Type.Static()
	s := &state{dtype: b.Type.DType, coded: coded}
	for _, d := range dims {
		s.shape = append(s.shape, int(d))
	}
	s.size = strided.Elements(s.shape)
	if len(s.shape) > maxRank || ir.Elements(dims) > 1<<32 {
		return nil, fmt.Errorf("buffer @%s has type %s; at most %d dims and 2^32 elements are supported",
			b.Name, b.Type, maxRank)
	}
	mixed := x.exe.precision == eval.Mixed
	switch {
	case coded && s.size > 0:
		s.format = i32
	case !s.dtype.IsFloat() || s.size == 0 || mixed && s.dtype != ir.BF16 && s.dtype != ir.F32:
		t, err := eval.NewTensor(s.dtype, s.shape...)
		s.host = t
		return s, err
	case s.dtype == ir.BF16 && mixed:
		s.format = bf16
	}
	bytes := s.size * s.format.size()
	m, err := x.alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("buffer @%s: %w", b.Name, err)
	}
	s.slot = &slot{Slot: plan.Slot{Size: bytes}, buffer: m, state: true}
	return s, nil
}

// value returns the whole content as a value on the device.
func (s *state) value() *value {
	return &value{place: onDevice, dtype: s.dtype, shape: s.shape, slot: s.slot, format: s.format,
		stride: strided.RowMajor(s.shape)}
}

// readState copies the content to the host.
func (x *instance) readState(s *state) (*eval.Tensor, error) {
	if s.host != nil {
		return s.host.Clone(), nil
	}
	return x.read(s.value())
}

// writeState sets the content.
func (x *instance) writeState(s *state, t *eval.Tensor) error {
	if s.host != nil {
		s.host = t.Clone()
		return nil
	}
	return x.write(s.value(), t)
}

// updateState runs the reference kernel of an operation that writes the buffer: it copies the content to the host and
// back.
func (x *instance) updateState(s *state, c *eval.Call) ([]eval.Value, error) {
	if c.Op.Def.Name == "store" {
		t := c.Args[0][0].Tensor
		if t == nil || !slices.Equal(t.Shape, s.shape) {
			return nil, fmt.Errorf("store @%s: %v, want shape %v", c.Op.Buffer.Name, t, s.shape)
		}
		return nil, x.writeState(s, eval.ConvertState(t, s.dtype, c.Precision))
	}
	t, err := x.readState(s)
	if err != nil {
		return nil, err
	}
	out, err := eval.Update(c, t)
	if err != nil {
		return nil, err
	}
	return out, x.writeState(s, t)
}

// Reset sets every buffer to zeros.
func (x *instance) Reset() error {
	x.exe.timeline.Lock()
	defer x.exe.timeline.Unlock()
	if err := x.dropPending(); err != nil {
		return err
	}
	for _, b := range x.exe.fused.Buffers {
		s := x.states[b]
		if s.host != nil {
			clear(s.host.F)
			clear(s.host.I)
			continue
		}
		if err := x.clear(s.slot); err != nil {
			return fmt.Errorf("buffer @%s: %w", b.Name, err)
		}
	}
	return nil
}

// clear writes zeros to a slot.
func (x *instance) clear(s *slot) error {
	buffer, offset := x.locate(s)
	zeros := make([]byte, min(s.Size, 1<<20))
	for at := 0; at < s.Size; at += len(zeros) {
		if err := buffer.Write(offset+at, zeros[:min(len(zeros), s.Size-at)]); err != nil {
			return err
		}
	}
	return nil
}

// Snapshot copies the content of every buffer, in the order of the module.
func (x *instance) Snapshot() ([]engine.State, error) {
	x.exe.timeline.Lock()
	defer x.exe.timeline.Unlock()
	if err := x.dropPending(); err != nil {
		return nil, err
	}
	out := make([]engine.State, len(x.exe.fused.Buffers))
	for i, b := range x.exe.fused.Buffers {
		t, err := x.readState(x.states[b])
		if err != nil {
			return nil, fmt.Errorf("buffer @%s: %w", b.Name, err)
		}
		out[i] = engine.State{Buffer: b.Name, Tensor: t}
	}
	return out, nil
}

// Restore sets every buffer.
func (x *instance) Restore(states []engine.State) error {
	if err := engine.CheckStates(x.exe.fused.Buffers, states); err != nil {
		return err
	}
	x.exe.timeline.Lock()
	defer x.exe.timeline.Unlock()
	if err := x.dropPending(); err != nil {
		return err
	}
	for i, b := range x.exe.fused.Buffers {
		if err := x.writeState(x.states[b], states[i].Tensor); err != nil {
			return fmt.Errorf("buffer @%s: %w", b.Name, err)
		}
	}
	return nil
}
