package gpu

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// place says where a value is.
type place uint8

const (
	onDevice place = iota // elements of a slot, with strides
	onHost                // a host value
	joined                // a quantized weight: kernels read codes, scales and biases each
)

// format is how elements are stored on the device.
type format uint8

const (
	f32 format = iota
	bf16
	i32
)

// size of an element in bytes.
func (f format) size() int {
	if f == bf16 {
		return 2
	}
	return 4
}

func (f format) kernelType() kernels.DType {
	return [...]kernels.DType{f32: kernels.F32, bf16: kernels.BF16, i32: kernels.I32}[f]
}

// slot is a range of memory on the device.
type slot struct {
	// Slot has the offset and size in bytes. The memory planner sets the offset of slots in the arena.
	plan.Slot
	// buffer is the buffer that the slot lies in; nil for the arena.
	buffer device.Buffer
	// second is the second buffer of a double-buffered slot, which every second call uses instead: see pipelining.go.
	second device.Buffer
	// fixed says that no kernel writes the slot.
	fixed bool
	// state says that the slot holds the content of an ir.Buffer.
	state bool
	// First and Last are the first and the last step that use a slot of the arena.
	First, Last int
}

// value is the counterpart of an ir.Value in a plan.
type value struct {
	place place
	dtype ir.DType
	// shape is nil where it is known only when the plan runs.
	shape []int

	// The elements of a value on the device: strides and offset count elements.
	slot   *slot
	format format
	offset int
	stride []int
	// packed is kernels.Matrices.Packed of rows that are for products alone; else 0.
	packed int
	// below is n where a kernel computes the integers and they are all from 0 to n-1; else 0.
	below int

	hostValue *hostValue
}

func (v *value) len() int { return strided.Elements(v.shape) }

// isDense reports whether the elements are contiguous in row-major order.
func (v *value) isDense() bool {
	n := 1
	for i := len(v.shape) - 1; i >= 0; i-- {
		if v.shape[i] != 1 && v.stride[i] != n {
			return false
		}
		n *= v.shape[i]
	}
	return true
}

// round turns a result that no kernel has written yet into rows in bf16 for products. packed is kernels.Matrices.Packed
// of these products. Packed rows take a whole number of tiles.
func (v *value) round(packed int) {
	width := max(1, v.shape[len(v.shape)-1])
	size := kernels.Prepare{K: width, Packed: packed}.Size(v.len() / width)
	v.format, v.packed, v.slot.Size = bf16, packed, bf16.size()*size
}

// isFloats reports whether v is float32 numbers on the device.
func (v *value) isFloats() bool { return v != nil && v.place == onDevice && v.format == f32 }

// rows returns v as n rows of width elements, stride elements apart. It returns false where rows are not evenly spaced
// or their elements not contiguous.
func (v *value) rows() (n, width, stride int, ok bool) { return strided.Rows(v.shape, v.stride) }

// at returns the offset of the first element in the slot, in bytes.
func (v *value) at() int { return v.offset * v.format.size() }

// hostValue is a value on the host: computed from the inputs alone, or an integer result of a reference kernel.
type hostValue struct {
	content eval.Value
	// run computes content from other host values. It is nil for an input, a constant, and a value that a step of the
	// plan sets.
	run func() error
	// slow is the operation that run computes on its reference kernel because there is no other kernel. It is nil where
	// the host computes it by design.
	slow *ir.Op
	// uses are the host values that run reads.
	uses []*hostValue
	// constant says that the content is the same for every call.
	constant bool
	// needed says that something reads the content.
	needed bool
	// step says that a step of the plan sets the content, after kernels have run.
	step bool
}

// need marks a host value, and those that it is computed from, as needed.
func (c *hostValue) need() {
	if !c.needed {
		c.needed = true
		for _, u := range c.uses {
			u.need()
		}
	}
}

// set sets the content. It returns an error where its shape differs from the one that follows from the types.
func (c *hostValue) set(r eval.Value, shape []int) error {
	if r.Tensor != nil && shape != nil && !slices.Equal(r.Tensor.Shape, shape) {
		return fmt.Errorf("gives shape %v where %v follows from the types", r.Tensor.Shape, shape)
	}
	c.content = r
	return nil
}
