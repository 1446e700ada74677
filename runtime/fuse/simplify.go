package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// simplify removes operations that change nothing: copies, casts there and back, slices of everything,
// updates that replace everything, transpositions that undo one another.
func simplify(m *ir.Module) error {
	return apply(m, "", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		if len(op.Results) != 1 {
			return nil, false
		}
		if v := simpler(b, op); v != nil {
			return []*ir.Value{v}, true
		}
		return nil, false
	})
}

// simpler returns the value that op's result is equal to, or nil.
func simpler(b *ir.Builder, op *ir.Op) *ir.Value {
	t := op.Result().Type
	switch op.Def.Name {
	case "id_copy", "contiguous":
		if x := op.Input("x"); !ofLoad(x) {
			return x
		}
	case "astype":
		for x := op.Input("x"); ; x = x.Def.Input("x") {
			if x.Type.DType == t.DType {
				return x
			}
			if !t.DType.IsFloat() || x.Def == nil || !isFloatCast(x.Def) {
				return nil
			}
		}
	case "slice":
		if x, axis, start, _, ok := sliced(op.Result()); ok && start.IsConst(0) &&
			x.Type.Shape[axis].Equal(t.Shape[axis]) {
			return op.Input("x")
		}
	case "reshape", "expand_dims", "squeeze", "broadcast_to":
		if x := op.Input("x"); sameShape(x.Type, t) {
			return x
		}
	case "slice_update":
		if replacesAll(op) {
			return cast(b, op.Input("update"), t.DType)
		}
	case "transpose":
		perm := ir.Attrs[ir.TransposeAttrs](op).Perm
		p := make([]int, len(perm))
		for i := range perm {
			p[i] = axisOf(perm[i], t)
		}
		if slices.IsSorted(p) {
			return op.Input("x")
		}
		if canTranspose(op.Input("x"), p) {
			return transposed(b, op.Input("x"), p)
		}
	}
	return nil
}

// replacesAll reports whether a slice_update leaves nothing of what it updates.
func replacesAll(op *ir.Op) bool {
	t := op.Result().Type
	axis, known := literal(op, "axis")
	stop, fixed := literal(op, "stop")
	size, ok := t.Shape[axisOf(int(axis), t)].Const()
	return known && fixed && ok && ir.Attrs[ir.StepAttrs](op).Step == 1 && expr(op, "start").IsConst(0) &&
		stop >= size &&
		sameShape(op.Input("update").Type, t)
}

// ofLoad reports whether v may be the content of a buffer, which a copy keeps from later writes.
func ofLoad(v *ir.Value) bool {
	for v.Def != nil {
		if !v.Def.Def.IsView() {
			return v.Def.Def.Effect == ir.Reads || v.Def.Def.Effect == ir.Control
		}
		v = v.Def.Input("x")
	}
	return v.Region != nil
}

// canTranspose reports whether the transposition of v can be had by taking away another, seen through
// slices and activations: exporters that convolve channels first write so.
func canTranspose(v *ir.Value, perm []int) bool {
	if x, inner := permutation(v); x != nil {
		return undoes(perm, inner)
	}
	v = plain(v)
	if v.Def == nil {
		return false
	}
	switch v.Def.Def.Name {
	case "silu":
		return canTranspose(v.Def.Input("x"), perm)
	case "slice":
		_, known := literal(v.Def, "axis")
		return known && canTranspose(v.Def.Input("x"), perm)
	}
	return false
}

// undoes reports whether perm after inner is the identity.
func undoes(perm, inner []int) bool {
	for i, p := range perm {
		if inner[p] != i {
			return false
		}
	}
	return true
}

// transposed builds the transposition of v for which canTranspose holds.
func transposed(b *ir.Builder, v *ir.Value, perm []int) *ir.Value {
	if x, _ := permutation(v); x != nil {
		return cast(b, x, v.Type.DType)
	}
	d := v.Type.DType
	v = plain(v)
	x := transposed(b, v.Def.Input("x"), perm)
	if v.Def.Def.Name == "silu" {
		return cast(b, b.Value("silu", nil, x), d)
	}
	axis, _ := literal(v.Def, "axis")
	at := slices.Index(perm, axisOf(int(axis), v.Type))
	return cast(b, b.Value("slice", v.Def.Attrs, x, at, v.Def.Operand("start"), v.Def.Operand("stop")), d)
}
