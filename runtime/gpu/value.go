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

// place tells where a value is.
type place uint8

const (
	onDevice place = iota // elements of a slot, strided
	onHost                // a host value
	joined                // a quantized weight, which kernels read in parts
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

// slot is memory on the device.
type slot struct {
	// Slot is where it lies in buffer, in bytes: in the arena the planner finds the place.
	plan.Slot
	// buffer holds the slot; nil for a place in the arena.
	buffer device.Buffer
	// other holds it in every second turn, where there are two sides of it: see ahead.go.
	other device.Buffer
	// fixed says that no kernel writes it.
	fixed bool
	// state says that it is a buffer's content.
	state bool
	// First and Last are the steps between which a slot of the arena holds something.
	First, Last int
}

// value is a value of the IR, bound to a plan.
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
	// below is set where a kernel gives integers from 0 to below-1.
	below int

	hostValue *hostValue
}

func (v *value) len() int { return strided.Elements(v.shape) }

// isDense reports whether the elements lie one after the other.
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

// isFloats reports whether v is float32 numbers on the device.
func (v *value) isFloats() bool { return v != nil && v.place == onDevice && v.format == f32 }

// rows sees v as n rows of its last dim, of width elements, that lie stride apart. It fails where rows are not evenly
// spaced or their elements not adjacent.
func (v *value) rows() (n, width, stride int, ok bool) { return strided.Rows(v.shape, v.stride) }

// at is the place of the first element in the slot, in bytes.
func (v *value) at() int { return v.offset * v.format.size() }

// hostValue holds a value on the host: what is computed of the inputs alone, and what reference kernels give of
// integers.
type hostValue struct {
	content eval.Value
	// run computes content from other host values. It is nil for an input, for a constant, and for what a step of the
	// plan sets.
	run func() error
	// slow is the operation that run does on its reference kernel for want of another; nil where the host does it on
	// purpose.
	slow *ir.Op
	// uses are the host values that run reads.
	uses []*hostValue
	// constant says that the content is the same for every call.
	constant bool
	// needed says that something reads it.
	needed bool
	// step says that a step of the plan sets it, after others have run on the device.
	step bool
}

// need marks a host value, and those that it is computed of.
func (c *hostValue) need() {
	if !c.needed {
		c.needed = true
		for _, u := range c.uses {
			u.need()
		}
	}
}

// set checks the shape that follows from the types.
func (c *hostValue) set(r eval.Value, shape []int) error {
	if r.Tensor != nil && shape != nil && !slices.Equal(r.Tensor.Shape, shape) {
		return fmt.Errorf("gives shape %v where %v follows from the types", r.Tensor.Shape, shape)
	}
	c.content = r
	return nil
}
