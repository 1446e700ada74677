package ir

import "testing"

func TestInferShape(t *testing.T) { runInferCases(t, shapeCases()) }

func shapeCases() []inferCase {
	return []inferCase{
		{op: "reshape", operands: []any{"f32[1,T,2048]", []any{1, "int(T)", 32, 64}}, want: "f32[1,T,32,64]"},
		{op: "reshape", operands: []any{"f32[1,T,2048]", []any{1, -1, 32, 64}}, want: "f32[1,T,32,64]"},
		{op: "reshape", operands: []any{"f32[1,T,2048]", []any{-1}}, want: "f32[2048*T]"},
		{op: "reshape", operands: []any{"f32[1,T,2048]", []any{"int(T)", -1}}, want: "f32[T,2048]"},
		// S may be 0
		{op: "reshape", operands: []any{"f32[1,S,2048]", []any{"int(S)", -1}}, want: "f32[S,floordiv(2048*S,S)]"},
		{op: "reshape", operands: []any{"f32[T,3]", []any{-1, 2}}, want: "f32[floordiv(3*T,2),2]"},
		{op: "reshape", operands: []any{"f32[T+3,64]", []any{-1, 32}}, want: "f32[2*T+6,32]"},
		{op: "reshape", operands: []any{"f32[]", []any{}}, want: "f32[]"},
		{op: "reshape", operands: []any{"f32[]", []any{1, -1}}, want: "f32[1,1]"},
		{op: "reshape", operands: []any{"f32[0,3]", []any{3, 0}}, want: "f32[3,0]"},
		{op: "reshape", operands: []any{"f32[6]", []any{4, 2}}, err: "f32[6] has 6 elements, shape [4,2] has 8"},
		{op: "reshape", operands: []any{"f32[6]", []any{4, -1}},
			err: "f32[6] has 6 elements, which shape [4,-1] does not divide"},
		{op: "reshape", operands: []any{"f32[6]", []any{-1, -1}}, err: "shape [-1,-1] has more than one -1"},
		{op: "reshape", operands: []any{"f32[0]", []any{-1, 0}}, err: "cannot be derived beside a dim of 0"},
		{op: "reshape", operands: []any{"f32[6]", []any{-2, 3}}, err: "shape [-2,3]: dim 0 is negative"},
		{op: "reshape", operands: []any{"f32[M,3]", []any{2}}, err: "f32[M,3] has 3*M elements, shape [2] has 2"},
		{op: "reshape", operands: []any{"f32[T,3]", []any{300}}, want: "f32[300]"},

		{op: "transpose", attrs: &TransposeAttrs{[]int{0, 2, 1, 3}}, operands: []any{"f32[1,T,32,64]"},
			want: "f32[1,32,T,64]"},
		{op: "transpose", attrs: &TransposeAttrs{[]int{-1, 0}}, operands: []any{"f32[T,64]"}, want: "f32[64,T]"},
		{op: "transpose", attrs: &TransposeAttrs{[]int{0}}, operands: []any{"f32[T,64]"},
			err: "perm [0] has 1 axes, x is f32[T,64]"},
		{op: "transpose", attrs: &TransposeAttrs{[]int{0, -2}}, operands: []any{"f32[T,64]"},
			err: "perm [0 -2] lists axis -2 twice"},
		{op: "transpose", attrs: &TransposeAttrs{[]int{0, 2}}, operands: []any{"f32[T,64]"},
			err: "axis 2 is out of range for 2 dims"},

		{op: "squeeze", operands: []any{"f32[1,T,1,8]"}, want: "f32[T,8]"},
		{op: "squeeze", attrs: &SqueezeAttrs{[]int{0, 1, -1, 7}}, operands: []any{"f32[1,T,1,8]"}, want: "f32[T,1,8]"},
		{op: "squeeze", attrs: &SqueezeAttrs{[]int{0, -4}}, operands: []any{"f32[1,T,1,8]"},
			err: "dims [0 -4] list axis -4 twice"},
		{op: "expand_dims", attrs: &AxisAttrs{1}, operands: []any{"f32[T,8]"}, want: "f32[T,1,8]"},
		{op: "expand_dims", attrs: &AxisAttrs{-1}, operands: []any{"f32[T,8]"}, want: "f32[T,8,1]"},
		{op: "expand_dims", attrs: &AxisAttrs{-3}, operands: []any{"f32[T,8]"}, want: "f32[1,T,8]"},
		{op: "expand_dims", attrs: &AxisAttrs{3}, operands: []any{"f32[T,8]"},
			err: "axis 3 is out of range for 3 dims"},

		{op: "broadcast_to", operands: []any{"f32[T,1]", []any{4, -1, 8}}, want: "f32[4,T,8]"},
		{op: "broadcast_to", operands: []any{"f32[]", []any{"int(T)"}}, want: "f32[T]"},
		{op: "broadcast_to", operands: []any{"f32[64]", []any{"int(T)"}}, want: "f32[64]"}, // T must be 64
		{op: "broadcast_to", operands: []any{"f32[T]", []any{64}}, want: "f32[64]"},
		{op: "broadcast_to", operands: []any{"f32[M]", []any{1}}, err: "x of shape [M] does not broadcast to [1]"},
		{op: "broadcast_to", operands: []any{"f32[2,3]", []any{3}}, err: "x of shape [2,3] does not broadcast to [3]"},
		{op: "broadcast_to", operands: []any{"f32[3]", []any{-1, 3}}, err: "dim 0 is -1, but f32[3] has no dim there"},
		{op: "broadcast_to", operands: []any{"f32[2,3]", []any{-1}}, err: "dim 0 is -1"},
		{op: "broadcast_to", operands: []any{"f32[3]", []any{-2, 3}}, err: "dim 0 is negative"},

		{op: "tile", operands: []any{"f32[2,T]", []any{3}}, want: "f32[2,3*T]"},
		{op: "tile", operands: []any{"f32[T]", []any{"int(T)", 2}}, want: "f32[T,2*T]"},
		{op: "tile", operands: []any{"f32[T]", []any{-1}}, err: "reps [-1]: number 0 is negative"},
		{op: "repeat", attrs: &AxisAttrs{1}, operands: []any{"f32[2,T]", 3}, want: "f32[2,3*T]"},
		{op: "repeat", attrs: &AxisAttrs{-2}, operands: []any{"f32[2,T]", "int(T)"}, want: "f32[2*T,T]"},
		{op: "repeat", attrs: &AxisAttrs{0}, operands: []any{"f32[2,T]", 0}, err: "dim 0 must be positive"},
		{op: "repeat", attrs: &AxisAttrs{0}, operands: []any{"f32[2,T]", -1}, err: "must be positive"},
		{op: "repeat", attrs: &AxisAttrs{0}, operands: []any{"f32[65536,65536]", 2},
			err: "needs more than the 4294967296 bytes"},
		{op: "repeat", attrs: &AxisAttrs{2}, operands: []any{"f32[2,T]", 2}, err: "axis 2 is out of range"},

		{op: "pad", attrs: &PadAttrs{Mode: "constant"}, operands: []any{"f32[2,T]", []any{0, 1, "int(S)", 3}},
			want: "f32[3,S+T+3]"},
		{op: "pad", attrs: &PadAttrs{Mode: "edge"}, operands: []any{"f32[T]", []any{1}},
			err: "pad_width must have low and high for each of 1 dims, found 1 numbers"},
		{op: "pad", attrs: &PadAttrs{Mode: "reflect"}, operands: []any{"f32[T]", []any{1, 1}},
			err: `mode must be constant or edge, found "reflect"`},
		{op: "pad", attrs: &PadAttrs{Mode: "constant"}, operands: []any{"f32[T]", []any{1, -1}},
			err: "pad_width [1,-1]: number 1 is negative"},
		{op: "roll", attrs: &RollAttrs{[]int{0, -1}}, operands: []any{"f32[2,T]", []any{1, -7}}, want: "f32[2,T]"},
		{op: "roll", attrs: &RollAttrs{[]int{0, 1}}, operands: []any{"f32[2,T]", []any{1}},
			err: "expected a shift for each of the axes [0 1], found 1"},
		{op: "roll", attrs: &RollAttrs{[]int{2}}, operands: []any{"f32[2,T]", []any{1}}, err: "axis 2 is out of range"},

		{op: "as_strided", attrs: &AsStridedAttrs{2}, operands: []any{"f32[10]", []any{2, 4}, []any{4, 1}},
			want: "f32[2,4]"},
		{op: "as_strided", attrs: &AsStridedAttrs{3}, operands: []any{"f32[10]", []any{2, 4}, []any{4, 1}},
			err: "reads elements 3 to 10 of f32[10]"},
		{op: "as_strided", attrs: &AsStridedAttrs{9}, operands: []any{"f32[10]", []any{10}, []any{-1}},
			want: "f32[10]"},
		{op: "as_strided", attrs: &AsStridedAttrs{8}, operands: []any{"f32[10]", []any{10}, []any{-1}},
			err: "reads elements -1 to 8"},
		{op: "as_strided", attrs: &AsStridedAttrs{}, operands: []any{"f32[10]", []any{0, 99}, []any{1, 1}},
			want: "f32[0,99]"},
		{op: "as_strided", attrs: &AsStridedAttrs{}, operands: []any{"f32[10]", []any{"int(T)"}, []any{"int(P)"}},
			want: "f32[T]"},
		{op: "as_strided", attrs: &AsStridedAttrs{}, operands: []any{"f32[10]", []any{2}, []any{}},
			err: "shape [2] has 1 dims, strides [] has 0"},
		{op: "as_strided", attrs: &AsStridedAttrs{-1}, operands: []any{"f32[10]", []any{2}, []any{1}},
			err: "offset must not be negative"},
		{op: "as_strided", attrs: &AsStridedAttrs{}, operands: []any{"f32[10]", []any{-2}, []any{1}},
			err: "shape [-2]: dim 0 is negative"},
	}
}

