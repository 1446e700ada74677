package ir

import "fmt"

// inferNothing is the rule of noop.
func inferNothing(*Inference) ([]Type, error) { return nil, nil }

// inferSame infers the types of the results of operations that keep the type of x. neg has no bool form in MLX.
func inferSame(c *Inference) ([]Type, error) {
	x := c.Type("x")
	if c.Op.Def.Name == "neg" && x.DType == Bool {
		return nil, fmt.Errorf("x must be a number, found %s; use logical_not", x)
	}
	return single(like(x, x.DType))
}

// inferUnaryFloat infers the types of the results of exp, sin, sigmoid and others. Floats keep their dtype, all else
// becomes f32.
func inferUnaryFloat(c *Inference) ([]Type, error) {
	x := c.Type("x")
	return single(like(x, atLeastFloat(x.DType)))
}

// inferBinary infers the types of the results of add, maximum and others. a and b broadcast, their dtypes promote.
//
// floor_divide on an integer a is the delegate's own composition of a division in floating point and a
// correction (MLXInterpreter.h, exec_floor_divide): its result is floating point.
func inferBinary(c *Inference) ([]Type, error) {
	a, b := c.Type("a"), c.Type("b")
	d := Promote(a.DType, b.DType)
	if c.Op.Def.Name == "floor_divide" && !a.DType.IsFloat() {
		d = atLeastFloat(d)
	}
	return c.broadcast(d, a, b)
}

// inferBinaryFloat infers the types of divide, atan2 and logaddexp, as inferBinary does, but integers and bool become
// f32.
func inferBinaryFloat(c *Inference) ([]Type, error) {
	a, b := c.Type("a"), c.Type("b")
	return c.broadcast(atLeastFloat(Promote(a.DType, b.DType)), a, b)
}

// inferCompare infers the types of the results of less, equal and the other comparisons. a and b broadcast to bool.
func inferCompare(c *Inference) ([]Type, error) { return c.broadcast(Bool, c.Type("a"), c.Type("b")) }

// inferLogical infers the types of logical_and and logical_or. a and b, read as bool, broadcast to bool.
func inferLogical(c *Inference) ([]Type, error) { return c.broadcast(Bool, c.Type("a"), c.Type("b")) }

// inferLogicalNot infers the type of logical_not, bool of the shape of x.
func inferLogicalNot(c *Inference) ([]Type, error) { return single(like(c.Type("x"), Bool)) }

// inferBitwise infers the types of bitwise_and, bitwise_or and bitwise_xor, as inferBinary does, for integers and bool
// alone.
func inferBitwise(c *Inference) ([]Type, error) {
	a, b := c.Type("a"), c.Type("b")
	d := Promote(a.DType, b.DType)
	if d.IsFloat() {
		return nil, fmt.Errorf("a and b must be integers or bool, found %s and %s, which promote to %s", a, b, d)
	}
	return c.broadcast(d, a, b)
}

// inferBitwiseInvert infers the type of bitwise_invert. Integers are inverted bit by bit, bools logically.
func inferBitwiseInvert(c *Inference) ([]Type, error) {
	x := c.Type("x")
	if x.DType.IsFloat() {
		return nil, fmt.Errorf("x must be integers or bool, found %s", x)
	}
	return single(like(x, x.DType))
}

// inferWhere infers the type of where. condition, read as bool, broadcasts with x and y; the dtypes of x and y promote.
func inferWhere(c *Inference) ([]Type, error) {
	x, y := c.Type("x"), c.Type("y")
	return c.broadcast(Promote(x.DType, y.DType), c.Type("condition"), x, y)
}

// inferClip infers the type of clip, the maximum with a_min, then the minimum with a_max. One of the two may be absent.
func inferClip(c *Inference) ([]Type, error) {
	types := []Type{c.Type("x")}
	for _, bound := range []string{"a_min", "a_max"} {
		if c.Has(bound) {
			types = append(types, c.Type(bound))
		}
	}
	if len(types) == 1 {
		return nil, fmt.Errorf("needs a_min or a_max")
	}
	d := types[0].DType
	for _, t := range types[1:] {
		d = Promote(d, t.DType)
	}
	return c.broadcast(d, types...)
}

// inferAsType infers the type of astype, the shape of x in another dtype.
func inferAsType(c *Inference) ([]Type, error) {
	d := Attrs[DTypeAttrs](c.Op).ScalarType
	if err := checkDType("scalar_type", d); err != nil {
		return nil, err
	}
	return single(like(c.Type("x"), d))
}

// broadcast returns the result of dtype d in the joined shape of its arguments.
func (c *Inference) broadcast(d DType, types ...Type) ([]Type, error) {
	shape, err := broadcastTypes(types...)
	if err != nil {
		return nil, err
	}
	return single(TensorType(d, shape...))
}

func checkDType(attr string, d DType) error {
	if !d.Valid() {
		return fmt.Errorf("%s is %s, which is no dtype of a tensor", attr, d)
	}
	return nil
}
