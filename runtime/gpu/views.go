package gpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/plan"
)

// BindView tries to make the result of the operation a view of its operand x: the same memory, with an offset, a shape
// and strides of its own. It reports whether it did. x has to lie on the device. Where a reshape of floats cannot be a
// view of x as it lies, x is copied into row-major order first, and the result is a view of the copy.
func (b *binder) BindView() bool {
	if of := b.Op.Input("x"); of == nil || of.Constant != nil {
		return false // constants are not on the device, and BindView must not decode them
	}
	x := b.Input("x")
	if x == nil || x.place != onDevice || b.Op.Def.Name == "astype" && !x.sameStored(b.Op.Input("x").Type.DType,
		b.Op.Result().Type.DType) {
		return false
	}
	view, ok := plan.ViewOf(b.Op, b.Sizes, x.view())
	if !ok && b.Op.Def.Name == "reshape" && x.isFloats() {
		if _, ok = plan.ViewOf(b.Op, b.Sizes, plan.RowMajor(x.shape)); ok {
			if x = b.dense(x); x == nil {
				return false
			}
			view, ok = plan.ViewOf(b.Op, b.Sizes, x.view())
		}
	}
	if !ok {
		return false
	}
	n := *x
	n.dtype, n.offset, n.shape, n.stride = b.Op.Result().Type.DType, view.Offset, view.Shape, view.Strides
	b.Values[b.Op.Result()] = &n
	return true
}

// sameStored reports whether a cast leaves the stored elements as they are: a cast between floats does not round here,
// and integers on the device are indices, which are never negative.
func (v *value) sameStored(from, to ir.DType) bool {
	return from == to || from.IsFloat() && to.IsFloat() ||
		v.format == i32 && (to == ir.I64 || to == ir.I32 || to == ir.U32)
}

// view returns the part of its slot that v covers.
func (v *value) view() plan.View {
	return plan.View{Offset: v.offset, Shape: v.shape, Strides: v.stride}
}
