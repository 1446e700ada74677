package ir

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInferLowered(t *testing.T) { runInferCases(t, loweredCases()) }

func loweredCases() []inferCase {
	return []inferCase{
		{op: "copy", operands: []any{"bf16[2,T]"}, want: "bf16[2,T]"},
		{op: "delta_gates", operands: []any{"bf16[1,T,4]", "f32[4]", "f32[4]", "bf16[1,T,4]"},
			want: "f32[1,T,4] bf16[1,T,4]"},
		{op: "delta_gates", operands: []any{"bf16[1,T,4]", "f32[3]", "f32[4]", "bf16[1,T,4]"},
			err: "bias f32[3] must be as long as the last dim of x"},
	}
}

func loweredExpertsCases() []inferCase {
	experts := []any{"f32[1,T,64]", "bf16[8,32,64]", "bf16[8,32,64]", "bf16[8,64,32]"}
	chosen := append(experts[:4:4], "u32[1,T,2]", "f32[1,T,2]")
	routed := append(experts[:4:4], "f32[1,T,8]")
	norm := &ExpertsAttrs{Norm: true, Eps: 1e-6, Activation: "gelu_tanh"}
	two := &RoutedExpertsAttrs{K: 2, Precise: true, Activation: "silu"}
	return []inferCase{
		{op: "router", attrs: &RouterAttrs{K: 2}, operands: []any{"bf16[T,8]"}, want: "bf16[T,2] u32[T,2]"},
		{op: "router", attrs: &RouterAttrs{K: 9}, operands: []any{"bf16[T,8]"}, err: "top_k"},
		{op: "experts", operands: chosen, want: "f32[1,T,64]"},
		{op: "experts", attrs: norm, operands: append(chosen[:6:6], "f32[64]", "f32[1,T,64]"), want: "f32[1,T,64]"},
		{op: "experts", attrs: norm, operands: append(chosen[:6:6], "f32[63]"), err: "63"},
		{op: "sorted_experts", operands: append(chosen[:6:6], nil, nil, nil, nil, nil, "f32[1,T,64]"),
			want: "f32[1,T,64]"},
		{op: "sorted_experts", operands: append(chosen[:6:6], nil, "bf16[32,64]", "bf16[32,64]", "bf16[64,32]",
			"f32[1,T,1]", "f32[1,T,64]"), want: "f32[1,T,64]"},
		{op: "sorted_experts", operands: append(chosen[:6:6], nil, "bf16[63,64]", nil, "bf16[64,32]", "f32[1,T,1]"),
			err: "two halves"},
		{op: "routed_experts", attrs: two, operands: routed, want: "f32[1,T,64]"},
		{op: "routed_experts", attrs: two, operands: append(routed[:5:5], nil, "bf16[64,64]", nil, "bf16[64,32]",
			"f32[1,T,1]", "f32[1,T,64]"), want: "f32[1,T,64]"},
		{op: "routed_experts", attrs: two, operands: append(routed[:5:5], nil, "bf16[32,64]", "bf16[32,64]",
			"bf16[64,32]", "f32[1,T,1]"), want: "f32[1,T,64]"},
		{op: "routed_experts", attrs: two, operands: append(routed[:5:5], nil, "bf16[63,64]", nil, "bf16[64,32]",
			"f32[1,T,1]"), err: "two halves"},
		{op: "gated_add", operands: []any{"f32[T,1]", "bf16[T,64]", "bf16[T,64]"}, want: "f32[T,64]"},
		{op: "router", attrs: &RouterAttrs{K: 2}, operands: []any{"f32[T,8]", "bf16[8,1]"}, want: "f32[T,2] u32[T,2]"},
		{op: "router", attrs: &RouterAttrs{K: 2}, operands: []any{"f32[T,8]", "f32[8,2]"},
			err: "scale f32[8,2], want a number for each expert"},
		{op: "experts", attrs: &ExpertsAttrs{Activation: "sigmoid"}, operands: chosen, err: `activation "sigmoid"`},
		{op: "routed_experts", attrs: two, operands: append(routed[:5:5], nil, nil, nil, nil, nil, nil, "f32[8,1]"),
			want: "f32[1,T,64]"},
	}
}

