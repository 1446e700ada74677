package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/strided"
)

// views are the operations whose result is their operand x seen in another way. They give false where it
// cannot be: where a size is not known yet, or the elements are not spaced as they must be.
var views map[string]func(b *binder) bool

func init() {
	views = map[string]func(*binder) bool{
		"id_copy": viewSame, "contiguous": viewSame, "astype": viewCast,
		"reshape": viewReshape, "expand_dims": viewReshape, "squeeze": viewReshape,
		"transpose": viewTranspose, "slice": viewSlice, "take": viewTake, "broadcast_to": viewBroadcast,
	}
}

// viewable reports whether x is on the device and the result's shape is known.
func (b *binder) viewable() bool {
	x := b.input("x")
	if x == nil || x.place != onDevice {
		return false
	}
	_, ok := b.dims(b.op.Result().Type)
	return ok
}

// view makes the result a view of x's slot, if it has the shape that it must have.
func (b *binder) view(offset int, shape, stride []int) bool {
	want, _ := b.dims(b.op.Result().Type)
	if !slices.Equal(shape, want) {
		return false
	}
	n := *b.input("x")
	n.dtype, n.offset, n.shape, n.stride = b.op.Result().Type.DType, n.offset+offset, shape, stride
	b.values[b.op.Result()] = &n
	return true
}

func viewSame(b *binder) bool {
	x := b.input("x")
	return b.view(0, x.shape, x.stride)
}

// viewCast passes casts between floats, which round nothing, and those of integers that keep every value:
// integers on the device are indices, which are not negative.
func viewCast(b *binder) bool {
	from, to := b.op.Input("x").Type.DType, b.op.Result().Type.DType
	switch {
	case from == to, from.IsFloat() && to.IsFloat():
		return viewSame(b)
	case b.input("x").format == i32 && (to == ir.I64 || to == ir.I32 || to == ir.U32):
		return viewSame(b)
	}
	return false
}

func viewReshape(b *binder) bool {
	x := b.input("x")
	shape, _ := b.dims(b.op.Result().Type)
	if strided.Elements(shape) != x.len() {
		return false
	}
	stride, ok := strided.Reshape(x.shape, x.stride, shape)
	if !ok {
		if b.op.Def.Name != "reshape" || !x.isFloats() {
			return false
		}
		x = b.dense(x)
		if x == nil {
			return false
		}
		n := *x
		n.dtype, n.shape, n.stride = b.op.Result().Type.DType, shape, strided.RowMajor(shape)
		b.values[b.op.Result()] = &n
		return true
	}
	return b.view(0, shape, stride)
}

func viewTranspose(b *binder) bool {
	x, perm := b.input("x"), ir.Attrs[ir.TransposeAttrs](b.op).Perm
	shape, stride := make([]int, len(perm)), make([]int, len(perm))
	for i, p := range perm {
		if p < 0 {
			p += len(perm)
		}
		shape[i], stride[i] = x.shape[p], x.stride[p]
	}
	return b.view(0, shape, stride)
}

func viewSlice(b *binder) bool {
	x, step := b.input("x"), ir.Attrs[ir.StepAttrs](b.op).Step
	axis, ok := b.integer("axis")
	start, ok2 := b.integer("start")
	stop, ok3 := b.integer("stop")
	if axis < 0 {
		axis += len(x.shape)
	}
	if !ok || !ok2 || !ok3 || step < 1 || axis < 0 || axis >= len(x.shape) {
		return false
	}
	n := x.shape[axis]
	bound := func(i int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	start, stop = bound(start), bound(stop)
	shape, stride := slices.Clone(x.shape), slices.Clone(x.stride)
	shape[axis] = max(0, (stop-start+step-1)/step)
	offset := start * stride[axis]
	if strided.Elements(shape) == 0 {
		offset = 0
	}
	stride[axis] *= step
	return b.view(offset, shape, stride)
}

// viewTake takes one index of an axis, which it drops.
func viewTake(b *binder) bool {
	x, axis := b.input("x"), ir.Attrs[ir.AxisAttrs](b.op).Axis
	if a, _ := b.op.Arg("index"); a.Kind == ir.ValueArg && a.Value.Type.Kind != ir.IntKind {
		return false
	}
	at, ok := b.integer("index")
	if axis < 0 {
		axis += len(x.shape)
	}
	if !ok || axis < 0 || axis >= len(x.shape) {
		return false
	}
	if at < 0 {
		at += x.shape[axis]
	}
	if at < 0 || at >= x.shape[axis] {
		return false // the reference kernel says so
	}
	return b.view(at*x.stride[axis], slices.Delete(slices.Clone(x.shape), axis, axis+1), slices.Delete(slices.Clone(x.stride), axis, axis+1))
}

func viewBroadcast(b *binder) bool {
	x := b.input("x")
	shape, _ := b.dims(b.op.Result().Type)
	if len(shape) < len(x.shape) {
		return false
	}
	stride := make([]int, len(shape))
	for i := range shape {
		if j := i - len(shape) + len(x.shape); j >= 0 {
			switch x.shape[j] {
			case shape[i]:
				stride[i] = x.stride[j]
			case 1:
			default:
				return false
			}
		}
	}
	return b.view(0, shape, stride)
}
