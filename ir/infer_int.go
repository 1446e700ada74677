package ir

import (
	"fmt"
	"math"
)

// inferSymSize infers the type of sym_size, the dim itself.
func inferSymSize(c *Inference) ([]Type, error) {
	a := c.Type("a")
	dim, err := c.Axis(Attrs[SymSizeAttrs](c.Op).Dim, a.Rank())
	if err != nil {
		return nil, err
	}
	return single(IntType(a.Shape[dim]))
}

// inferItemInt infers the type of item_int, an integer of 32 bits of which no more is known.
func inferItemInt(c *Inference) ([]Type, error) {
	if x := c.Type("x"); !oneElement(x) {
		return nil, fmt.Errorf("x must have one element, found %s", x)
	}
	return single(IntType(c.Fresh(0, -1, math.MinInt32, math.MaxInt32)))
}

// inferIntArithmetic infers the types of the results of arithmetic on integers: add_int, subtract_int, multiply_int,
// floor_divide_int and mod_int. A result that never fits 32 bits is refused, as the delegate would when it runs.
func inferIntArithmetic(c *Inference) ([]Type, error) {
	a, b := int32Literal(c.Expr("a")), int32Literal(c.Expr("b"))
	var e *Expr
	switch name := c.Op.Def.Name; name {
	case "add_int":
		e = a.Add(b)
	case "subtract_int":
		e = a.Sub(b)
	case "multiply_int":
		var ok bool
		if e, ok = mulExpr(a, b); !ok {
			e = c.Fresh(0, -1, math.MinInt32, math.MaxInt32)
		}
	default:
		if b.IsConst(0) {
			return nil, fmt.Errorf("b is 0: division by zero")
		}
		if e = a.FloorDiv(b); name == "mod_int" {
			e = a.Mod(b)
		}
	}
	if lo, hi := e.Bounds(); lo > math.MaxInt32 || hi < math.MinInt32 {
		return nil, fmt.Errorf("%s and %s: the result %s does not fit 32 bits", a, b, e)
	}
	return single(IntType(e))
}
