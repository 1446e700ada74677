package ir

import "testing"

func TestInferElementwise(t *testing.T) { runInferCases(t, elementwiseCases()) }

func elementwiseCases() []inferCase {
	return []inferCase{
		{op: "noop"},
		{op: "id_copy", operands: []any{"i8[2,T]"}, want: "i8[2,T]"},
		{op: "contiguous", operands: []any{"bool[]"}, want: "bool[]"},
		{op: "neg", operands: []any{"u8[3]"}, want: "u8[3]"},
		{op: "neg", operands: []any{"bool[3]"}, err: "x must be a number, found bool[3]; use logical_not"},
		{op: "round", attrs: &RoundAttrs{Decimals: 2}, operands: []any{"i32[3]"}, want: "i32[3]"},
		{op: "gelu", attrs: &GeluAttrs{Approximate: "tanh"}, operands: []any{"i64[T]"}, want: "f32[T]"},
		{op: "silu", operands: []any{"bf16[T]"}, want: "bf16[T]"},
		{op: "exp", operands: []any{"f64[]"}, want: "f64[]"},
		{op: "reciprocal", operands: []any{"bool[]"}, want: "f32[]"},

		{op: "add", operands: []any{"f32[]", "bf16[2,3]"}, want: "f32[2,3]"},
		{op: "add", operands: []any{"f32[2,1,T]", "i64[5,1]"}, want: "f32[2,5,T]"},
		{op: "add", operands: []any{"f32[T,T]", "f32[T,1]"}, want: "f32[T,T]"},
		{op: "add", operands: []any{"f32[0]", "f32[1]"}, want: "f32[0]"},
		{op: "add", operands: []any{"f32[2,3]", "f32[2]"}, err: "shapes [2,3] and [2] do not broadcast: dims 3 and 2"},
		{op: "add", operands: []any{"f32[T]", "f32[7]"}, want: "f32[7]"},
		{op: "add", operands: []any{"f32[7]", "f32[T]"}, want: "f32[7]"},
		{op: "add", operands: []any{"f32[T]", "f32[S]"}, want: "f32[T]"},
		{op: "multiply", operands: []any{"f32[M]", "f32[N]"}, err: "dims M and N"}, // [2,64] and [100,200]
		{op: "multiply", operands: []any{"f32[T]", "f32[300]"}, want: "f32[300]"},  // T can be 1
		{op: "multiply", operands: []any{"f32[300]", "f32[T]"}, want: "f32[300]"},  //
		{op: "multiply", operands: []any{"f32[M]", "f32[300]"}, err: "M and 300"},  // M cannot
		{op: "multiply", operands: []any{"f32[M+1]", "f32[M]"}, err: "M+1 and M"},  // neither equal nor 1
		{op: "floor_divide", operands: []any{"i64[2]", "i64[2]"}, want: "f32[2]"},
		{op: "floor_divide", operands: []any{"bool[2]", "bool[2]"}, want: "f32[2]"},
		{op: "floor_divide", operands: []any{"i64[2]", "bf16[2]"}, want: "bf16[2]"},
		{op: "floor_divide", operands: []any{"bf16[2]", "i64[2]"}, want: "bf16[2]"},
		{op: "power", operands: []any{"i32[2]", "i32[]"}, want: "i32[2]"},
		{op: "remainder", operands: []any{"u8[2]", "i8[]"}, want: "i16[2]"},
		{op: "atan2", operands: []any{"i32[2]", "i32[]"}, want: "f32[2]"},
		{op: "divide", operands: []any{"u64[2]", "f16[]"}, want: "f16[2]"},

		{op: "less", operands: []any{"bf16[T,1]", "i64[4]"}, want: "bool[T,4]"},
		{op: "equal", operands: []any{"bool[3]", "i64[T,1]"}, want: "bool[T,3]"},
		{op: "equal", operands: []any{"f32[3]", "f32[4]"}, err: "do not broadcast"},
		{op: "logical_and", operands: []any{"f32[T,1]", "i64[4]"}, want: "bool[T,4]"},
		{op: "logical_not", operands: []any{"f32[T,1]"}, want: "bool[T,1]"},
		{op: "bitwise_and", operands: []any{"bool[T]", "bool[]"}, want: "bool[T]"},
		{op: "bitwise_or", operands: []any{"u8[T]", "i8[]"}, want: "i16[T]"},
		{op: "bitwise_xor", operands: []any{"u64[T]", "i8[]"},
			err: "must be integers or bool, found u64[T] and i8[], which promote to f32"},
		{op: "bitwise_invert", operands: []any{"bool[T]"}, want: "bool[T]"},
		{op: "bitwise_invert", operands: []any{"f16[T]"}, err: "x must be integers or bool, found f16[T]"},
		{op: "where", operands: []any{"f32[T,1]", "bf16[]", "f16[5]"}, want: "f32[T,5]"},
		{op: "where", operands: []any{"bool[2]", "bf16[3]", "f16[]"}, err: "shapes [2], [3] and [] do not broadcast"},
		{op: "clip", operands: []any{"i32[T]", "f32[]"}, want: "f32[T]"},
		{op: "clip", operands: []any{"i32[T]", nil, "i64[2,1]"}, want: "i64[2,T]"},
		{op: "clip", operands: []any{"i32[T]"}, err: "needs a_min or a_max"},
		{op: "astype", attrs: &DTypeAttrs{BF16}, operands: []any{"i32[T]"}, want: "bf16[T]"},
		{op: "astype", attrs: &DTypeAttrs{9}, operands: []any{"i32[T]"},
			err: "scalar_type is dtype(9), which is no dtype of a tensor"},

		// Operands of the wrong kind never reach a rule.
		{op: "exp", operands: []any{"int(T)"}, err: "int(T), want tensor"},
		{op: "exp", operands: []any{"quantized<4,64,bf16>[2,64]"}, err: "want tensor"},
		{op: "exp", operands: []any{}, err: "operand x is missing"},
		{op: "exp", attrs: &RoundAttrs{}, operands: []any{"f32[]", 3}, err: "2 operands, it has 1"},
		{op: "round", attrs: &AxisAttrs{}, operands: []any{"f32[]"},
			err: "has attributes *ir.AxisAttrs, want *ir.RoundAttrs"},
	}
}
