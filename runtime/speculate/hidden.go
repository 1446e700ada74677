package speculate

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

// products are the operations that can be lm_head, each with the operand that is the hidden state.
var products = map[string]string{"linear": "x", "addmm": "mat1", "quantized_matmul": "x"}

// Hidden returns the module with a second output of its main method: the hidden state that lm_head reads, after the
// final norm, f32 [..., H] for every row that has logits. The logits must be the only output so far, and only
// elementwise work may follow lm_head. m is not changed; the result shares operations with it.
func Hidden(m *ir.Module) (*ir.Module, error) {
	f := m.Entry
	if len(f.Body.Results) != 1 || !isLogits(f.Body.Results[0].Type) {
		return nil, fmt.Errorf("%s: expected logits as the only output, to find the hidden state that they are "+
			"computed of",
			f.Name)
	}
	head := headOf(f.Body.Results[0])
	if head == nil {
		return nil, fmt.Errorf("%s: found no product with lm_head before its logits, so the hidden state is not known",
			f.Name)
	}
	hidden := head.Input(products[head.Def.Name])
	entry, body := *f, *f.Body
	body.Ops = slices.Clone(f.Body.Ops)
	err := ir.Build(func() {
		b := &ir.Builder{Module: m, Region: &body}
		if hidden.Type.DType != ir.F32 {
			hidden = b.Value("astype", &ir.DTypeAttrs{ScalarType: ir.F32}, hidden)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	body.Results = append(slices.Clone(f.Body.Results), hidden)
	entry.Outputs = append(slices.Clone(f.Outputs), hidden.Type)
	entry.Body = &body
	out := *m
	out.Entry = &entry
	return &out, ir.Verify(&out)
}

func isLogits(t ir.Type) bool { return t.Kind == ir.TensorKind && t.DType.IsFloat() && t.Rank() > 0 }

// headOf returns the product that computes logits. Casts and arithmetic with constants may follow it.
func headOf(logits *ir.Value) *ir.Op {
	for v := logits; v.Def != nil; {
		op := v.Def
		if _, ok := products[op.Def.Name]; ok {
			return op
		}
		if op.Def.Rows != ir.Elementwise && op.Def.Rows != ir.RegroupedRows {
			return nil
		}
		next := (*ir.Value)(nil)
		op.EachArg(func(a *ir.Arg) {
			if a.Value != nil && a.Value.Def != nil && a.Value.Type.Kind == ir.TensorKind && a.Value.Type.Rank() > 0 {
				next = a.Value
			}
		})
		if next == nil {
			return nil
		}
		v = next
	}
	return nil
}
