package fuse

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// foldLimit is the largest constant, in elements, that folding reads or makes.
const foldLimit = 1 << 16

// foldConstants computes operations on small constants. What they give is kept in float32, as these
// precisions do not round it.
func foldConstants(m *ir.Module) error {
	var failed error
	err := apply(m, "", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		if failed != nil || !foldable(op) {
			return nil, false
		}
		t, err := fold(op)
		if err != nil {
			failed = err
			return nil, false
		}
		return []*ir.Value{cast(b, newConstant(m, "folded."+op.Def.Name, t), op.Result().Type.DType)}, true
	})
	if err == nil {
		err = failed
	}
	return err
}

// newConstant adds a float tensor as an f32 constant, or an integer one, under a name of its own.
func newConstant(m *ir.Module, base string, t *eval.Tensor) *ir.Value {
	name := base
	for n := 2; slices.ContainsFunc(m.Constants, func(c *ir.Constant) bool { return c.Name == name }); n++ {
		name = fmt.Sprintf("%s.%d", base, n)
	}
	if t.F != nil {
		t = eval.Floats(ir.F32, t.Shape, t.F)
	}
	shape := make([]int64, len(t.Shape))
	for i, d := range t.Shape {
		shape[i] = int64(d)
	}
	return m.NewConstant(name, ir.StaticType(t.DType, shape...), ir.Bytes(t.DType, shape, t.Encode()))
}

// foldable reports whether op is a pure operation on small constants with one small result.
func foldable(op *ir.Op) bool {
	if !op.Def.CanFold() || len(op.Results) != 1 || op.Result().Type.Kind != ir.TensorKind ||
		isFloatCast(op) || op.Def.View == ir.ReshapeView || op.Def.Name == "transpose" || op.Def.Name == "take" || !small(op.Result().Type) {
		return false
	}
	values, constants := 0, 0
	op.EachArg(func(a *ir.Arg) {
		if a.Kind != ir.ValueArg {
			return
		}
		values++
		if c := constant(a.Value); c != nil && c.Data != nil && small(c.Value.Type) {
			constants++
		}
	})
	return values > 0 && values == constants
}

func small(t ir.Type) bool {
	dims, static := t.Static()
	return static && ir.Elements(dims) <= foldLimit
}

// fold computes op, whose arguments are constants, seen through casts.
func fold(op *ir.Op) (*eval.Tensor, error) {
	c := &eval.Call{Op: op, Precision: eval.FP32, Args: make([][]eval.Value, len(op.Args))}
	for i, args := range op.Args {
		for _, a := range args {
			v := eval.Value{Int: a.Int}
			if a.Kind == ir.ValueArg {
				t, err := eval.DecodeConstant(constant(a.Value))
				if err != nil {
					return nil, err
				}
				if t.F != nil { // the casts that it is seen through do not round
					t.DType = a.Value.Type.DType
				}
				v.Tensor = t
			}
			c.Args[i] = append(c.Args[i], v)
		}
	}
	out, err := eval.Run(c)
	if err != nil {
		return nil, err
	}
	return out[0].Tensor, nil
}
