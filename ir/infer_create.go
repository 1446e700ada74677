package ir

import (
	"fmt"
	"math"
)

// shapeOperand reads a list of dims. Negative ones are refused.
func (c *Inference) shapeOperand(name string) ([]*Expr, error) {
	dims := c.Exprs(name)
	for i, d := range dims {
		dims[i] = int32Literal(d)
		if _, hi := d.Bounds(); hi < 0 {
			return nil, fmt.Errorf("%s %s: dim %d is negative", name, formatShape(dims), i)
		}
	}
	return dims, nil
}

// inferFull infers the types of full and full_like. full gives shape in the dtype of the attribute, full_like the shape
// of x in the dtype of the attribute or of x.
func inferFull(c *Inference) ([]Type, error) {
	if c.Op.Def.Name == "full_like" {
		t := c.Type("x")
		d := t.DType
		if s := Attrs[OptionalDTypeAttrs](c.Op).ScalarType; s != nil {
			d = *s
		}
		if err := checkDType("scalar_type", d); err != nil {
			return nil, err
		}
		return single(like(t, d))
	}
	shape, err := c.shapeOperand("shape")
	if err != nil {
		return nil, err
	}
	return created(Attrs[DTypeAttrs](c.Op).ScalarType, shape)
}

// created returns the result type of an operation that makes a tensor from numbers in the program, as full and arange
// do. It refuses dtypes and shapes that the delegate does not take.
func created(d DType, shape []*Expr) ([]Type, error) {
	if err := checkDType("scalar_type", d); err != nil {
		return nil, err
	}
	if err := checkAllocation(d, shape); err != nil {
		return nil, err
	}
	return single(TensorType(d, shape...))
}

// inferARange infers the type of arange: max(0, ceil((stop-start)/step)) numbers, i32 where no dtype is given.
func inferARange(c *Inference) ([]Type, error) {
	d := I32
	if s := Attrs[OptionalDTypeAttrs](c.Op).ScalarType; s != nil {
		d = *s
	}
	if d == Bool {
		return nil, fmt.Errorf("scalar_type is bool, expected a number type")
	}
	start, stop, step := int32Literal(c.Expr("start")), int32Literal(c.Expr("stop")), int32Literal(c.Expr("step"))
	var length *Expr
	switch lo, hi := step.Bounds(); {
	case step.IsConst(0):
		return nil, fmt.Errorf("step must not be 0")
	case lo == hi && lo > 0:
		length = ceilDiv(stop.Sub(start), lo).Max(Const(0))
	case lo == hi:
		length = ceilDiv(start.Sub(stop), -lo).Max(Const(0))
	case lo > 0: // floor((stop-start+step-1)/step)
		length = stop.Sub(start).Add(step).Sub(Const(1)).FloorDiv(step).Max(Const(0))
	default:
		length = c.Fresh(0, 0, 0, math.MaxInt32)
	}
	return created(d, []*Expr{length})
}

// inferTri infers the type of tri: [n, m], ones on and below the diagonal k.
func inferTri(c *Inference) ([]Type, error) {
	shape := []*Expr{int32Literal(c.Expr("n")), int32Literal(c.Expr("m"))}
	return created(Attrs[TriAttrs](c.Op).ScalarType, shape)
}

// inferTriangle infers the types of tril and triu, the lower and the upper triangle of the last two dims.
func inferTriangle(c *Inference) ([]Type, error) {
	x, err := c.minRank("x", 2)
	if err != nil {
		return nil, err
	}
	return single(like(x, x.DType))
}

// inferRandomBits infers the type of random_bits: u8, u16 or u32 by width in bytes.
func inferRandomBits(c *Inference) ([]Type, error) {
	shape, err := c.shapeOperand("shape")
	if err != nil {
		return nil, err
	}
	var d DType
	switch width := Attrs[RandomBitsAttrs](c.Op).Width; width {
	case 1:
		d = U8
	case 2:
		d = U16
	case 4:
		d = U32
	default:
		return nil, fmt.Errorf("width must be 1, 2 or 4 bytes, found %d", width)
	}
	return created(d, shape)
}
