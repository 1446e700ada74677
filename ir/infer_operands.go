package ir

import (
	"fmt"
	"reflect"
)

// derive derives the types of op's results after checking what every type rule relies on: the number
// and the kinds of the arguments, the attribute struct and the number of regions. So a rule can use
// [Inference.Type], [Inference.Expr] and [Attrs] without looking again.
func derive(op *Op) ([]Type, error) {
	def := op.Def
	if len(op.Args) != len(def.Operands) {
		return nil, fmt.Errorf("%s: has arguments for %d operands, want %d", def.Name, len(op.Args), len(def.Operands))
	}
	if err := checkArgs(op); err != nil {
		return nil, err
	}
	if def.Attrs != nil {
		if want := reflect.PointerTo(reflect.TypeOf(def.Attrs)); reflect.TypeOf(op.Attrs) != want ||
			reflect.ValueOf(op.Attrs).IsNil() {
			return nil, fmt.Errorf("%s: has attributes %T, want %s", def.Name, op.Attrs, want)
		}
	}
	if len(op.Regions) != def.Regions {
		return nil, fmt.Errorf("%s: has %d regions, want %d", def.Name, len(op.Regions), def.Regions)
	}
	c := &Inference{op}
	types, err := def.Infer(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", def.Name, err)
	}
	for i, t := range types {
		types[i] = c.limit(i, t)
	}
	return types, nil
}

// single returns the answer of a rule with one result.
func single(t Type) ([]Type, error) { return []Type{t}, nil }

// like returns a tensor with the shape of t and another dtype.
func like(t Type, d DType) Type { return TensorType(d, t.Shape...) }

// atLeastFloat returns the dtype of an operation that computes in floating point: integers and bool become
// f32 (mlx/ops.cpp, at_least_float).
func atLeastFloat(d DType) DType {
	if d.IsFloat() {
		return d
	}
	return F32
}

// rank checks that an operand has n dims.
func (c *Inference) rank(operand string, n int) (Type, error) {
	t := c.Type(operand)
	if t.Rank() != n {
		return t, fmt.Errorf("%s must have %d dims, found %s", operand, n, t)
	}
	return t, nil
}

// minRank checks that an operand has at least n dims.
func (c *Inference) minRank(operand string, n int) (Type, error) {
	t := c.Type(operand)
	if t.Rank() < n {
		return t, fmt.Errorf("%s must have at least %d dims, found %s", operand, n, t)
	}
	return t, nil
}

// needFloat checks that an operand or a promoted dtype is floating point.
func needFloat(what string, d DType) error {
	if !d.IsFloat() {
		return fmt.Errorf("%s must be floating point, found %s", what, d)
	}
	return nil
}

// needInteger checks that indices are integers; bool is none.
func needInteger(what string, d DType) error {
	if !d.IsInteger() {
		return fmt.Errorf("%s must be integers, found %s", what, d)
	}
	return nil
}
