package fuse

import (
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// def returns the operation of that name that computes v, or nil.
func def(v *ir.Value, name string) *ir.Op {
	if v == nil || v.Def == nil || v.Def.Def.Name != name {
		return nil
	}
	return v.Def
}

// isFloatCast reports whether op converts floats to floats, which changes nothing in the precisions that
// fused graphs are for.
func isFloatCast(op *ir.Op) bool {
	return op.Def.View == ir.CastView && op.Result().Type.DType.IsFloat() && op.Input("x").Type.DType.IsFloat()
}

// plain follows copies and casts back from v: it returns the value with the same elements in the same shape, whatever
// the dtype.
func plain(v *ir.Value) *ir.Value {
	for v != nil && v.Def != nil && (isFloatCast(v.Def) || v.Def.Def.View == ir.CopyView) {
		v = v.Def.Input("x")
	}
	return v
}

// is returns the operation that computes v if it has that name, else nil. Copies and casts after the operation do not
// count.
func is(v *ir.Value, name string) *ir.Op { return def(plain(v), name) }

// flat follows reshapes, copies and casts back from v: it returns the value with the same elements in the same order,
// whatever the shape.
func flat(v *ir.Value) *ir.Value {
	for {
		v = plain(v)
		if v == nil || v.Def == nil || v.Def.Def.View != ir.ReshapeView {
			return v
		}
		v = v.Def.Input("x")
	}
}

// flatInts is flat for a value of indices: it also follows casts between integers of at least 32 bits.
func flatInts(v *ir.Value) *ir.Value {
	for {
		v = flat(v)
		op := def(v, "astype")
		if op == nil || !isWideInt(v.Type.DType) || !isWideInt(op.Input("x").Type.DType) {
			return v
		}
		v = op.Input("x")
	}
}

func isWideInt(d ir.DType) bool { return d.IsInteger() && d.Size() >= 4 }

// constant returns the constant behind v, seen through copies, or nil.
func constant(v *ir.Value) *ir.Constant {
	if v = plain(v); v != nil {
		return v.Constant
	}
	return nil
}

// scalarOf reads a constant of one element.
func scalarOf(v *ir.Value) (float64, bool) {
	v = plain(v)
	if op := def(v, "full"); op != nil && len(op.Operand("shape")) == 0 {
		if a, _ := op.Arg("v"); a.Kind == ir.FloatArg {
			return a.Float, true
		}
	}
	c := constant(v)
	if c == nil || c.Data == nil || ir.Elements(c.Data.Shape()) != 1 {
		return 0, false
	}
	t, err := eval.DecodeConstant(c)
	if err != nil {
		return 0, false
	}
	if t.F != nil {
		return float64(t.F[0]), true
	}
	return float64(t.I[0]), true
}

func isScalar(v *ir.Value, want float64) bool {
	got, ok := scalarOf(v)
	return ok && (got == want || math.IsNaN(got) && math.IsNaN(want))
}

// eitherWay calls f with both operands of a commutative operation, in one order and then in the other.
func eitherWay(op *ir.Op, f func(a, b *ir.Value) bool) bool {
	a, b := op.Input("a"), op.Input("b")
	return f(a, b) || f(b, a)
}

// axisOf makes an axis non-negative.
func axisOf(axis int, t ir.Type) int {
	if axis < 0 {
		axis += t.Rank()
	}
	return axis
}

// expr returns the expression of an int operand.
func expr(op *ir.Op, operand string) *ir.Expr {
	a, _ := op.Arg(operand)
	if a.Kind == ir.IntArg {
		return ir.Const(a.Int)
	}
	return a.Value.Type.Int
}

// literal returns the constant of an int operand.
func literal(op *ir.Op, operand string) (int64, bool) { return expr(op, operand).Const() }

// sliced reads a slice with step 1: its source, axis, start and stop as they are given.
func sliced(v *ir.Value) (x *ir.Value, axis int, start, stop *ir.Expr, ok bool) {
	op := is(v, "slice")
	if op == nil || ir.Attrs[ir.StepAttrs](op).Step != 1 {
		return nil, 0, nil, nil, false
	}
	a, ok := literal(op, "axis")
	return op.Input("x"), axisOf(int(a), op.Input("x").Type), expr(op, "start"), expr(op, "stop"), ok
}

func sameShape(a, b ir.Type) bool {
	return slices.EqualFunc(a.Shape, b.Shape, func(x, y *ir.Expr) bool { return x.Equal(y) })
}

// isDims reports whether the shape consists of these expressions.
func isDims(t ir.Type, dims ...*ir.Expr) bool {
	return slices.EqualFunc(t.Shape, dims, func(x, y *ir.Expr) bool { return x.Equal(y) })
}

// reshapeDims returns the operand of a reshape to a shape: numbers and at most one -1.
func reshapeDims(shape []*ir.Expr) ([]any, bool) {
	out, unknown := make([]any, len(shape)), 0
	for i, d := range shape {
		if c, ok := d.Const(); ok {
			out[i] = c
		} else {
			out[i] = int64(-1)
			unknown++
		}
	}
	return out, unknown <= 1
}

// likeType gives v the dtype and the shape of t. Only one dim of t may be symbolic.
func likeType(b *ir.Builder, v *ir.Value, t ir.Type) *ir.Value {
	if !sameShape(v.Type, t) {
		dims, ok := reshapeDims(t.Shape)
		if !ok {
			b.Fail("a reshape of %s to %s needs more than one size", v.Type, t)
		}
		v = b.Value("reshape", nil, v, dims)
	}
	return cast(b, v, t.DType)
}

// cast converts v to a dtype, where it has another.
func cast(b *ir.Builder, v *ir.Value, d ir.DType) *ir.Value {
	if v.Type.DType == d {
		return v
	}
	return b.Value("astype", &ir.DTypeAttrs{ScalarType: d}, v)
}

// canReshape reports whether likeType can make the shape.
func canReshape(t ir.Type) bool { _, ok := reshapeDims(t.Shape); return ok }

// permutation returns the perm of a transposition, or nil.
func permutation(v *ir.Value) (x *ir.Value, perm []int) {
	op := is(v, "transpose")
	if op == nil {
		return nil, nil
	}
	x, perm = op.Input("x"), slices.Clone(ir.Attrs[ir.TransposeAttrs](op).Perm)
	for i := range perm {
		perm[i] = axisOf(perm[i], x.Type)
	}
	return x, perm
}
