package ir

import "testing"

func TestInferNormRope(t *testing.T) { runInferCases(t, normRopeCases()) }

func normRopeCases() []inferCase {
	rope := &RopeAttrs{Dims: 32, Base: 1e4, Scale: 1}
	return []inferCase{
		{op: "rms_norm", operands: []any{"bf16[1,T,64]"}, want: "bf16[1,T,64]"},
		{op: "rms_norm", operands: []any{"bf16[1,T,64]", "f32[64]"}, want: "f32[1,T,64]"},
		{op: "rms_norm", operands: []any{"bf16[1,T,64]", "f32[1,64]"}, err: "weight must have 1 dims, found f32[1,64]"},
		{op: "rms_norm", operands: []any{"bf16[1,T,64]", "f32[32]"},
			err: "weight f32[32] must be as long as the last dim of x bf16[1,T,64]"},
		{op: "rms_norm", operands: []any{"f32[]"}, err: "x must have at least 1 dims, found f32[]"},
		{op: "rms_norm", operands: []any{"i32[4]"}, err: "must be floating point, found i32"},
		{op: "layer_norm", operands: []any{"bf16[T,64]", "bf16[64]", "f32[64]"}, want: "f32[T,64]"},
		{op: "layer_norm", operands: []any{"bf16[T,64]", nil, "f32[64]"}, want: "bf16[T,64]"},
		{op: "layer_norm", operands: []any{"bf16[T,64]", nil, "f32[63]"}, err: "bias f32[63] must be as long"},

		{op: "rope", attrs: rope, operands: []any{"bf16[1,8,T,64]", "int(P)"}, want: "bf16[1,8,T,64]"},
		{op: "rope", attrs: rope, operands: []any{"bf16[B,8,T,64]", "i64[B]", "f32[16]"}, want: "bf16[B,8,T,64]"},
		{op: "rope", attrs: rope, operands: []any{"bf16[2,8,T,64]", "i32[1]"}, want: "bf16[2,8,T,64]"},
		{op: "rope", attrs: rope, operands: []any{"bf16[8,T,64]", "i32[]"}, want: "bf16[8,T,64]"},
		{op: "rope", attrs: rope, operands: []any{"bf16[2,8,T,64]", "i32[3]"},
			err: "offset must have one element or one for each of the 2 rows of x, found i32[3]"},
		{op: "rope", attrs: rope, operands: []any{"bf16[2,8,T,64]", "i32[2,1]"}, err: "offset must have one element"},
		{op: "rope", attrs: rope, operands: []any{"bf16[2,8,T,64]", "f32[]"},
			err: "offset must be integers, found f32"},
		{op: "rope", attrs: rope, operands: []any{"bf16[T,64]", "int(P)"},
			err: "x must have at least 3 dims, found bf16[T,64]"},
		{op: "rope", attrs: rope, operands: []any{"i32[1,T,64]", "int(P)"}, err: "x must be floating point"},
		{op: "rope", attrs: rope, operands: []any{"f32[1,T,16]", "int(P)"},
			err: "dims 32 is larger than the last dim of x f32[1,T,16]"},
		{op: "rope", attrs: rope, operands: []any{"f32[1,T,64]", "int(P)", "f32[32]"},
			err: "freqs must have 16 elements for dims 32, found f32[32]"},
		{op: "rope", attrs: rope, operands: []any{"f32[1,T,64]", "int(P)", "f32[1,16]"},
			err: "freqs must have 16 elements"},
		{op: "rope", attrs: &RopeAttrs{Dims: 31}, operands: []any{"f32[1,T,64]", "int(P)"},
			err: "dims must be positive and even, found 31"},
		{op: "rope", operands: []any{"f32[1,T,64]", "int(P)"}, err: "dims must be positive and even, found 0"},
	}
}

func TestInferSdpa(t *testing.T) { runInferCases(t, sdpaCases()) }

