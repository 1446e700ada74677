package plan

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/strided"
)

// View describes a tensor as elements of another: the first one is at Offset, neighbours along dim i are Strides[i]
// elements apart.
type View struct {
	Offset         int
	Shape, Strides []int
}

// selections has the operations that only select and arrange elements of their operand x. Their functions return false
// where the result is not a view: a size is not known yet, or the elements are not evenly spaced.
var selections = map[string]func(op *ir.Op, s Sizes, x View, want []int) (View, bool){
	"transpose": transpose, "slice": slice, "take": take, "broadcast_to": broadcast,
}

// ViewOf returns the result of op as a view of its operand x, or false where it is none. It treats casts as views; the
// engine decides whether the stored elements stay the same.
func ViewOf(op *ir.Op, s Sizes, x View) (View, bool) {
	want, ok := s.Dims(op.Result().Type)
	if !op.Def.IsView() || !ok {
		return View{}, false
	}
	n := x
	switch op.Def.View {
	case ir.ReshapeView:
		n, ok = reshape(x, want)
	case ir.SelectView:
		view := selections[op.Def.Name]
		if view == nil {
			return View{}, false
		}
		n, ok = view(op, s, x, want)
	}
	return n, ok && slices.Equal(n.Shape, want)
}

func reshape(x View, want []int) (View, bool) {
	if strided.Elements(want) != strided.Elements(x.Shape) {
		return View{}, false
	}
	strides, ok := strided.Reshape(x.Shape, x.Strides, want)
	return View{x.Offset, want, strides}, ok
}

func transpose(op *ir.Op, _ Sizes, x View, _ []int) (View, bool) {
	perm := ir.Attrs[ir.TransposeAttrs](op).Perm
	n := View{x.Offset, make([]int, len(perm)), make([]int, len(perm))}
	for i, p := range perm {
		if p < 0 {
			p += len(perm)
		}
		n.Shape[i], n.Strides[i] = x.Shape[p], x.Strides[p]
	}
	return n, true
}

func slice(op *ir.Op, s Sizes, x View, _ []int) (View, bool) {
	step := ir.Attrs[ir.StepAttrs](op).Step
	axis, ok := s.Integer(op, "axis")
	start, ok2 := s.Integer(op, "start")
	stop, ok3 := s.Integer(op, "stop")
	if axis < 0 {
		axis += len(x.Shape)
	}
	if !ok || !ok2 || !ok3 || step < 1 || axis < 0 || axis >= len(x.Shape) {
		return View{}, false
	}
	size := x.Shape[axis]
	bound := func(i int) int {
		if i < 0 {
			i += size
		}
		return min(max(i, 0), size)
	}
	start, stop = bound(start), bound(stop)
	n := View{x.Offset, slices.Clone(x.Shape), slices.Clone(x.Strides)}
	n.Shape[axis] = max(0, (stop-start+step-1)/step)
	n.Strides[axis] *= step
	if strided.Elements(n.Shape) > 0 {
		n.Offset += start * x.Strides[axis]
	}
	return n, true
}

// take selects one index of an axis and drops the axis.
func take(op *ir.Op, s Sizes, x View, _ []int) (View, bool) {
	axis := ir.Attrs[ir.AxisAttrs](op).Axis
	if a, _ := op.Arg("index"); a.Kind == ir.ValueArg && a.Value.Type.Kind != ir.IntKind {
		return View{}, false
	}
	at, ok := s.Integer(op, "index")
	if axis < 0 {
		axis += len(x.Shape)
	}
	if !ok || axis < 0 || axis >= len(x.Shape) {
		return View{}, false
	}
	if at < 0 {
		at += x.Shape[axis]
	}
	if at < 0 || at >= x.Shape[axis] {
		return View{}, false // the reference kernel reports the error
	}
	drop := func(v []int) []int { return slices.Delete(slices.Clone(v), axis, axis+1) }
	return View{x.Offset + at*x.Strides[axis], drop(x.Shape), drop(x.Strides)}, true
}

func broadcast(_ *ir.Op, _ Sizes, x View, want []int) (View, bool) {
	if len(want) < len(x.Shape) {
		return View{}, false
	}
	strides := make([]int, len(want))
	for i := range want {
		if j := i - len(want) + len(x.Shape); j >= 0 {
			switch x.Shape[j] {
			case want[i]:
				strides[i] = x.Strides[j]
			case 1:
			default:
				return View{}, false
			}
		}
	}
	return View{x.Offset, want, strides}, true
}

// RowMajor returns the view of a contiguous tensor in row-major order.
func RowMajor(shape []int) View { return View{Shape: shape, Strides: strided.RowMajor(shape)} }
