package cpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/plan"
)

// BindView makes the result of the operation its operand x seen in another way, where it can be: x is a tensor of a
// slot, and a reshape of floats may copy them into row-major order first.
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

// sameStored reports whether a cast leaves elements as they are stored: those between floats round nothing, those of
// integers to int64 keep every value.
func sameStored(from, to ir.DType) bool {
	return from == to || from.IsFloat() && to.IsFloat() || to == ir.I64 && from != ir.U64 && !from.IsFloat()
}

// view is what v sees of its slot.
func (v *value) view() plan.View {
	return plan.View{Offset: v.offset, Shape: v.shape, Strides: v.stride}
}
