package cpu

import (
	"unsafe"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// slot is memory that values of a plan lie in.
type slot struct {
	// f has the elements of floats, i those of integers and bools.
	f []float32
	i []int64
	// n is the content of an int register.
	n int64
	// box is a value whose shape is known only after it has been computed.
	box eval.Value
	// state is the buffer whose content the slot is, if that is not stored as float32.
	state *state

	// Slot is the offset and size in the arena, in floats. The size is 0 for a slot with memory of its own.
	plan.Slot
}

// kind says how a value is stored.
type kind uint8

const (
	dense    kind = iota // elements of a slot, strided
	boxed                // slot.box
	register             // slot.n
	joined               // a quantized weight
)

// value is the counterpart of an ir.Value in a plan: a strided view of a slot.
type value struct {
	kind   kind
	dtype  ir.DType
	slot   *slot
	offset int
	shape  []int
	stride []int
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

// isFloats reports whether the elements are floats of a slot.
func (v *value) isFloats() bool { return v.kind == dense && v.dtype.IsFloat() && v.slot.state == nil }

// floats returns the elements from the first on. They are valid while the plan runs.
func (v *value) floats() []float32 { return v.slot.f[v.offset:] }

// ints returns the elements from the first on.
func (v *value) ints() []int64 { return v.slot.i[v.offset:] }

// rows returns v as n rows of width elements, stride elements apart. It returns false where rows are not evenly spaced
// or their elements not contiguous.
func (v *value) rows() (n, width, stride int, ok bool) { return strided.Rows(v.shape, v.stride) }

// places is rows for rows that need not be evenly spaced, such as those of a slice of a projection: row i, in the order
// of the shape, begins at at(i). It returns false where the elements of a row are not contiguous.
func (v *value) places() (at func(i int) int, ok bool) {
	last := len(v.shape) - 1
	if last < 0 {
		return func(int) int { return 0 }, true
	}
	if v.shape[last] != 1 && v.stride[last] != 1 {
		return nil, false
	}
	// The dims from the last one on, merged where one stride covers both.
	var dims, strides []int
	for i := last - 1; i >= 0; i-- {
		n, stride := v.shape[i], v.stride[i]
		switch k := len(dims) - 1; {
		case n == 1:
		case k >= 0 && stride == dims[k]*strides[k]:
			dims[k] *= n
		default:
			dims, strides = append(dims, n), append(strides, stride)
		}
	}
	switch len(dims) {
	case 0:
		return func(int) int { return 0 }, true
	case 1:
		return func(i int) int { return i * strides[0] }, true
	}
	return func(i int) (place int) {
		for k, n := range dims {
			place += i % n * strides[k]
			i /= n
		}
		return place
	}, true
}

// inOrder returns the strides of a dense copy of v that keeps the order of v's dims in memory. So the result of a
// function of a transposed value is transposed too.
func (v *value) inOrder() []int {
	return strided.InOrder(v.shape, v.stride)
}

// overlaps reports whether elements of v share memory, as with broadcasts.
func overlaps(v *value) bool {
	for i, s := range v.stride {
		if s == 0 && v.shape[i] > 1 {
			return true
		}
	}
	return false
}

// maxRank is the largest number of dims of values in slots.
const maxRank = plan.MaxRank

// copyStrided copies elements between two strided views with the same shape.
func copyStrided[T any](dst []T, dstStride []int, src []T, srcStride []int, shape []int) {
	if strided.Elements(shape) == 0 {
		return
	}
	last := len(shape) - 1
	if last < 0 {
		dst[0] = src[0]
		return
	}
	n, to, from := shape[last], dstStride[last], srcStride[last]
	var index [maxRank]int
	at, of := 0, 0
	for {
		switch {
		case to == 1 && from == 1:
			copy(dst[at:at+n], src[of:of+n])
		default:
			for i := range n {
				dst[at+i*to] = src[of+i*from]
			}
		}
		i := last - 1
		for ; i >= 0; i-- {
			at, of = at+dstStride[i], of+srcStride[i]
			if index[i]++; index[i] < shape[i] {
				break
			}
			at, of = at-shape[i]*dstStride[i], of-shape[i]*srcStride[i]
			index[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// bytesOf views floats as bytes.
func bytesOf(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
}

// shares reports whether a and b overlap in memory.
func shares[T any](a, b []T) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	size := unsafe.Sizeof(a[0])
	return x < y+uintptr(len(b))*size && y < x+uintptr(len(a))*size
}
