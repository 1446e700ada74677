package ir

import (
	"fmt"
)

// Inference is what a type rule sees: an operation with its arguments' types.
//
// A rule may need a fresh symbol (the value of item_int, an If join of unequal dims). So that deriving
// a type again gives the same type, [Inference.Fresh] hands out the symbol that stands in the type that
// the operation has already, where it has one.
type Inference struct {
	Op *Op
}

// Infer derives the types of op's results and creates the results where op has none yet; where it
// has, their types are replaced. The error names the operation.
func Infer(op *Op) error {
	types, err := derive(op)
	if err != nil {
		return err
	}
	if op.Results == nil {
		op.Results = make([]*Value, len(types))
		for i := range types {
			op.Results[i] = &Value{Def: op, Index: i}
		}
	}
	if len(types) != len(op.Results) {
		return fmt.Errorf("%s: has %d results, its arguments make it %d", op.Def.Name, len(op.Results), len(types))
	}
	for i, t := range types {
		op.Results[i].Type = t
	}
	return nil
}

// Has reports whether an optional operand is present.
func (c *Inference) Has(operand string) bool { return len(c.Op.Operand(operand)) > 0 }

// Type returns the type of the value in an operand. The operand's kind must be a value kind and present.
func (c *Inference) Type(operand string) Type { return c.Op.Input(operand).Type }

// Types returns the types of the values in a list operand.
func (c *Inference) Types(operand string) []Type {
	args := c.Op.Operand(operand)
	out := make([]Type, len(args))
	for i, a := range args {
		out[i] = a.Value.Type
	}
	return out
}

// Expr returns the expression of an int operand: a literal or the expression of an int value.
func (c *Inference) Expr(operand string) *Expr { return argExpr(c.Op.Operand(operand)[0]) }

// Exprs returns the expressions of an int list operand.
func (c *Inference) Exprs(operand string) []*Expr {
	args := c.Op.Operand(operand)
	out := make([]*Expr, len(args))
	for i, a := range args {
		out[i] = argExpr(a)
	}
	return out
}

func argExpr(a Arg) *Expr {
	if a.Kind == IntArg {
		return Const(a.Int)
	}
	return a.Value.Type.Int
}

// Axis checks an axis attribute against a rank and makes it non-negative.
func (c *Inference) Axis(axis, rank int) (int, error) {
	if axis < -rank || axis >= rank {
		return 0, fmt.Errorf("axis %d is out of range for %d dims", axis, rank)
	}
	if axis < 0 {
		axis += rank
	}
	return axis, nil
}

// Fresh returns the symbol for dim number dim of result number result (dim -1: the value of an int
// result), with bounds lo and hi: the one that stands there already, or a new one.
func (c *Inference) Fresh(result, dim int, lo, hi int64) *Expr {
	if result < len(c.Op.Results) {
		t := c.Op.Results[result].Type
		var e *Expr
		switch {
		case dim < 0 && t.Kind == IntKind:
			e = t.Int
		case dim >= 0 && dim < len(t.Shape):
			e = t.Shape[dim]
		}
		if e != nil {
			if s, ok := e.Symbol(); ok && s.Lo == lo && s.Hi == hi {
				return e
			}
		}
	}
	return Sym(&Symbol{Lo: lo, Hi: hi})
}

// Attrs returns the attribute struct of the operation that a type rule or a kernel works on.
func Attrs[T any](op *Op) *T { return op.Attrs.(*T) }