func TestInferLoweredExperts(t *testing.T) { runInferCases(t, loweredExpertsCases()) }

func TestInferLoweredAttention(t *testing.T) { runInferCases(t, loweredAttentionCases()) }

func loweredAttentionCases() []inferCase {
	angles := &RopeAnglesAttrs{Tokens: 3, Dims: 16, Base: 10000, Scale: 1}
	norm := &RopeHeadsAttrs{Norm: true, Eps: 1e-6}
	attention := []any{"f32[1,8,3,64]", "bf16[1,2,100,64]", "bf16[1,2,100,64]", "int(P)"}
	rows := []any{"f32[1,8,3,64]", "bf16[2,9,16,64]", "bf16[2,9,16,64]", "i64[3]", "i32[3]", "i32[4,5]"}
	return []inferCase{
		{op: "rope_row_angles", attrs: angles, operands: []any{"i64[3]"}, want: "f32[3,8,2]"},
		{op: "rope_row_angles", attrs: angles, operands: []any{"i64[3]", "bf16[8]"}, want: "f32[3,8,2]"},
		{op: "rope_row_angles", attrs: angles, operands: []any{"i64[3]", "f32[7]"}, err: "freqs f32[7], want 8"},
		{op: "rows_attention", operands: rows, want: "f32[1,8,3,64]"},
		{op: "rows_attention", attrs: &AttentionAttrs{Window: 7, Scale: 1, Tiles: true},
			operands: append(rows[:6:6], "bf16[1,3,512]"), want: "f32[1,3,512]"},
		{op: "rows_attention", operands: append(rows[:6:6], "bf16[1,3,511]"), err: "511"},
		{op: "rows_attention", operands: append(rows[:4:4], "i64[3]", "i32[4,5]"), err: "sequences must be i32"},
		{op: "rope_angles", attrs: angles, operands: []any{"int(P)"}, want: "f32[3,8,2]"},
		{op: "rope_angles", attrs: angles, operands: []any{7, "bf16[8]"}, want: "f32[3,8,2]"},
		{op: "rope_angles", attrs: angles, operands: []any{7, "f32[7]"}, err: "freqs f32[7], want 8"},
		{op: "rope_heads", operands: []any{"bf16[1,4,3,32]", "f32[3,8,2]"}, want: "bf16[1,4,3,32]"},
		{op: "rope_heads", attrs: &RopeHeadsAttrs{Traditional: true}, operands: []any{"f32[1,4,3,16]", "f32[3,8,2]"},
			want: "f32[1,4,3,16]"},
		{op: "rope_heads", attrs: norm, operands: []any{"bf16[1,4,3,32]", "f32[3,8,2]", "f32[32]"},
			want: "f32[1,4,3,32]"},
		{op: "rope_heads", operands: []any{"bf16[1,4,3,32]", "f32[3,17,2]"},
			err: "17 angles of a token for heads of 32 elements"},
		{op: "rope_heads", operands: []any{"bf16[4,3,32]", "f32[3,8,2]"}, err: "want four and three dims"},
		{op: "attention", operands: attention, want: "f32[1,8,3,64]"},
		{op: "attention", operands: append(attention[:4:4], "bf16[1,3,512]"), want: "f32[1,3,512]"},
		{op: "attention", operands: append(attention[:4:4], "bf16[1,3,511]"), err: "511"},
	}
}

