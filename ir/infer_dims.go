package ir

import (
	"fmt"
	"math"
	"slices"
)

// maxExprKey and maxExprTerms bound the size of a dim's or an int's expression: a program may square or
// nest expressions in every instruction, which would need memory exponential in its length. What is
// larger becomes a fresh symbol with the same bounds.
const (
	maxExprKey   = 4096
	maxExprTerms = 64
)

func tooLarge(e *Expr) bool { return len(e.key) > maxExprKey || len(e.terms) > maxExprTerms }

// limit replaces expressions that are too large, in the type t of result number i, by fresh symbols.
func (c *Inference) limit(i int, t Type) Type {
	if t.Kind == IntKind {
		if tooLarge(t.Int) {
			lo, hi := t.Int.Bounds()
			t.Int = c.Fresh(i, -1, lo, hi)
		}
		return t
	}
	for d, e := range t.Shape {
		if tooLarge(e) {
			lo, hi := e.Bounds()
			t.Shape = slices.Clone(t.Shape)
			t.Shape[d] = c.Fresh(i, d, max(lo, 0), hi)
		}
	}
	return t
}

// mulExpr returns a × b, or false where the product would be too large.
func mulExpr(a, b *Expr) (*Expr, bool) {
	if len(a.terms)*len(b.terms) > maxExprTerms {
		return nil, false
	}
	p := a.Mul(b)
	return p, !tooLarge(p)
}

// product returns the number of elements of a shape, or false where its expression would be too large.
func product(dims []*Expr) (*Expr, bool) {
	p, ok := Const(1), true
	for _, d := range dims {
		if p, ok = mulExpr(p, d); !ok {
			return nil, false
		}
	}
	return p, true
}

// less reports whether a < b provably.
func less(a, b *Expr) bool { _, hi := a.Sub(b).Bounds(); return hi < 0 }

// canBe reports whether e is not provably different from v.
func canBe(e *Expr, v int64) bool { lo, hi := e.Bounds(); return lo <= v && v <= hi }

// unify joins two dims that must agree: the constant one where there is one, else the first. It gives
// false where they are provably unequal.
func unify(a, b *Expr) (*Expr, bool) {
	if a.Equal(b) {
		return a, true
	}
	if differ(a, b) {
		return nil, false
	}
	if _, ok := a.Const(); ok {
		return a, true
	}
	if _, ok := b.Const(); ok {
		return b, true
	}
	return a, true
}

// agree is unify with an error, which begins with what.
func agree(what string, a, b *Expr) (*Expr, error) {
	d, ok := unify(a, b)
	if !ok {
		return nil, fmt.Errorf("%s: %s and %s must be equal", what, a, b)
	}
	return d, nil
}

// broadcastDim joins two dims by the broadcasting rule: equal dims stay, a dim of 1 gives way to the
// other. Dims that can still turn out to be equal are joined like unify does; dims that cannot are
// compatible only where just one of them can turn out to be 1.
func broadcastDim(a, b *Expr) (*Expr, bool) {
	switch {
	case a.Equal(b), b.IsConst(1):
		return a, true
	case a.IsConst(1):
		return b, true
	}
	if d, ok := unify(a, b); ok {
		return d, true
	}
	switch aOne, bOne := canBe(a, 1), canBe(b, 1); {
	case aOne && !bOne:
		return b, true
	case bOne && !aOne:
		return a, true
	}
	return nil, false
}

// broadcastShapes joins shapes, aligned at their last dims.
func broadcastShapes(shapes ...[]*Expr) ([]*Expr, error) {
	var out []*Expr
	for _, s := range shapes {
		if len(s) > len(out) {
			out, s = slices.Clone(s), out
		} else {
			out = slices.Clone(out)
		}
		for i, d := range s {
			at := len(out) - len(s) + i
			joined, ok := broadcastDim(out[at], d)
			if !ok {
				return nil, fmt.Errorf("shapes %s do not broadcast: dims %s and %s", formatShapes(shapes), out[at], d)
			}
			out[at] = joined
		}
	}
	return out, nil
}

// broadcastTypes joins the shapes of tensors.
func broadcastTypes(types ...Type) ([]*Expr, error) {
	shapes := make([][]*Expr, len(types))
	for i, t := range types {
		shapes[i] = t.Shape
	}
	return broadcastShapes(shapes...)
}

// broadcastsTo checks that a tensor of shape from can be broadcast to exactly the shape to.
func broadcastsTo(what string, from, to []*Expr) error {
	fail := func() error {
		return fmt.Errorf("%s of shape %s does not broadcast to %s", what, formatShape(from), formatShape(to))
	}
	if len(from) > len(to) {
		return fail()
	}
	for i, d := range from {
		if t := to[len(to)-len(from)+i]; differ(d, t) && !canBe(d, 1) {
			return fail()
		}
	}
	return nil
}

// matchShapes checks that two shapes agree dim by dim and joins them.
func matchShapes(what string, a, b []*Expr) ([]*Expr, error) {
	out, ok := make([]*Expr, len(a)), len(a) == len(b)
	for i := 0; ok && i < len(a); i++ {
		out[i], ok = unify(a[i], b[i])
	}
	if !ok {
		return nil, fmt.Errorf("%s: shapes %s and %s must be equal", what, formatShape(a), formatShape(b))
	}
	return out, nil
}

func formatShape(s []*Expr) string { return TensorType(F32, s...).String()[len("f32"):] }

func formatShapes(shapes [][]*Expr) string {
	out := ""
	for i, s := range shapes {
		switch {
		case i > 0 && i == len(shapes)-1:
			out += " and "
		case i > 0:
			out += ", "
		}
		out += formatShape(s)
	}
	return out
}

// ceilDiv is ceil(a / b) for a constant b > 0.
func ceilDiv(a *Expr, b int64) *Expr { return a.Add(Const(b - 1)).FloorDiv(Const(b)) }

// int32Literal returns the value that the delegate has for a number e in an operation's attributes. A constant is a
// literal in the file, which the delegate limits to 32 bits when it reads it (MLXExecutor.h, clamp_to_int32). Any other
// expression is computed into a register, which has 32 bits anyway.
func int32Literal(e *Expr) *Expr {
	if v, ok := e.Const(); ok {
		return Const(min(max(v, math.MinInt32), math.MaxInt32))
	}
	return e
}

// fitsInt32 reports whether the file has room for these attributes: it holds them in 32 bits.
func fitsInt32(values ...int) bool {
	return !slices.ContainsFunc(values, func(v int) bool { return int(int32(v)) != v })
}

// maxAllocation is the size in bytes of the largest tensor that the delegate makes from numbers in a
// program (MLXExecutor.h, kMaxAllocationBytes).
const maxAllocation = int64(4) << 30

// checkAllocation applies the delegate's check of a tensor that an op makes from numbers in the program:
// dims must be positive and the whole at most 4 GiB. Sizes that are not known before the program runs pass.
func checkAllocation(d DType, shape []*Expr) error {
	least := int64(d.Size())
	for _, dim := range shape {
		lo, hi := dim.Bounds()
		if hi <= 0 {
			return fmt.Errorf("shape %s: dim %s must be positive", formatShape(shape), dim)
		}
		least = satMul(least, max(lo, 1))
	}
	if least > maxAllocation {
		return fmt.Errorf("%s needs more than the %d bytes that a tensor may have",
			TensorType(d, shape...), maxAllocation)
	}
	return nil
}