func TestInferJoin(t *testing.T) { runInferCases(t, joinCases()) }

func joinCases() []inferCase {
	return []inferCase{
		{op: "concatenate", attrs: &AxisAttrs{1}, operands: []any{[]string{"bf16[2,T]", "f32[2,3]", "i64[2,S]"}},
			want: "f32[2,S+T+3]"},
		{op: "concatenate", attrs: &AxisAttrs{-1}, operands: []any{[]string{"bf16[T,2]", "bf16[64,3]"}},
			want: "bf16[64,5]"},
		{op: "concatenate", attrs: &AxisAttrs{0}, operands: []any{[]string{"bool[2]"}}, want: "bool[2]"},
		{op: "concatenate", attrs: &AxisAttrs{0}, operands: []any{[]string{}}, err: "needs at least one tensor"},
		{op: "concatenate", attrs: &AxisAttrs{0}, operands: []any{[]string{"f32[2]", "f32[2,1]"}},
			err: "same number of dims, found f32[2] and f32[2,1]"},
		{op: "concatenate", attrs: &AxisAttrs{0}, operands: []any{[]string{"f32[2,3]", "f32[2,4]"}},
			err: "tensor 1 is f32[2,4], the first is f32[2,3]: dims other than axis 0 must be equal"},
		{op: "concatenate", attrs: &AxisAttrs{0}, operands: []any{[]string{"f32[]"}}, err: "out of range for 0 dims"},
		// no broadcasting
		{op: "concatenate", attrs: &AxisAttrs{0}, operands: []any{[]string{"f32[2,1]", "f32[2,4]"}},
			err: "must be equal"},
		{op: "stack", attrs: &AxisAttrs{-1}, operands: []any{[]string{"bf16[2,T]", "i8[2,T]"}}, want: "bf16[2,T,2]"},
		{op: "stack", attrs: &AxisAttrs{0}, operands: []any{[]string{"i8[]", "u8[]", "i8[]"}}, want: "i16[3]"},
		{op: "stack", attrs: &AxisAttrs{0}, operands: []any{[]string{"i8[2]", "i8[3]"}},
			err: "tensors 0 and 1: shapes [2] and [3] must be equal"},
		{op: "stack", attrs: &AxisAttrs{0}, operands: []any{[]string{"i8[2]", "i8[]"}},
			err: "shapes [2] and [] must be equal"},
		{op: "stack", attrs: &AxisAttrs{2}, operands: []any{[]string{"i8[2]"}},
			err: "axis 2 is out of range for 2 dims"},
		{op: "stack", attrs: &AxisAttrs{0}, operands: []any{[]string{}}, err: "needs at least one tensor"},

		{op: "split", attrs: &AxisAttrs{1}, operands: []any{"f32[2,7]", []any{3}}, want: "f32[2,3] f32[2,3] f32[2,1]"},
		{op: "split", attrs: &AxisAttrs{1}, operands: []any{"f32[2,6]", []any{3}}, want: "f32[2,3] f32[2,3]"},
		{op: "split", attrs: &AxisAttrs{1}, operands: []any{"f32[2,6]", []any{9}}, want: "f32[2,6]"},
		{op: "split", attrs: &AxisAttrs{1}, operands: []any{"f32[2,0]", []any{9}}, want: "f32[2,0]"},
		{op: "split", attrs: &AxisAttrs{-1}, operands: []any{"f32[2,7]", []any{2, 5}}, want: "f32[2,2] f32[2,5]"},
		{op: "split", attrs: &AxisAttrs{-1}, operands: []any{"f32[2,T+4]", []any{"int(T)", 4}},
			want: "f32[2,T] f32[2,4]"},
		{op: "split", attrs: &AxisAttrs{-1}, operands: []any{"f32[2,T]", []any{1, "int(P)"}},
			want: "f32[2,1] f32[2,P]"},
		{op: "split", attrs: &AxisAttrs{-1}, operands: []any{"f32[2,7]", []any{2, 4}},
			err: "sizes [2,4] do not add up to dim 1 of f32[2,7]"},
		{op: "split", attrs: &AxisAttrs{-1}, operands: []any{"f32[2,7]", []any{8, "int(P)"}},
			err: "sizes [8,P] do not add up"},
		{op: "split", attrs: &AxisAttrs{-1}, operands: []any{"f32[2,7]", []any{8, -1}},
			err: "sizes [8,-1]: number 1 is negative"},
		{op: "split", attrs: &AxisAttrs{-1}, operands: []any{"f32[2,7]", []any{0}},
			err: "the chunk size must be positive, found 0"},
		{op: "split", attrs: &AxisAttrs{-1}, operands: []any{"f32[2,7]", []any{}}, err: "needs at least one size"},
		{op: "split", attrs: &AxisAttrs{-1}, operands: []any{"f32[2,T]", []any{4}},
			err: "the number of chunks of 4 in a dim of T is not known"},
		{op: "split", attrs: &AxisAttrs{0}, operands: []any{"f32[1000000000]", []any{1}},
			err: "gives 1000000000 pieces, more than 65536"},
		{op: "split", attrs: &AxisAttrs{2}, operands: []any{"f32[2,T]", []any{4}}, err: "axis 2 is out of range"},
	}
}

