package fuse

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
)

// foldLimit is the largest constant, in elements, that folding reads or makes.
const foldLimit = 1 << 16

// foldConstants computes operations on small constants, seen through casts. What they give is kept in float32, as these
// precisions do not round it. Views other than slices and broadcasts stay: they cost nothing, and patterns see through
// them to the constant.
func foldConstants(m *ir.Module) error {
	f := passes.Folding{
		Constant: constant,
		Keep: func(op *ir.Op) bool {
			return isFloatCast(op) || op.Def.View == ir.ReshapeView || op.Def.Rows == ir.PermutedRows ||
				op.Def.Name == "take"
		},
		Limit:      foldLimit,
		Precisions: []eval.Precision{eval.FP32},
		Result: func(b *ir.Builder, op *ir.Op, t *eval.Tensor) *ir.Value {
			return cast(b, newConstant(m, "folded."+op.Def.Name, t), op.Result().Type.DType)
		},
	}
	return f.Fold(m)
}

// newConstant adds a float tensor as an f32 constant, or an integer one, under a name of its own.
func newConstant(m *ir.Module, name string, t *eval.Tensor) *ir.Value {
	if t.F != nil {
		t = eval.Floats(ir.F32, t.Shape, t.F)
	}
	return passes.AddConstant(m, name, t)
}

func small(t ir.Type) bool {
	dims, static := t.Static()
	return static && ir.Elements(dims) <= foldLimit
}
