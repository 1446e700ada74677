package ir

import (
	"fmt"
	"math"
	"slices"
)

// inferReshape infers the type of reshape, the same elements in another shape. One dim may be the literal -1: it is the
// quotient of the number of elements and the other dims.
func inferReshape(c *Inference) ([]Type, error) {
	x, shape := c.Type("x"), c.Exprs("shape")
	free := -1
	var known []*Expr
	for i, d := range shape {
		shape[i] = int32Literal(d)
		_, hi := d.Bounds()
		switch {
		case d.IsConst(-1) && free >= 0:
			return nil, fmt.Errorf("shape %s has more than one -1", formatShape(shape))
		case d.IsConst(-1):
			free = i
			continue
		case hi < 0:
			return nil, fmt.Errorf("shape %s: dim %d is negative", formatShape(shape), i)
		}
		known = append(known, shape[i])
	}
	have, ok := product(x.Shape)
	want, wantOK := product(known)
	ok = ok && wantOK
	switch {
	case free < 0 && ok && differ(have, want):
		return nil, fmt.Errorf("%s has %s elements, shape %s has %s", x, have, formatShape(shape), want)
	case free < 0:
	case !ok:
		shape[free] = c.Fresh(0, free, 0, math.MaxInt32)
	case want.IsConst(0):
		return nil, fmt.Errorf("shape %s: the -1 cannot be derived beside a dim of 0", formatShape(shape))
	default:
		if r, isConst := have.Mod(want).Const(); isConst && r != 0 {
			return nil, fmt.Errorf("%s has %s elements, which shape %s does not divide", x, have, formatShape(shape))
		}
		shape[free] = have.FloorDiv(want)
	}
	return single(TensorType(x.DType, shape...))
}

// inferTranspose permutes the dims: result dim i is dim perm[i] of x.
func inferTranspose(c *Inference) ([]Type, error) {
	x, perm := c.Type("x"), Attrs[TransposeAttrs](c.Op).Perm
	if len(perm) != x.Rank() {
		return nil, fmt.Errorf("perm %v has %d axes, x is %s", perm, len(perm), x)
	}
	shape, used := make([]*Expr, len(perm)), make([]bool, len(perm))
	for i, axis := range perm {
		a, err := c.Axis(axis, x.Rank())
		if err != nil {
			return nil, fmt.Errorf("perm %v: %w", perm, err)
		}
		if used[a] {
			return nil, fmt.Errorf("perm %v lists axis %d twice", perm, axis)
		}
		shape[i], used[a] = x.Shape[a], true
	}
	return single(TensorType(x.DType, shape...))
}

// inferSqueeze drops the listed dims that are 1, or all of them where none is listed. Listed axes that
// x does not have or that are not 1 are skipped (MLXInterpreter.h, exec_squeeze); so are symbolic dims
// that are not provably 1.
func inferSqueeze(c *Inference) ([]Type, error) {
	x, dims := c.Type("x"), Attrs[SqueezeAttrs](c.Op).Dims
	drop := make([]bool, x.Rank())
	for i, d := range x.Shape {
		drop[i] = len(dims) == 0 && d.IsConst(1)
	}
	for _, axis := range dims {
		a, err := c.Axis(axis, x.Rank())
		if err != nil || !x.Shape[a].IsConst(1) {
			continue
		}
		if drop[a] {
			return nil, fmt.Errorf("dims %v list axis %d twice", dims, axis)
		}
		drop[a] = true
	}
	return single(TensorType(x.DType, withoutAxes(x.Shape, drop, false)...))
}

// inferExpandDims inserts a dim of 1 at an axis of the result.
func inferExpandDims(c *Inference) ([]Type, error) {
	x := c.Type("x")
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, x.Rank()+1)
	if err != nil {
		return nil, err
	}
	return single(TensorType(x.DType, slices.Insert(slices.Clone(x.Shape), axis, Const(1))...))
}

// inferBroadcastTo infers the type of broadcast_to. Dims are aligned at the last one; -1 keeps the dim of x.
func inferBroadcastTo(c *Inference) ([]Type, error) {
	x, shape := c.Type("x"), c.Exprs("shape")
	offset := len(shape) - x.Rank()
	for i, d := range shape {
		shape[i] = int32Literal(d)
		_, hi := d.Bounds()
		switch {
		case d.IsConst(-1) && i >= offset && offset >= 0:
			shape[i] = x.Shape[i-offset]
		case d.IsConst(-1):
			return nil, fmt.Errorf("shape %s: dim %d is -1, but %s has no dim there", formatShape(shape), i, x)
		case hi < 0:
			return nil, fmt.Errorf("shape %s: dim %d is negative", formatShape(shape), i)
		}
	}
	if err := broadcastsTo("x", x.Shape, shape); err != nil {
		return nil, err
	}
	for i, d := range x.Shape {
		if v, ok := d.Const(); ok && v != 1 { // what is not 1 stays what it is
			shape[offset+i] = d
		}
	}
	return single(TensorType(x.DType, shape...))
}