// TestInferSplitOfKnownNumber: a lifted split has its results before its types.
func TestInferSplitOfKnownNumber(t *testing.T) {
	for _, c := range []struct {
		x    string
		size any
		n    int
		want string
		err  string
	}{
		{"f32[T]", 4, 3, "f32[4] f32[4] f32[T-8]", ""},
		{"f32[T]", "int(M)", 2, "f32[M] f32[T-M]", ""},
		{"f32[N]", 4, 2, "", "chunks of 4 does not give the 2 results"}, // at least 96 remain
		{"f32[M]", 64, 2, "", "does not give the 2 results"},            // nothing remains
		{"f32[7]", 3, 2, "", "a dim of 7 in chunks of 3 gives 3 pieces, the operation has 2 results"},
	} {
		x := newTestTypes()
		def := LookupOp("split")
		op := &Op{Def: def, Attrs: &AxisAttrs{}, Args: [][]Arg{toArgs(x.value(c.x)), toArgs(x.operand(c.size))}}
		for i := range c.n {
			op.Results = append(op.Results, &Value{Def: op, Index: i})
		}
		checkInferCase(t, op, Infer(op), inferCase{op: "split", want: c.want, err: c.err})
	}
}

func TestInferCreate(t *testing.T) { runInferCases(t, createCases()) }