func sdpaCases() []inferCase {
	causal := &SdpaAttrs{Causal: true}
	kv := "bf16[1,2,S,64]"
	return []inferCase{
		{op: "sdpa", attrs: causal, operands: []any{"bf16[1,8,T,64]", kv, "bf16[1,2,S,32]"}, want: "bf16[1,8,T,32]"},
		{op: "sdpa", operands: []any{"bf16[1,8,T,64]", kv, "f32[1,2,S,64]", "bool[T,S]"}, want: "f32[1,8,T,64]"},
		{op: "sdpa", operands: []any{"bf16[1,8,T,64]", kv, kv, "f32[1,8,1,S]"}, want: "bf16[1,8,T,64]"},
		{op: "sdpa", attrs: causal, operands: []any{"bf16[1,8,T,64]", kv, kv, "bool[T,S]"},
			err: "takes a mask or causal, found both"},
		{op: "sdpa", operands: []any{"bf16[1,8,T,64]", kv, kv, "bool[3,T,S]"},
			err: "mask of shape [3,T,S] does not broadcast to [1,8,T,S]"},
		{op: "sdpa", operands: []any{"bf16[1,8,T,64]", kv, kv, "bool[1,1,1,T,S]"}, err: "does not broadcast"},
		{op: "sdpa", operands: []any{"bf16[8,T,64]", kv, kv}, err: "q must have 4 dims, found bf16[8,T,64]"},
		{op: "sdpa", operands: []any{"bf16[1,8,T,64]", "bf16[2,S,64]", kv}, err: "k must have 4 dims"},
		{op: "sdpa", operands: []any{"bf16[1,8,T,64]", kv, "bf16[2,S,64]"}, err: "v must have 4 dims"},
		{op: "sdpa", operands: []any{"bf16[1,7,T,64]", kv, kv}, err: "the 2 heads of k must divide the 7 heads of q"},
		{op: "sdpa", operands: []any{"bf16[1,7,T,64]", "bf16[1,0,S,64]", "bf16[1,0,S,64]"}, err: "has no heads"},
		{op: "sdpa", operands: []any{"bf16[2,8,T,64]", kv, kv}, err: "batch of q and k: 2 and 1 must be equal"},
		{op: "sdpa", operands: []any{"bf16[1,8,T,64]", kv, "bf16[2,2,S,64]"},
			err: "batch of q and v: 1 and 2 must be equal"},
		{op: "sdpa", operands: []any{"bf16[1,8,T,32]", kv, kv}, err: "head dim of q and k: 32 and 64 must be equal"},
		{op: "sdpa", operands: []any{"bf16[1,8,T,64]", kv, "bf16[1,4,S,64]"},
			err: "heads of k and v: 2 and 4 must be equal"},
		{op: "sdpa", operands: []any{"bf16[1,8,T,64]", kv, "bf16[1,2,S+1,64]"},
			err: "length of k and v: S and S+1 must be equal"},
		{op: "sdpa", operands: []any{"i32[1,8,T,64]", "i32[1,8,T,64]", "i32[1,8,T,64]"},
			err: "must be floating point, found i32"},

		{op: "update_and_attend", attrs: &UpdateAndAttendAttrs{LayerId: ptr(0), Scale: ptr(float32(1))},
			operands: []any{"f16[1,8,T,64]", "f32[1,2,T,64]", "f32[1,2,T,32]", "i64[T]"}, want: "f16[1,8,T,32]"},
		{op: "update_and_attend", attrs: &UpdateAndAttendAttrs{LayerId: ptr(0), Scale: ptr(float32(1)),
			OutDtype: ptr(F32)}, operands: []any{"f16[1,8,T,64]", "f32[1,2,T,64]", "f32[1,2,T,32]", "i32[]"},
			want: "f32[1,8,T,32]"},
		{op: "update_and_attend", attrs: &UpdateAndAttendAttrs{LayerId: ptr(0)},
			operands: []any{"f16[1,8,T,64]", "f32[1,2,T,64]", "f32[1,2,T,32]", "i64[T]"},
			err:      "layer_id and scale must be given"},
		{op: "update_and_attend", attrs: &UpdateAndAttendAttrs{LayerId: ptr(0), Scale: ptr(float32(1))},
			operands: []any{"f16[1,8,T,64]", "f32[1,2,T,64]", "f32[1,2,T,32]", "u8[T]"},
			err:      "position must be i32 or i64, found u8[T]"},
		{op: "update_and_attend", attrs: &UpdateAndAttendAttrs{LayerId: ptr(0), Scale: ptr(float32(1))},
			operands: []any{"i8[1,8,T,64]", "f32[1,2,T,64]", "f32[1,2,T,32]", "i64[T]"},
			err:      "q must be floating point"},
		{op: "update_and_attend", attrs: &UpdateAndAttendAttrs{LayerId: ptr(0), Scale: ptr(float32(1)),
			OutDtype: ptr(DType(99))}, operands: []any{"f16[1,8,T,64]", "f32[1,2,T,64]", "f32[1,2,T,32]", "i64[T]"},
			err: "out_dtype is dtype(99)"},
		{op: "update_and_attend", operands: []any{"f16[1,8,T,64]", "f32[1,2,T,64]", "f32[2,T,32]", "i64[T]"},
			err: "v must have 4 dims"},
	}
}
