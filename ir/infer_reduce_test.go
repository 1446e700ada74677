package ir

import "testing"

func TestInferReduce(t *testing.T) { runInferCases(t, reduceCases()) }

func reduceCases() []inferCase {
	axes := func(keep bool, a ...int) *ReduceAttrs { return &ReduceAttrs{Axes: a, Keepdims: keep} }
	return []inferCase{
		{op: "sum", attrs: axes(false, -1), operands: []any{"bf16[2,T,8]"}, want: "bf16[2,T]"},
		{op: "sum", attrs: axes(true, 0, 2), operands: []any{"i8[2,T,8]"}, want: "i32[1,T,1]"},
		{op: "sum", attrs: axes(false), operands: []any{"u16[2,T]"}, want: "u32[]"},
		{op: "sum", attrs: axes(true), operands: []any{"u64[2,T]"}, want: "u64[1,1]"},
		{op: "prod", attrs: axes(false), operands: []any{"i64[2,T]"}, want: "i64[]"},
		{op: "sum", operands: []any{"i8[]"}, want: "i8[]"}, // MLX hands a scalar back
		{op: "sum", attrs: axes(false, 0), operands: []any{"i8[]"}, err: "axis 0 is out of range for 0 dims"},
		{op: "sum", attrs: axes(false, 2), operands: []any{"i8[2,2]"}, err: "axis 2 is out of range for 2 dims"},
		{op: "sum", attrs: axes(false, -3), operands: []any{"i8[2,2]"}, err: "axis -3 is out of range for 2 dims"},
		{op: "sum", attrs: axes(false, 1, -1), operands: []any{"i8[2,2]"}, err: "axis -1 is listed twice in [1 -1]"},
		{op: "mean", attrs: axes(false, 0), operands: []any{"i32[2,T]"}, want: "f32[T]"},
		{op: "mean", attrs: axes(false, 0), operands: []any{"bf16[2,T]"}, want: "bf16[T]"},
		{op: "var", attrs: &VarianceAttrs{Axes: []int{1}, Keepdims: true, Ddof: 1},
			operands: []any{"f16[2,T]"}, want: "f16[2,1]"},
		{op: "std", attrs: &VarianceAttrs{}, operands: []any{"bool[2,T]"}, want: "f32[]"},
		{op: "logsumexp", attrs: axes(false), operands: []any{"i32[2,T]"}, want: "f32[2,T]"}, // identity without axes
		{op: "logsumexp", attrs: axes(true, 1), operands: []any{"bf16[2,T]"}, want: "bf16[2,1]"},
		{op: "max", attrs: axes(false, 1), operands: []any{"bool[2,T]"}, want: "bool[2]"},
		{op: "min", attrs: axes(false, 1), operands: []any{"i32[2,0]"}, err: "axis 1 of i32[2,0] has no elements"},
		{op: "min", attrs: axes(false, 0), operands: []any{"i32[2,0]"}, want: "i32[0]"},
		{op: "max", attrs: axes(false, 1), operands: []any{"i32[2,S]"}, want: "i32[2]"}, // S may be 0
		{op: "max", attrs: axes(false, 5), operands: []any{"i32[2,S]"}, err: "axis 5 is out of range"},
		{op: "median", attrs: axes(false, 1), operands: []any{"i32[2,T]"}, want: "f32[2]"},
		{op: "any", attrs: axes(true), operands: []any{"f32[2,T]"}, want: "bool[1,1]"},
		{op: "all", attrs: axes(false, -2), operands: []any{"u32[2,T]"}, want: "bool[T]"},

		{op: "argmax", attrs: &ArgReduceAttrs{Axis: -1}, operands: []any{"f32[2,T]"}, want: "u32[2]"},
		{op: "argmin", attrs: &ArgReduceAttrs{Axis: 0, Keepdims: true}, operands: []any{"f32[2,T]"}, want: "u32[1,T]"},
		{op: "argmin", attrs: &ArgReduceAttrs{Axis: 0}, operands: []any{"f32[2,0]"}, err: "dim 1 of f32[2,0] is zero"},
		{op: "argmin", attrs: &ArgReduceAttrs{Axis: 0}, operands: []any{"f32[]"}, err: "out of range"},
		{op: "softmax", attrs: &SoftmaxAttrs{Axis: -1}, operands: []any{"i32[2,T]"}, want: "f32[2,T]"},
		{op: "softmax", attrs: &SoftmaxAttrs{Axis: 0}, operands: []any{"i32[2,T]"}, want: "i32[2,T]"},
		{op: "softmax", attrs: &SoftmaxAttrs{Axis: 0}, operands: []any{"f32[]"}, err: "out of range for 0 dims"},
		{op: "cumsum", attrs: &CumsumAttrs{Axis: 1}, operands: []any{"bool[2,T]"}, want: "i32[2,T]"},
		{op: "cumsum", attrs: &CumsumAttrs{Axis: 2}, operands: []any{"u8[2,T]"}, err: "out of range"},
		{op: "sort", attrs: &AxisAttrs{-1}, operands: []any{"bf16[2,T]"}, want: "bf16[2,T]"},
		{op: "argsort", attrs: &AxisAttrs{1}, operands: []any{"bf16[2,T]"}, want: "u32[2,T]"},
		{op: "argsort", attrs: &AxisAttrs{2}, operands: []any{"bf16[2,T]"}, err: "axis 2 is out of range"},
		{op: "partition", attrs: &AxisAttrs{-1}, operands: []any{"bf16[2,8]", -8}, want: "bf16[2,8]"},
		{op: "partition", attrs: &AxisAttrs{-1}, operands: []any{"bf16[2,8]", -9},
			err: "kth -9 is out of range for a dim of 8"},
		{op: "argpartition", attrs: &AxisAttrs{0}, operands: []any{"bf16[T]", 254}, want: "u32[T]"},
		{op: "argpartition", attrs: &AxisAttrs{0}, operands: []any{"bf16[T]", 255},
			err: "kth 255 is out of range for a dim of T"},
		{op: "argpartition", attrs: &AxisAttrs{0}, operands: []any{"bf16[T]", "int(T-1)"}, want: "u32[T]"},
		{op: "argpartition", attrs: &AxisAttrs{0}, operands: []any{"bf16[T]", "int(T)"}, err: "kth T is out of range"},
	}
}