// inferTile repeats x reps[i] times along axis i, aligned at the last dims; what is shorter, reps or the
// shape, is filled with ones.
func inferTile(c *Inference) ([]Type, error) {
	x, reps := c.Type("x"), c.Exprs("reps")
	shape := slices.Clone(x.Shape)
	for len(reps) < len(shape) {
		reps = slices.Insert(reps, 0, Const(1))
	}
	for len(shape) < len(reps) {
		shape = slices.Insert(shape, 0, Const(1))
	}
	for i, r := range reps {
		if _, hi := r.Bounds(); hi < 0 {
			return nil, fmt.Errorf("reps %s: number %d is negative", formatShape(reps), i)
		}
		shape[i] = c.scaled(i, shape[i], int32Literal(r))
	}
	return single(TensorType(x.DType, shape...))
}

// scaled is dim × times, dim number i of the result.
func (c *Inference) scaled(i int, dim, times *Expr) *Expr {
	if p, ok := mulExpr(dim, times); ok {
		return p
	}
	return c.Fresh(0, i, 0, math.MaxInt32)
}

// inferRepeat repeats every element along an axis.
func inferRepeat(c *Inference) ([]Type, error) {
	x := c.Type("x")
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, x.Rank())
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(x.Shape)
	shape[axis] = c.scaled(axis, shape[axis], int32Literal(c.Expr("repeats")))
	if err := checkAllocation(x.DType, shape); err != nil {
		return nil, err
	}
	return single(TensorType(x.DType, shape...))
}

// inferPad infers the type of pad. pad_width holds low and high for every axis in turn.
func inferPad(c *Inference) ([]Type, error) {
	x, widths, mode := c.Type("x"), c.Exprs("pad_width"), Attrs[PadAttrs](c.Op).Mode
	if mode != "constant" && mode != "edge" {
		return nil, fmt.Errorf("mode must be constant or edge, found %q", mode)
	}
	if len(widths) != 2*x.Rank() {
		return nil, fmt.Errorf("pad_width must have low and high for each of %d dims, found %d numbers", x.Rank(),
			len(widths))
	}
	shape := slices.Clone(x.Shape)
	for i, w := range widths {
		if _, hi := w.Bounds(); hi < 0 {
			return nil, fmt.Errorf("pad_width %s: number %d is negative", formatShape(widths), i)
		}
		shape[i/2] = shape[i/2].Add(int32Literal(w))
	}
	return single(TensorType(x.DType, shape...))
}

// inferRoll shifts axes[i] by shift[i]; surplus shifts are ignored.
func inferRoll(c *Inference) ([]Type, error) {
	x, axes := c.Type("x"), Attrs[RollAttrs](c.Op).Axes
	if shifts := len(c.Op.Operand("shift")); shifts < len(axes) {
		return nil, fmt.Errorf("expected a shift for each of the axes %v, found %d", axes, shifts)
	}
	for _, axis := range axes {
		if _, err := c.Axis(axis, x.Rank()); err != nil {
			return nil, err
		}
	}
	return single(like(x, x.DType))
}

// inferAsStrided reads the elements of x, laid out row by row, with other strides (in elements). What
// provably reads outside of x is refused; MLX would read foreign memory.
func inferAsStrided(c *Inference) ([]Type, error) {
	x := c.Type("x")
	shape, err := c.shapeOperand("shape")
	if err != nil {
		return nil, err
	}
	strides := c.Exprs("strides")
	if len(strides) != len(shape) {
		return nil, fmt.Errorf("shape %s has %d dims, strides %s has %d", formatShape(shape), len(shape),
			formatShape(strides), len(strides))
	}
	offset := int64(Attrs[AsStridedAttrs](c.Op).Offset)
	if offset < 0 {
		return nil, fmt.Errorf("offset must not be negative, found %d", offset)
	}
	// lowest and highest bound the elements that are read for certain: the first and the last of every
	// dim, at its smallest length.
	lowest, highest := offset, offset
	for i, d := range shape {
		lo, _ := d.Bounds()
		if lo <= 0 { // possibly no element is read
			return single(TensorType(x.DType, shape...))
		}
		if s, ok := strides[i].Const(); ok {
			reach := satMul(lo-1, s)
			lowest, highest = satAdd(lowest, min(reach, 0)), satAdd(highest, max(reach, 0))
		}
	}
	if size, ok := product(x.Shape); lowest < 0 || ok && less(size.Sub(Const(1)), Const(highest)) {
		return nil, fmt.Errorf("shape %s with strides %s from %d reads elements %d to %d of %s", formatShape(shape),
			formatShape(strides), offset, lowest, highest, x)
	}
	return single(TensorType(x.DType, shape...))
}
