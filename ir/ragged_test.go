package ir

import (
	"testing"
)

func raggedCases() []inferCase {
	rope := func(want, err string, operands ...any) inferCase {
		return inferCase{op: "rope_rows", attrs: &RopeAttrs{Dims: 8, Base: 1e4, Scale: 1}, operands: operands,
			want: want, err: err}
	}
	attend := func(want, err string, change ...any) inferCase {
		args := []any{"f32[1,8,T,64]", "bf16[2,W,16,64]", "bf16[2,W,16,32]", "i64[T]", "i32[T]", "i32[4,B]"}
		for i := 0; i < len(change); i += 2 {
			args[change[i].(int)] = change[i+1]
		}
		return inferCase{op: "block_attention", attrs: &CachedAttentionAttrs{Scale: 1}, operands: args, want: want,
			err: err}
	}
	return []inferCase{
		rope("bf16[1,4,T,64]", "", "bf16[1,4,T,64]", "i64[T]"),
		rope("bf16[1,4,T,64]", "", "bf16[1,4,T,64]", "i64[T]", "f32[4]"),
		rope("", "rows of the call and positions: T and 300 must be equal", "bf16[1,4,T,64]", "i64[300]"),
		rope("", "positions must be i64, found i32[T]", "bf16[1,4,T,64]", "i32[T]"),
		rope("", "want an even number from 2 to the last dim of x", "bf16[1,4,T,4]", "i64[T]"),
		rope("", "freqs must be [4], half of dims", "bf16[1,4,T,64]", "i64[T]", "f32[8]"),
		attend("f32[1,8,T,32]", ""),
		attend("", "first dim of q and 1: 2 and 1 must be equal", 0, "f32[2,8,T,64]"),
		attend("", "rows of a block of k and v: 16 and 8 must be equal", 2, "bf16[2,W,8,32]"),
		attend("", "the 3 heads of k must divide the 8 heads of q", 1, "bf16[3,W,16,64]", 2, "bf16[3,W,16,32]"),
		attend("", "blocks of k and v: 9 and 5 must be equal", 1, "bf16[2,9,16,64]", 2, "bf16[2,5,16,32]"),
		attend("", "sequences must be i32, found i64[T]", 4, "i64[T]"),
		attend("", "rows of the call and sequences: T and 700 must be equal", 4, "i32[700]"),
		attend("", "blocks must be i32[N,B], found i64[4,B]", 5, "i64[4,B]"),
		attend("", "q must be floating point", 0, "i8[1,8,T,64]"),
		{op: "block_attention", attrs: &CachedAttentionAttrs{Scale: 1, First: -1}, err: "first -1 is negative",
			operands: []any{"f32[1,8,T,64]", "bf16[2,W,16,64]", "bf16[2,W,16,32]", "i64[T]", "i32[T]", "i32[4,B]"}},
	}
}

func TestInferRagged(t *testing.T) { runInferCases(t, raggedCases()) }

func TestInferRaggedState(t *testing.T) {
	blocks := &Buffer{"blocks", StaticType(BF16, 2, 9, 16, 64)}
	rows := &Buffer{"rows", StaticType(BF16, 5, 4, 64)}
	columns := &Buffer{"columns", StaticType(BF16, 5, 64, 4)}
	state := &Buffer{"state", StaticType(F32, 5, 4, 8, 16)}
	with := func(args []any, change ...any) []any {
		args = append([]any{}, args...)
		for i := 0; i < len(change); i += 2 {
			args[change[i].(int)] = change[i+1]
		}
		return args
	}
	write := []any{"f32[1,2,T,64]", "i64[T]", "i32[T]", "i32[3,B]"}
	conv := []any{"bf16[1,T,64]", "f32[64,4,1]", "i32[3,3]", "i32[T]"}
	delta := []any{"bf16[1,T,2,16]", "bf16[1,T,2,16]", "bf16[1,T,4,8]", "f32[1,T,4]", "f32[1,T,4]", "i32[3,3]",
		"i32[T]"}
	for _, c := range []struct {
		buffer *Buffer
		inferCase
	}{
		{blocks, inferCase{op: "block_write", operands: write}},
		{blocks, inferCase{op: "block_write", operands: with(write, 0, "f32[1,3,T,64]"),
			err: "heads of update and the buffer: 3 and 2"}},
		{blocks, inferCase{op: "block_write", operands: with(write, 0, "f32[2,2,T,64]"),
			err: "first dim of update and 1"}},
		{blocks, inferCase{op: "block_write", operands: with(write, 1, "i64[T,1]"), err: "positions must have 1 dims"}},
		{rows, inferCase{op: "block_write", operands: write, err: "the buffer must have four dims"}},

		{rows, inferCase{op: "slot_conv", operands: conv, want: "f32[1,T,64]"}},
		{columns, inferCase{op: "slot_conv", attrs: &BufferConvAttrs{"silu", true}, operands: conv,
			want: "f32[1,T,64]"}},
		{columns, inferCase{op: "slot_conv", operands: conv,
			err: "channels of x and the buffer: 64 and 4 must be equal"}},
		{rows, inferCase{op: "slot_conv", operands: with(conv, 0, "bf16[2,T,64]"),
			err: "batch of x and the buffer: 2 and 1"}},
		{rows, inferCase{op: "slot_conv", operands: with(conv, 2, "i32[3,2]"),
			err: "entries must be i32[N,3], found i32[3,2]"}},
		{rows, inferCase{op: "slot_conv", operands: with(conv, 3, "i32[700]"),
			err: "rows of the call and writes: T and 700"}},

		{state, inferCase{op: "slot_delta_rule", operands: delta, want: "bf16[1,T,4,8]"}},
		{state, inferCase{op: "slot_delta_rule", operands: with(delta, 6, "i64[T]"),
			err: "writes must be i32, found i64[T]"}},
		{blocks, inferCase{op: "slot_delta_rule", operands: delta, err: "heads of v and state: 4 and 9 must be equal"}},

		{state, inferCase{op: "unit_copy", operands: []any{"i32[T,2]"}}},
		{state, inferCase{op: "unit_copy", attrs: &AxisAttrs{4}, operands: []any{"i32[T,2]"},
			err: "axis 4 is out of range"}},
		{state, inferCase{op: "unit_copy", operands: []any{"i32[T,3]"}, err: "pairs must be i32[N,2], found i32[T,3]"}},
	} {
		op, err := newTestTypes().apply(c.buffer, c.op, c.attrs, c.operands...)
		checkInferCase(t, op, err, c.inferCase)
	}
}

// Rows of attention stand in the tables too, and along no other axis.
func TestTabledRows(t *testing.T) {
	c := raggedCases()[6]
	op, err := newTestTypes().apply(nil, c.op, c.attrs, c.operands...)
	if err != nil {
		t.Fatal(err)
	}
	for axis, want := range [][]RowOperand{nil, nil, {{0, 0, 2}, {3, 0, 0}, {4, 0, 0}}, nil} {
		rows := RowsOf(op, axis)
		if (rows == nil) != (want == nil) {
			t.Fatalf("axis %d: %v", axis, rows)
		}
		for i := range want {
			if rows.Operands[i] != want[i] {
				t.Fatalf("axis %d: %v, want %v", axis, rows.Operands, want)
			}
		}
	}
}