func createCases() []inferCase {
	return []inferCase{
		{op: "full", attrs: &DTypeAttrs{BF16}, operands: []any{[]any{2, "int(T)"}, 1.5}, want: "bf16[2,T]"},
		{op: "full", attrs: &DTypeAttrs{I64}, operands: []any{[]any{}, "int(T)"}, want: "i64[]"},
		{op: "full", attrs: &DTypeAttrs{I64}, operands: []any{[]any{2, 0}, 0.0},
			err: "shape [2,0]: dim 0 must be positive"},
		{op: "full", attrs: &DTypeAttrs{I64}, operands: []any{[]any{-1}, 0.0}, err: "shape [-1]: dim 0 is negative"},
		{op: "full", attrs: &DTypeAttrs{I64}, operands: []any{[]any{1 << 20, 1 << 20}, 0.0},
			err: "i64[1048576,1048576] needs more than"},
		{op: "full", attrs: &DTypeAttrs{I64}, operands: []any{[]any{1 << 30, 1 << 30, 1 << 30}, 0.0},
			err: "needs more than"},
		{op: "full", attrs: &DTypeAttrs{12}, operands: []any{[]any{1}, 0.0}, err: "scalar_type is dtype(12)"},
		{op: "full_like", operands: []any{"f16[T]", 1.0}, want: "f16[T]"},
		{op: "full_like", attrs: &OptionalDTypeAttrs{ptr(Bool)}, operands: []any{"f16[T]", 1.0}, want: "bool[T]"},
		{op: "full_like", attrs: &OptionalDTypeAttrs{ptr(DType(-1))}, operands: []any{"f16[T]", 1.0}, err: "dtype(-1)"},

		{op: "arange", operands: []any{0, 10, 3}, want: "i32[4]"},
		{op: "arange", attrs: &OptionalDTypeAttrs{ptr(F32)}, operands: []any{10, 0, -3}, want: "f32[4]"},
		{op: "arange", operands: []any{0, "int(T)", 1}, want: "i32[T]"},
		{op: "arange", operands: []any{"int(P)", "int(P+T)", 1}, want: "i32[T]"},
		{op: "arange", operands: []any{"int(P)", "int(P+T)", 2}, want: "i32[floordiv(T+1,2)]"},
		{op: "arange", operands: []any{"int(T)", 0, -1}, want: "i32[T]"},
		{op: "arange", operands: []any{0, "int(P)", 1}, want: "i32[max(0,P)]"},
		{op: "arange", operands: []any{0, 100, "int(M)"}, want: "i32[floordiv(M+99,M)]"},
		{op: "arange", operands: []any{0, 100, "int(P)"}, want: "i32[?]"},
		{op: "arange", operands: []any{0, 100, 0}, err: "step must not be 0"},
		{op: "arange", operands: []any{5, 5, 1}, err: "dim 0 must be positive"},
		{op: "arange", attrs: &OptionalDTypeAttrs{ptr(Bool)}, operands: []any{0, 5, 1}, err: "scalar_type is bool"},
		{op: "tri", attrs: &TriAttrs{ScalarType: Bool}, operands: []any{"int(T)", 4}, want: "bool[T,4]"},
		{op: "tri", attrs: &TriAttrs{ScalarType: Bool}, operands: []any{0, 4}, err: "must be positive"},
		{op: "tril", operands: []any{"i8[2,T,4]"}, want: "i8[2,T,4]"},
		{op: "triu", operands: []any{"i8[2]"}, err: "x must have at least 2 dims, found i8[2]"},
		{op: "random_bits", operands: []any{[]any{"int(T)", 3}}, want: "u32[T,3]"},
		{op: "random_bits", attrs: &RandomBitsAttrs{2}, operands: []any{[]any{3}, "int(P)"}, want: "u16[3]"},
		{op: "random_bits", attrs: &RandomBitsAttrs{1}, operands: []any{[]any{3}, "int(P)"}, want: "u8[3]"},
		{op: "random_bits", attrs: &RandomBitsAttrs{8}, operands: []any{[]any{3}},
			err: "width must be 1, 2 or 4 bytes, found 8"},
		{op: "random_bits", operands: []any{[]any{-3}}, err: "dim 0 is negative"},
		{op: "random_bits", operands: []any{[]any{0}}, err: "must be positive"},
		{op: "random_bits", operands: []any{[]any{3}, 7}, err: "the literal 7, want int value"},
	}
}
