package ir

import "testing"

func TestInferComposite(t *testing.T) { runInferCases(t, compositeCases()) }

func compositeCases() []inferCase {
	moe := func(change ...any) []any {
		args := []any{"bf16[1,T,64]", "bf16[8,32,64]", "bf16[8,32,64]", "bf16[8,64,32]", "u32[1,T,2]", "bf16[1,T,2]"}
		for i := 0; i < len(change); i += 2 {
			args[change[i].(int)] = change[i+1]
		}
		return args
	}
	gdr := func(change ...any) []any {
		args := []any{"bf16[B,T,2,16]", "bf16[B,T,2,16]", "bf16[B,T,4,8]", "f32[B,T,4]", "f32[B,T,4]", "f32[B,4,8,16]"}
		for i := 0; i < len(change); i += 2 {
			args[change[i].(int)] = change[i+1]
		}
		return args
	}
	k := func(k int) *TopKAttrs { return &TopKAttrs{k} }
	return []inferCase{
		{op: "linear", operands: []any{"bf16[1,T,64]", "bf16[32,64]"}, want: "bf16[1,T,32]"},
		{op: "linear", operands: []any{"f16[64]", "quantized<4,64,bf16>[32,64]", "f32[32]"}, want: "f32[32]"},
		{op: "linear", operands: []any{"bf16[T,64]", "quantized<4,64,bf16>[32,64]"}, want: "bf16[T,32]"},
		{op: "linear", operands: []any{"bf16[1,T,64]", "bf16[64,32]"},
			err: "the last dim of x bf16[1,T,64] must be that of weight bf16[64,32]"},
		{op: "linear", operands: []any{"bf16[1,T,64]", "bf16[1,32,64]"},
			err: "weight must have 2 dims, found bf16[1,32,64]"},
		{op: "linear", operands: []any{"bf16[]", "bf16[32,64]"}, err: "x must have at least 1 dims"},
		{op: "linear", operands: []any{"bf16[64]", "bf16[32,64]", "bf16[1,32]"},
			err: "bias must have 1 dims, found bf16[1,32]"},
		{op: "linear", operands: []any{"bf16[64]", "bf16[32,64]", "bf16[31]"},
			err: "bias bf16[31] must be as long as the first dim of weight bf16[32,64]"},
		{op: "linear", operands: []any{"i8[64]", "i8[32,64]"}, err: "must be floating point, found i8"},

		{op: "embedding", operands: []any{"i64[1,T]", "bf16[100,64]"}, want: "bf16[1,T,64]"},
		{op: "embedding", operands: []any{"u32[]", "quantized<8,32,f32>[100,64]"}, want: "f32[64]"},
		{op: "embedding", operands: []any{"f32[T]", "bf16[100,64]"}, err: "indices must be integers, found f32"},
		{op: "embedding", operands: []any{"i64[T]", "bf16[100]"}, err: "weight must have 2 dims"},

		{op: "top_k", attrs: k(2), operands: []any{"bf16[T,8]"}, want: "bf16[T,2] u32[T,2]"},
		{op: "top_k", attrs: k(8), operands: []any{"bf16[8]"}, want: "bf16[8] u32[8]"},
		{op: "top_k", attrs: k(9), operands: []any{"bf16[T,8]"},
			err: "k must be between 1 and the last dim of x bf16[T,8], found 9"},
		{op: "top_k", attrs: k(0), operands: []any{"bf16[T,8]"}, err: "found 0"},
		{op: "top_k", attrs: k(1), operands: []any{"bf16[]"}, err: "x must have at least 1 dims"},

		{op: "switch_mlp", operands: moe(), want: "bf16[1,T,64]"},
		{op: "switch_mlp", operands: moe(1, "quantized<4,32,f32>[8,32,64]", 2, "quantized<4,32,bf16>[8,32,64]"),
			want: "f32[1,T,64]"},
		{op: "switch_mlp", operands: moe(0, "bf16[T,64]"), err: "x must have 3 dims"},
		{op: "switch_mlp", operands: moe(1, "bf16[7,32,64]"), err: "experts of gate and up: 7 and 8 must be equal"},
		{op: "switch_mlp", operands: moe(3, "bf16[7,64,32]"), err: "experts of gate and down: 8 and 7 must be equal"},
		{op: "switch_mlp", operands: moe(2, "bf16[8,31,64]"), err: "rows of gate and up: 32 and 31 must be equal"},
		{op: "switch_mlp", operands: moe(3, "bf16[8,64,31]"),
			err: "rows of gate and columns of down: 32 and 31 must be equal"},
		{op: "switch_mlp", operands: moe(1, "bf16[8,32,63]"), err: "columns of x and gate: 64 and 63 must be equal"},
		{op: "switch_mlp", operands: moe(2, "bf16[8,32,63]"), err: "columns of x and up: 64 and 63 must be equal"},
		{op: "switch_mlp", operands: moe(3, "bf16[8,63,32]"),
			err: "columns of x and rows of down: 64 and 63 must be equal"},
		{op: "switch_mlp", operands: moe(4, "u32[2,T,2]"), err: "batch of x and indices: 1 and 2 must be equal"},
		{op: "switch_mlp", operands: moe(4, "u32[1,T+1,2]"), err: "tokens of x and indices: T and T+1 must be equal"},
		{op: "switch_mlp", operands: moe(5, "bf16[1,T,3]"),
			err: "indices and scores: shapes [1,T,2] and [1,T,3] must be equal"},
		{op: "switch_mlp", operands: moe(4, "f32[1,T,2]"), err: "indices must be integers"},
		{op: "switch_mlp", operands: moe(5, "i8[1,T,2]"), err: "scores must be floating point"},
		{op: "switch_mlp", operands: moe(0, "i8[1,T,64]", 1, "i8[8,32,64]", 2, "i8[8,32,64]", 3, "i8[8,64,32]"),
			err: "must be floating point, found i8"},

		{op: "gated_delta_rule", operands: gdr(), want: "bf16[B,T,4,8] f32[B,4,8,16]"},
		{op: "gated_delta_rule", operands: gdr(0, "f16[B,T,2,16]"), want: "f16[B,T,4,8] f32[B,4,8,16]"},
		{op: "gated_delta_rule", operands: gdr(1, "bf16[B,T,2,15]"),
			err: "q and k: shapes [B,T,2,16] and [B,T,2,15] must be equal"},
		{op: "gated_delta_rule", operands: gdr(4, "f32[B,T,3]"),
			err: "g and beta: shapes [B,T,4] and [B,T,3] must be equal"},
		{op: "gated_delta_rule", operands: gdr(3, "f32[B,T,3]", 4, "f32[B,T,3]"),
			err: "heads of v and g: 4 and 3 must be equal"},
		{op: "gated_delta_rule", operands: gdr(5, "f32[B,4,16,8]"),
			err: "value dim of v and state: 8 and 16 must be equal"},
		{op: "gated_delta_rule", operands: gdr(5, "f32[B,4,8,17]"),
			err: "key dim of q and state: 16 and 17 must be equal"},
		{op: "gated_delta_rule", operands: gdr(5, "f32[B,5,8,16]"), err: "heads of v and state: 4 and 5 must be equal"},
		{op: "gated_delta_rule", operands: gdr(5, "f32[9,4,8,16]"), err: "batch of q and state: B and 9 must be equal"},
		{op: "gated_delta_rule", operands: gdr(2, "bf16[9,T,4,8]"), err: "batch of q and v: B and 9 must be equal"},
		{op: "gated_delta_rule", operands: gdr(3, "f32[9,T,4]", 4, "f32[9,T,4]"),
			err: "batch of q and g: B and 9 must be equal"},
		{op: "gated_delta_rule", operands: gdr(2, "bf16[B,T+1,4,8]"),
			err: "tokens of q and v: T and T+1 must be equal"},
		{op: "gated_delta_rule", operands: gdr(3, "f32[B,T+1,4]", 4, "f32[B,T+1,4]"),
			err: "tokens of q and g: T and T+1 must be equal"},
		{op: "gated_delta_rule", operands: gdr(0, "bf16[B,T,3,16]", 1, "bf16[B,T,3,16]"),
			err: "the 3 heads of q must divide the 4 heads of v"},
		{op: "gated_delta_rule", operands: gdr(0, "bf16[B,T,0,16]", 1, "bf16[B,T,0,16]"), err: "has no heads"},
		{op: "gated_delta_rule", operands: gdr(3, "f32[B,T,4,1]"), err: "g must have 3 dims, found f32[B,T,4,1]"},
		{op: "gated_delta_rule", operands: gdr(5, "i8[B,4,8,16]"), err: "state must be floating point"},

		{op: "sample", operands: []any{"f32[B,100]", "f32[]"}, want: "i64[B]"},
		{op: "sample", operands: []any{"bf16[1,100]", "f32[1]", "i64[]", "f32[]", "i64[]"}, want: "i64[1]"},
		{op: "sample", operands: []any{"f32[1,T,100]", "f32[]"},
			err: "logits must be [B, V], found f32[1,T,100]: take the last token first"},
		{op: "sample", operands: []any{"f32[100]", "f32[]"}, err: "logits must have 2 dims, found f32[100]"},
		{op: "sample", operands: []any{"i32[1,100]", "f32[]"}, err: "logits must be floating point"},
		{op: "sample", operands: []any{"f32[1,100]", "bf16[]"},
			err: "temperature must be f32[] or f32[1], found bf16[]"},
		{op: "sample", operands: []any{"f32[1,100]", "f32[2]"},
			err: "temperature must be f32[] or f32[1], found f32[2]"},
		{op: "sample", operands: []any{"f32[1,100]", "f32[1,1]"}, err: "temperature must be f32[] or f32[1]"},
		{op: "sample", operands: []any{"f32[1,100]", "f32[]", "i32[]"}, err: "top_k must be i64[], found i32[]"},
		{op: "sample", operands: []any{"f32[1,100]", "f32[]", nil, "f32[1]"}, err: "top_p must be f32[], found f32[1]"},
		{op: "sample", operands: []any{"f32[1,100]", "f32[]", nil, nil, "f32[]"},
			err: "seed must be i64[], found f32[]"},
		{op: "switch_geglu", operands: moe(), want: "bf16[1,T,64]"},

		{op: "draw", operands: []any{"f32[B,100]", "f32[B]", "i64[B]", "f32[B]", nil, "i64[B]"}, want: "i64[B]"},
		{op: "fill_drafts", operands: []any{"i64[1,T]", "i64[B]", "i64[T]"}, want: "i64[1,T]"},
		{op: "fill_drafts", operands: []any{"i64[1,5]", "i64[2]", "i64[4]"}, err: "tokens and index"},
		{op: "fill_drafts", operands: []any{"i64[2,5]", "i64[2]", "i64[5]"}, err: "want tokens i64[1,R]"},
		{op: "fill_drafts", operands: []any{"i64[1,5]", "i32[2]", "i64[5]"}, err: "found i64[1,5], i32[2] and i64[5]"},
		{op: "draw", operands: []any{"bf16[3,100]", "f32[3]", "i64[3]", "f32[3]", "f32[3]", "i64[3]"}, want: "i64[3]"},
		{op: "draw", operands: []any{"f32[3,100]", "f32[3]", "i64[3]", "f32[3]", "f32[2]", "i64[3]"},
			err: "rows of logits and min_p: 3 and 2 must be equal"},
		{op: "draw", operands: []any{"f32[3,100]", "f32[]", "i64[3]", "f32[3]", nil, "i64[3]"},
			err: "temperature must be f32 with 1 dims, found f32[]"},
		{op: "draw", operands: []any{"f32[3,100]", "f32[3]", "i64[3]", "f32[3]", nil, "i32[3]"},
			err: "key must be i64 with 1 dims, found i32[3]"},
		{op: "draw", operands: []any{"i64[3,100]", "f32[3]", "i64[3]", "f32[3]", nil, "i64[3]"},
			err: "logits must be floating point"},

		{op: "logprobs", attrs: &LogprobsAttrs{Top: 5}, operands: []any{"bf16[B,100]", "i64[B]", "i64[B]"},
			want: "f32[B] i64[B,5] f32[B,5]"},
		{op: "logprobs", attrs: &LogprobsAttrs{Top: 101}, operands: []any{"f32[B,100]", "i64[B]", "i64[B]"},
			err: "top must be between 1 and the last dim of logits f32[B,100], found 101"},
		{op: "logprobs", operands: []any{"f32[B,100]", "i64[B]", "i64[B]"}, err: "found 0"},
		{op: "logprobs", attrs: &LogprobsAttrs{Top: 5}, operands: []any{"f32[3,100]", "i64[2]", "i64[3]"},
			err: "rows of logits and token: 3 and 2 must be equal"},

		{op: "adjust_logits", operands: []any{"bf16[B,100]"}, want: "f32[B,100]"},
		{op: "adjust_logits", operands: []any{"f32[B,100]", "i64[B,7]", "f32[B,7]", "i64[B,7,2]", "f32[B,3]", "i64[B]",
			"i64[M,2]", "i64[B]"}, want: "f32[B,100]"},
		{op: "adjust_logits", operands: []any{"f32[B,100]", "i64[B,7]"}, err: "ids needs bias or counts"},
		{op: "adjust_logits", operands: []any{"f32[B,100]", nil, "f32[B,7]"}, err: "bias needs ids"},
		{op: "adjust_logits", operands: []any{"f32[B,100]", "i64[B,7]", "f32[B,6]"},
			err: "dim 1 of bias: 7 and 6 must be equal"},
		{op: "adjust_logits", operands: []any{"f32[B,100]", "i64[B,7]", nil, "i64[B,7,2]"},
			err: "counts needs penalties"},
		{op: "adjust_logits", operands: []any{"f32[B,100]", "i64[B,7]", nil, "i64[B,7,3]", "f32[B,3]"},
			err: "dim 2 of counts: 2 and 3 must be equal"},
		{op: "adjust_logits", operands: []any{"f32[B,100]", "i64[B,7]", "f32[B,7]", nil, nil, "i64[B]"},
			err: "fed needs counts"},
		{op: "adjust_logits", operands: []any{"f32[B,100]", nil, nil, nil, nil, nil, "i64[M,2]"},
			err: "mask needs mask_row"},
		{op: "adjust_logits", operands: []any{"f32[B,129]", nil, nil, nil, nil, nil, "i64[M,2]", "i64[B]"},
			err: "words of mask and of the vocabulary: 3 and 2 must be equal"},
	}
}
