package ir

import (
	"fmt"
	"slices"
)

// matmulShape returns the shape of a × b: [..., M, K] × [..., K, N] with broadcast leading dims; a vector is a
// row on the left and a column on the right, and its dim of 1 is dropped again (mlx/ops.cpp, matmul).
func matmulShape(aName, bName string, a, b Type) ([]*Expr, error) {
	if a.Rank() == 0 || b.Rank() == 0 {
		return nil, fmt.Errorf("%s and %s must have at least one dim, found %s and %s", aName, bName, a, b)
	}
	left, right := a.Shape, b.Shape
	if len(left) == 1 {
		left = []*Expr{Const(1), left[0]}
	}
	if len(right) == 1 {
		right = []*Expr{right[0], Const(1)}
	}
	if _, ok := unify(left[len(left)-1], right[len(right)-2]); !ok {
		return nil, fmt.Errorf("the last dim of %s %s must be the last but one of %s %s", aName, a, bName, b)
	}
	batch, err := broadcastShapes(left[:len(left)-2], right[:len(right)-2])
	if err != nil {
		return nil, fmt.Errorf("leading dims of %s %s and %s %s: %w", aName, a, bName, b, err)
	}
	return matmulResult(a, b, batch, left[len(left)-2], right[len(right)-1]), nil
}

// matmulResult appends rows and columns to the leading dims, except those of a vector.
func matmulResult(a, b Type, batch []*Expr, rows, columns *Expr) []*Expr {
	shape := slices.Clone(batch)
	if a.Rank() > 1 {
		shape = append(shape, rows)
	}
	if b.Rank() > 1 {
		shape = append(shape, columns)
	}
	return shape
}

// inferAddmm infers the type of addmm, mat1 × mat2, plus a bias that broadcasts to the product.
func inferAddmm(c *Inference) ([]Type, error) {
	a, b := c.Type("mat1"), c.Type("mat2")
	shape, err := matmulShape("mat1", "mat2", a, b)
	if err != nil {
		return nil, err
	}
	d := Promote(a.DType, b.DType)
	if c.Has("bias") {
		bias := c.Type("bias")
		if err := broadcastsTo("bias", bias.Shape, shape); err != nil {
			return nil, err
		}
		d = Promote(d, bias.DType)
	}
	if err := needFloat("the promoted dtype of the operands", d); err != nil {
		return nil, err
	}
	return single(TensorType(d, shape...))
}

// gatherIndices returns the shapes of lhs_indices and rhs_indices, joined; where one is absent, every
// matrix of its operand is used once.
func (c *Inference) gatherIndices(lhs, rhs []*Expr) ([]*Expr, error) {
	shapes := [][]*Expr{lhs, rhs}
	for i, operand := range []string{"lhs_indices", "rhs_indices"} {
		if !c.Has(operand) {
			continue
		}
		t := c.Type(operand)
		if err := needInteger(operand, t.DType); err != nil {
			return nil, err
		}
		shapes[i] = t.Shape
	}
	shape, err := broadcastShapes(shapes...)
	if err != nil {
		return nil, fmt.Errorf("lhs_indices and rhs_indices: %w", err)
	}
	return shape, nil
}

// inferGatherMm infers the type of gather_mm: for every pair of indices, one matrix of a times one of b.
func inferGatherMm(c *Inference) ([]Type, error) {
	a, b := c.Type("a"), c.Type("b")
	d := Promote(a.DType, b.DType)
	if err := needFloat("the promoted dtype of a and b", d); err != nil {
		return nil, err
	}
	if !c.Has("lhs_indices") && !c.Has("rhs_indices") {
		shape, err := matmulShape("a", "b", a, b)
		if err != nil {
			return nil, err
		}
		return single(TensorType(d, shape...))
	}
	// One matrix of each tells rows, columns and whether they fit.
	one, err := matmulShape("a", "b", lastDims(a), lastDims(b))
	if err != nil {
		return nil, err
	}
	batch, err := c.gatherIndices(leadingDims(a), leadingDims(b))
	if err != nil {
		return nil, err
	}
	return single(TensorType(d, append(batch, one...)...))
}

// lastDims is one matrix (or vector) of a batch.
func lastDims(t Type) Type { return TensorType(t.DType, t.Shape[max(0, t.Rank()-2):]...) }

// leadingDims returns the batch dims of a batch of matrices.
func leadingDims(t Type) []*Expr { return t.Shape[:max(0, t.Rank()-2)] }
