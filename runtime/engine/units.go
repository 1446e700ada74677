package engine

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// UnitRuns describes where some indices of an axis of a buffer lie: index i has Count runs of Length elements; the
// first starts at At[i], each further one Stride elements later.
type UnitRuns struct {
	At                    []int
	Length, Stride, Count int
	// Shape is the shape of the tensor that holds all of them.
	Shape []int
	// DType is that of the elements of a content, see [Units].
	DType ir.DType

	buffer *ir.Buffer
}

// RunsOfUnits finds the runs of indices of an axis of a buffer, as an instance of a precision has them. The error names
// an index that the axis has not. Negative indices, where none may be left out, are such.
func RunsOfUnits(b *ir.Buffer, p eval.Precision, axis int, ids []int32, leaveOut bool) (UnitRuns, error) {
	dims, static := b.Type.Static()
	if !static || axis < 0 || axis >= len(dims) {
		return UnitRuns{}, fmt.Errorf("buffer @%s of type %s has no axis %d of units", b.Name, b.Type, axis)
	}
	u := UnitRuns{Length: 1, Count: 1, DType: eval.StateDType(b.Type.DType, p), buffer: b}
	for i, d := range dims {
		n := int(d)
		switch {
		case i < axis:
			u.Count *= n
		case i > axis:
			u.Length *= n
		}
		u.Shape = append(u.Shape, n)
	}
	units := u.Shape[axis]
	u.Stride, u.Shape[axis] = units*u.Length, len(ids)
	for _, id := range ids {
		if int(id) >= units || id < 0 && !leaveOut {
			return UnitRuns{}, fmt.Errorf("unit %d of buffer @%s, which has %d", id, b.Name, units)
		}
		u.At = append(u.At, int(id)*u.Length)
	}
	return u, nil
}

// Each calls f with the offset of every run in the buffer and in the tensor. Skipped indices have no runs.
func (u UnitRuns) Each(f func(buffer, tensor int)) {
	for c := range u.Count {
		for i, at := range u.At {
			if at >= 0 {
				f(c*u.Stride+at, (c*len(u.At)+i)*u.Length)
			}
		}
	}
}

// Len returns the number of elements of all of them.
func (u UnitRuns) Len() int { return u.Count * len(u.At) * u.Length }

// CheckUnits checks the size of a content.
func (u UnitRuns) CheckUnits(content []byte) error {
	if want := u.Len() * u.DType.Size(); len(content) != want {
		return fmt.Errorf("the content of buffer @%s has %d bytes, want %d of %s%v", u.buffer.Name, len(content), want,
			u.DType, u.Shape)
	}
	return nil
}

// Gather copies a content out of the bytes of a buffer, which are of the content's dtype.
func (u UnitRuns) Gather(buffer []byte) []byte {
	size := u.DType.Size()
	out := make([]byte, u.Len()*size)
	u.Each(func(from, to int) { copy(out[size*to:size*(to+u.Length)], buffer[size*from:]) })
	return out
}

// Scatter copies a content that was checked into the bytes of a buffer, which are of the content's dtype.
func (u UnitRuns) Scatter(buffer, content []byte) {
	size := u.DType.Size()
	u.Each(func(to, from int) { copy(buffer[size*to:size*(to+u.Length)], content[size*from:]) })
}

// GatherTensor makes a content of a buffer that is held as a tensor.
func (u UnitRuns) GatherTensor(buffer *eval.Tensor) []byte {
	out := &eval.Tensor{DType: u.DType, Shape: u.Shape}
	if buffer.I != nil {
		out.I = make([]int64, u.Len())
		u.Each(func(from, to int) { copy(out.I[to:to+u.Length], buffer.I[from:]) })
	} else {
		out.F = make([]float32, u.Len())
		u.Each(func(from, to int) { copy(out.F[to:to+u.Length], buffer.F[from:]) })
	}
	return out.Encode()
}

// ScatterTensor copies a content that was checked into a buffer that is held as a tensor.
func (u UnitRuns) ScatterTensor(buffer *eval.Tensor, content []byte) error {
	t, err := eval.Decode(u.DType, u.Shape, content)
	if err != nil {
		return fmt.Errorf("the content of buffer @%s: %w", u.buffer.Name, err)
	}
	u.Each(func(to, from int) {
		if buffer.I != nil {
			copy(buffer.I[to:to+u.Length], t.I[from:])
		} else {
			copy(buffer.F[to:to+u.Length], t.F[from:])
		}
	})
	return nil
}

// FindBuffer finds a buffer of a module by its name.
func FindBuffer(m *ir.Module, name string) (*ir.Buffer, error) {
	for _, b := range m.Buffers {
		if b.Name == name {
			return b, nil
		}
	}
	return nil, fmt.Errorf("the program has no buffer @%s", name)
}
