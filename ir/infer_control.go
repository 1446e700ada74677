package ir

import (
	"fmt"
	"slices"
)

// inferIf joins the results of both arms pairwise. Unequal dims and ints become fresh symbols that hold
// either; a result that one arm leaves undefined has the type that the other gives it.
func inferIf(c *Inference) ([]Type, error) {
	then, otherwise := c.Op.Regions[0], c.Op.Regions[1]
	if len(then.Results) != len(otherwise.Results) {
		return nil, fmt.Errorf("the arms must have as many results, found %d and %d", len(then.Results),
			len(otherwise.Results))
	}
	if len(then.Args)+len(otherwise.Args) > 0 {
		return nil, fmt.Errorf("the arms must have no arguments, found %d and %d", len(then.Args), len(otherwise.Args))
	}
	out := make([]Type, len(then.Results))
	for i := range out {
		a, b := then.Results[i], otherwise.Results[i]
		switch {
		case isUndef(a):
			out[i] = b.Type
		case isUndef(b):
			out[i] = a.Type
		default:
			t, err := c.join(i, a.Type, b.Type)
			if err != nil {
				return nil, fmt.Errorf("result %d: %w", i, err)
			}
			out[i] = t
		}
	}
	return out, nil
}

func isUndef(v *Value) bool { return v.Def != nil && v.Def.Def.Effect == Undefined }

// join returns the type of result number i, which is a or b.
func (c *Inference) join(i int, a, b Type) (Type, error) {
	if a.Kind != b.Kind || a.DType != b.DType || a.WeightForm != b.WeightForm || a.Rank() != b.Rank() {
		return a, fmt.Errorf("the arms give %s and %s", a, b)
	}
	if a.Kind == IntKind {
		a.Int = c.either(i, -1, a.Int, b.Int)
		return a, nil
	}
	a.Shape = slices.Clone(a.Shape)
	for d := range a.Shape {
		a.Shape[d] = c.either(i, d, a.Shape[d], b.Shape[d])
	}
	return a, nil
}

func (c *Inference) either(result, dim int, a, b *Expr) *Expr {
	if a.Equal(b) {
		return a
	}
	alo, ahi := a.Bounds()
	blo, bhi := b.Bounds()
	return c.Fresh(result, dim, min(alo, blo), max(ahi, bhi))
}

// inferScan infers the type of scan. The region takes slices of the originals at a step, then the carries, and gives
// the outputs of the step, then the new carries. The results are the outputs stacked along scan_axis, then the carries
// after the last step.
func inferScan(c *Inference) ([]Type, error) {
	originals, carry, body := c.Types("originals"), c.Types("carry"), c.Op.Regions[0]
	scanAxis := Attrs[ScanAttrs](c.Op).ScanAxis
	if len(originals) == 0 {
		return nil, fmt.Errorf("needs at least one original")
	}
	if len(body.Args) != len(originals)+len(carry) {
		return nil, fmt.Errorf("the region must have an argument for each of %d originals and %d carries, found %d",
			len(originals), len(carry), len(body.Args))
	}
	outputs := len(body.Results) - len(carry)
	if outputs < 0 {
		return nil, fmt.Errorf("the region must have a result for each of %d carries, found %d",
			len(carry), len(body.Results))
	}
	var steps *Expr
	for i, t := range originals {
		axis, err := c.Axis(scanAxis, t.Rank())
		if err != nil {
			return nil, fmt.Errorf("original %d: %w", i, err)
		}
		if steps == nil {
			steps = t.Shape[axis]
		} else if less(t.Shape[axis], steps) {
			return nil, fmt.Errorf("original %d has %s steps, the first has %s", i, t.Shape[axis], steps)
		}
		slice := TensorType(t.DType, slices.Delete(slices.Clone(t.Shape), axis, axis+1)...)
		if err := sameType(fmt.Sprintf("argument %d of the region", i), body.Args[i].Type, slice); err != nil {
			return nil, err
		}
	}
	var out []Type
	for i, v := range body.Results[:outputs] {
		t := v.Type
		if t.Kind != TensorKind {
			return nil, fmt.Errorf("result %d of the region must be a tensor, found %s", i, t)
		}
		axis, err := c.Axis(scanAxis, t.Rank()+1)
		if err != nil {
			return nil, fmt.Errorf("result %d of the region: %w", i, err)
		}
		out = append(out, TensorType(t.DType, slices.Insert(slices.Clone(t.Shape), axis, steps)...))
	}
	for i, t := range carry {
		if err := sameType(fmt.Sprintf("argument %d of the region", len(originals)+i), body.Args[len(originals)+i].Type,
			t); err != nil {
			return nil, err
		}
		if err := sameType(fmt.Sprintf("result %d of the region", outputs+i),
			body.Results[outputs+i].Type, t); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// sameType checks that a value has the type that it must have, up to dims that are not provably unequal.
func sameType(what string, t, want Type) error {
	if t.Kind == want.Kind && t.DType == want.DType && t.Rank() == want.Rank() {
		if _, err := matchShapes(what, t.Shape, want.Shape); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s must be %s, found %s", what, want, t)
}