func TestInferLoweredState(t *testing.T) {
	keys := &Buffer{"keys", StaticType(BF16, 1, 2, 40, 32)}
	heads := []any{"bf16[1,4,1,32]", "bf16[1,2,1,32]", "bf16[1,2,1,32]", "f32[1,8,2]", "int(P)"}
	state := &Buffer{"state", StaticType(F32, 1, 4, 8, 16)}
	rule := []any{"bf16[1,T,2,16]", "bf16[1,T,2,16]", "bf16[1,T,4,8]", "bf16[1,T,4]", "bf16[1,T,4]", "bool[]"}
	all := append(rule[:6:6], "f32[16]", "f32[16]", "f32[4]", "f32[4]")
	slots := &Buffer{"slots", StaticType(F32, 7, 4, 8, 16)}
	tables := append(rule[:5:5], "i32[3,3]", "i32[T]")
	weights := append(tables[:7:7], "f32[16]", "f32[16]", "f32[4]", "f32[4]")
	pool := &Buffer{"pool", StaticType(BF16, 2, 9, 16, 32)}
	inBlocks := append(heads[:4:4], "i64[1]", "i32[1]", "i32[4,5]")
	for _, c := range []inferCase{
		{op: "slot_delta_step", operands: tables, want: "bf16[1,T,4,8]"},
		{op: "slot_delta_step", attrs: &DeltaStepAttrs{Norm: true, Eps: 1e-6, Gates: true},
			operands: weights, want: "f32[1,T,4,8]"},
		{op: "slot_delta_step", attrs: &DeltaStepAttrs{Gates: true}, operands: weights[:9],
			err: "gates want bias and rate"},
		{op: "slot_delta_chunks", operands: tables, want: "bf16[1,T,4,8]"},
		{op: "slot_delta_chunks", operands: append(tables[:6:6], "i64[T]"), err: "writes must be i32"},
		{op: "delta_step", operands: rule, want: "bf16[1,T,4,8]"},
		{op: "delta_step", attrs: &DeltaStepAttrs{Norm: true, Eps: 1e-6, Gates: true},
			operands: all, want: "f32[1,T,4,8]"},
		{op: "delta_step", attrs: &DeltaStepAttrs{Gates: true}, operands: all[:8], err: "gates want bias and rate"},
		{op: "delta_chunks", operands: rule, want: "bf16[1,T,4,8]"},
		{op: "delta_chunks", operands: append(rule[:5:5], "f32[]"), err: "reset must be one bool"},
		{op: "rope_write", operands: heads, want: "bf16[1,4,1,32]"},
		{op: "rope_write", attrs: &RopeWriteAttrs{KNorm: true, VNorm: true, Eps: 1e-6},
			operands: append(heads[:4:4], 3, 4), want: "bf16[1,4,1,32]"},
		{op: "rope_write", operands: []any{heads[0], heads[1], "bf16[1,3,1,32]", heads[3], 3, 4},
			err: "update of shape [1,3,1,32]"},
		{op: "rope_rows_write", operands: inBlocks, want: "bf16[1,4,1,32]"},
		{op: "rope_rows_write", attrs: &RopeWriteAttrs{QNorm: true, VNorm: true, Eps: 1e-6},
			operands: append(inBlocks[:7:7], "f32[32]"), want: "f32[1,4,1,32]"},
		{op: "rope_rows_write", operands: append(inBlocks[:4:4], "i64[2]", "i32[1]", "i32[4,5]"), err: "positions"},
		{op: "attention_step", attrs: &AttentionStepAttrs{Scale: 1}, operands: append(heads[:5:5], "int(P)"),
			want: "bf16[1,4,1,32]"},
		{op: "attention_step", attrs: &AttentionStepAttrs{Scale: 1},
			operands: append(heads[:5:5], "int(P)", nil, nil, nil, "f32[1,1,4,32]"), want: "f32[1,1,4,32]"},
		{op: "attention_step", attrs: &AttentionStepAttrs{Scale: 1},
			operands: append([]any{"bf16[1,3,1,32]"}, append(heads[1:5:5], "int(P)")...),
			err:      "must divide the 3 heads of q"},
	} {
		var op *Op
		err := Build(func() {
			x := newTestTypes()
			def := LookupOp(c.op)
			op = &Op{Def: def, Attrs: c.attrs, Buffer: state, Args: make([][]Arg, len(def.Operands))}
			if strings.HasPrefix(c.op, "slot_") {
				op.Buffer = slots
			}
			if def.SecondBuffer {
				op.Buffer, op.Second = keys, keys
			}
			if c.op == "rope_rows_write" {
				op.Buffer, op.Second = pool, pool
			}
			if c.attrs == nil {
				op.Attrs = def.NewAttrs()
			}
			for i, o := range c.operands {
				op.Args[i] = toArgs(x.operand(o))
			}
			(&Builder{Module: &Module{}, Region: &Region{}}).Append(op)
		})
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		checkInferCase(t, op, err, c)
	}
}
