package cpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/plan"
)

// BindView makes the result of the operation a view of its operand x, if x is in a slot and the layout allows it. A
// reshape of floats may first copy them into row-major order. It reports whether it did.
func (b *binder) BindView() bool {
	x := b.Input("x")
	if x == nil || x.kind != dense || b.Op.Def.Name == "astype" && !sameStored(b.Op.Input("x").Type.DType,
		b.Op.Result().Type.DType) {
		return false
	}
	view, ok := plan.ViewOf(b.Op, b.Sizes, x.view())
	if !ok && b.Op.Def.Name == "reshape" && x.isFloats() {
		if _, ok = plan.ViewOf(b.Op, b.Sizes, plan.RowMajor(x.shape)); ok {
			x = b.denseFloats(x)
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

// sameStored reports whether a cast leaves the stored elements as they are: casts between floats do not round here, and
// casts of integers to int64 keep every value.
func sameStored(from, to ir.DType) bool {
	return from == to || from.IsFloat() && to.IsFloat() || to == ir.I64 && from != ir.U64 && !from.IsFloat()
}

// view returns the part of its slot that v covers.
func (v *value) view() plan.View {
	return plan.View{Offset: v.offset, Shape: v.shape, Strides: v.stride}
}
