package fuse

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
)

// fuseEmbedding makes embeddings of rows that are taken from a constant matrix, and of taken rows of
// codes, scales and biases that are dequantized.
func fuseEmbedding(m *ir.Module) error {
	symmetric := symmetricBiases(m)
	if err := apply(m, "dequantize", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		form, ok := ir.FormOf(op)
		packed, indices := taken(op.Input("w"))
		scales, indices2 := taken(op.Input("scales"))
		biases, indices3 := taken(op.Input("biases"))
		if !ok || packed == nil || scales == nil || indices != indices2 || op.Input("global_scale") != nil ||
			form.Mode == ir.Affine && (biases == nil || indices != indices3) {
			return nil, false
		}
		w := joinWeight(b, packed, scales, biases, form, op.Result().Type.DType, symmetric)
		return []*ir.Value{cast(b, b.Value("embedding", nil, indices, w), op.Result().Type.DType)}, true
	}); err != nil {
		return err
	}
	if err := passes.Clean(m); err != nil { // the rows of scales are no embeddings of their own
		return err
	}
	return apply(m, "take", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		table, indices := taken(op.Result())
		if table == nil || constant(table) == nil || !table.Type.DType.IsFloat() {
			return nil, false
		}
		return []*ir.Value{cast(b, b.Value("embedding", nil, indices, plain(table)), op.Result().Type.DType)}, true
	})
}

// taken matches rows of a matrix at the indices of a tensor.
func taken(v *ir.Value) (table, indices *ir.Value) {
	op := def(v, "take")
	if op == nil || ir.Attrs[ir.AxisAttrs](op).Axis != 0 || op.Input("x").Type.Rank() != 2 {
		return nil, nil
	}
	indices = op.Input("index")
	if indices == nil || indices.Type.Kind != ir.TensorKind || !indices.Type.DType.IsInteger() {
		return nil, nil
	}
	return op.Input("x"), indices
}
