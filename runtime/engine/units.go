package engine

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// UnitRuns are the runs of elements of some indices of an axis of a buffer: of index i those from At[i] on, Length
// long, and again every Stride elements, Count times.
type UnitRuns struct {
	At                    []int
	Length, Stride, Count int
	// Shape is that of the tensor that holds all of them.
	Shape []int
}

// RunsOfUnits finds the runs of indices of an axis of a buffer. The error names an index that the axis has not.
// Negative indices, where none may be left out, are such.
func RunsOfUnits(b *ir.Buffer, axis int, ids []int32, leaveOut bool) (UnitRuns, error) {
	dims, static := b.Type.Static()
	if !static || axis < 0 || axis >= len(dims) {
		return UnitRuns{}, fmt.Errorf("buffer @%s of type %s has no axis %d of units", b.Name, b.Type, axis)
	}
	u := UnitRuns{Length: 1, Count: 1}
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

// Each calls f with the place of every run in the buffer and in the tensor. Indices that are left out are none.
func (u UnitRuns) Each(f func(buffer, tensor int)) {
	for c := range u.Count {
		for i, at := range u.At {
			if at >= 0 {
				f(c*u.Stride+at, (c*len(u.At)+i)*u.Length)
			}
		}
	}
}

// CheckUnits checks that a tensor is what [Units.ReadUnits] gives of indices of a buffer.
func (u UnitRuns) CheckUnits(b *ir.Buffer, t *eval.Tensor) error {
	n := u.Count * len(u.At) * u.Length
	if t == nil || t.DType != b.Type.DType || !slices.Equal(t.Shape, u.Shape) || t.Len() != n {
		return fmt.Errorf("the content of buffer @%s is not %s%v", b.Name, b.Type.DType, u.Shape)
	}
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
