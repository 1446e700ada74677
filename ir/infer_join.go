package ir

import (
	"fmt"
	"slices"
)

// inferConcatenate joins tensors along an axis; dtypes promote, the other dims must agree.
func inferConcatenate(c *Inference) ([]Type, error) {
	types := c.Types("tensors")
	if len(types) == 0 {
		return nil, fmt.Errorf("needs at least one tensor")
	}
	first := types[0]
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, first.Rank())
	if err != nil {
		return nil, err
	}
	shape, d := slices.Clone(first.Shape), first.DType
	for i, t := range types[1:] {
		if t.Rank() != first.Rank() {
			return nil, fmt.Errorf("tensors must have the same number of dims, found %s and %s", first, t)
		}
		for j, dim := range t.Shape {
			if j == axis {
				shape[j] = shape[j].Add(dim)
				continue
			}
			joined, ok := unify(shape[j], dim)
			if !ok {
				return nil, fmt.Errorf("tensor %d is %s, the first is %s: dims other than axis %d must be equal", i+1,
					t, first, axis)
			}
			shape[j] = joined
		}
		d = Promote(d, t.DType)
	}
	return single(TensorType(d, shape...))
}

// inferStack joins tensors of one shape along a new axis; dtypes promote.
func inferStack(c *Inference) ([]Type, error) {
	types := c.Types("tensors")
	if len(types) == 0 {
		return nil, fmt.Errorf("needs at least one tensor")
	}
	shape, d := types[0].Shape, types[0].DType
	for i, t := range types[1:] {
		joined, err := matchShapes(fmt.Sprintf("tensors 0 and %d", i+1), shape, t.Shape)
		if err != nil {
			return nil, err
		}
		shape, d = joined, Promote(d, t.DType)
	}
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, len(shape)+1)
	if err != nil {
		return nil, err
	}
	return single(TensorType(d, slices.Insert(slices.Clone(shape), axis, Const(int64(len(types))))...))
}

// maxPieces bounds the number of results that a split into chunks may have.
const maxPieces = 1 << 16

// inferSplit cuts x along an axis: into pieces of the given sizes or, if there is one size, into chunks of that size,
// the last of which may be shorter.
func inferSplit(c *Inference) ([]Type, error) {
	x, sizes := c.Type("x"), c.Exprs("sizes")
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, x.Rank())
	if err != nil {
		return nil, err
	}
	if len(sizes) == 0 {
		return nil, fmt.Errorf("needs at least one size")
	}
	for i, s := range sizes {
		if _, hi := s.Bounds(); hi < 0 {
			return nil, fmt.Errorf("sizes %s: number %d is negative", formatShape(sizes), i)
		}
	}
	dim := x.Shape[axis]
	if len(sizes) == 1 {
		if sizes, err = c.chunks(dim, sizes[0]); err != nil {
			return nil, err
		}
	} else {
		// The delegate reads all sizes but the last, which is what remains.
		rest := dim
		for _, s := range sizes[:len(sizes)-1] {
			rest = rest.Sub(s)
		}
		last, ok := unify(sizes[len(sizes)-1], rest)
		if !ok || less(last, Const(0)) {
			return nil, fmt.Errorf("sizes %s do not add up to dim %d of %s", formatShape(sizes), axis, x)
		}
		sizes[len(sizes)-1] = last
	}
	out := make([]Type, len(sizes))
	for i, s := range sizes {
		shape := slices.Clone(x.Shape)
		shape[axis] = s
		out[i] = TensorType(x.DType, shape...)
	}
	return out, nil
}

// chunks returns the sizes of the pieces of a split into chunks. The number of pieces is a fact of the
// graph: where dim is symbolic it is the number of results that the operation has.
func (c *Inference) chunks(dim, size *Expr) ([]*Expr, error) {
	if _, hi := size.Bounds(); hi <= 0 {
		return nil, fmt.Errorf("the chunk size must be positive, found %s", size)
	}
	n := int64(len(c.Op.Results))
	d, dimConst := dim.Const()
	s, sizeConst := size.Const()
	switch {
	case dimConst && sizeConst:
		n = max(1, (d+s-1)/s)
		if have := len(c.Op.Results); have > 0 && n != int64(have) {
			return nil, fmt.Errorf("a dim of %d in chunks of %d gives %d pieces, the operation has %d results", d, s, n,
				have)
		}
		if n > maxPieces {
			return nil, fmt.Errorf("a dim of %d in chunks of %d gives %d pieces, more than %d", d, s, n, maxPieces)
		}
	case n == 0:
		return nil, fmt.Errorf("the number of chunks of %s in a dim of %s is not known", size, dim)
	}
	out := make([]*Expr, n)
	for i := range out {
		out[i] = size
	}
	out[n-1] = dim.Sub(size.Mul(Const(n - 1)))
	if n > 1 && !atLeastOne(out[n-1]) || less(size, out[n-1]) {
		return nil, fmt.Errorf("a dim of %s in chunks of %s does not give the %d results that the operation has", dim,
			size, n)
	}
	return out, nil
}
