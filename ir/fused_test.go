package ir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInferFused(t *testing.T) { runInferCases(t, fusedCases()) }

func fusedCases() []inferCase {
	attention := func(window int, q, k, v string) inferCase {
		return inferCase{op: "cached_attention", attrs: &CachedAttentionAttrs{Scale: 1, Window: window},
			operands: []any{q, k, v, "int(P)"}}
	}
	want := func(c inferCase, want string) inferCase { c.want = want; return c }
	fails := func(c inferCase, err string) inferCase { c.err = err; return c }
	silu := &GLUAttrs{"silu"}
	return []inferCase{
		{op: "linears", operands: []any{"bf16[1,T,64]", []string{"quantized<4,64,bf16>[32,64]", "f32[7,64]"}},
			want: "bf16[1,T,32] f32[1,T,7]"},
		{op: "linears", operands: []any{"bf16[T,64]", []string{}}, err: "needs at least one weight"},
		{op: "linears", operands: []any{"bf16[T,64]", []string{"bf16[32,64]", "bf16[64,32]"}},
			err: "must be that of weight 1, bf16[64,32]"},
		{op: "linears", operands: []any{"bf16[T,64]", []string{"bf16[2,32,64]"}}, err: "weight 0 must have two dims"},
		{op: "linears", operands: []any{"i8[T,64]", []string{"i8[32,64]"}}, err: "must be floating point"},

		{op: "glu", attrs: silu, operands: []any{"bf16[1,T,64]", "f32[1,T,64]"}, want: "f32[1,T,64]"},
		{op: "glu", attrs: silu, operands: []any{"bf16[T,1]", "bf16[T,64]"}, want: "bf16[T,64]"},
		{op: "glu", attrs: silu, operands: []any{"bf16[T,2]", "bf16[T,64]"}, err: "gate bf16[T,2] and x bf16[T,64]"},
		{op: "glu", attrs: &GLUAttrs{"relu"}, operands: []any{"bf16[T]", "bf16[T]"},
			err: `activation "relu", want one of`},
		{op: "glu", attrs: silu, operands: []any{"i8[T]", "i8[T]"}, err: "must be floating point"},

		{op: "softcap", operands: []any{"bf16[T,64]", "f32[]"}, want: "f32[T,64]"},
		{op: "softcap", operands: []any{"bf16[T,64]", "f32[3]"}, err: "x bf16[T,64] and cap f32[3]"},

		{op: "delta_decay", operands: []any{"bf16[1,T,4]", "f32[4]", "f32[4]"}, want: "f32[1,T,4]"},
		{op: "delta_decay", operands: []any{"bf16[1,T,4]", "f32[3]", "f32[4]"},
			err: "bias f32[3] must be as long as the last dim of x"},
		{op: "delta_decay", operands: []any{"bf16[1,T,4]", "f32[4]", "f32[1,4]"}, err: "rate must have 1 dims"},
		{op: "delta_decay", operands: []any{"i8[4]", "i8[4]", "i8[4]"}, err: "must be floating point"},

		want(attention(0, "f32[1,8,T,64]", "bf16[1,2,100,64]", "bf16[1,2,100,32]"), "f32[1,8,T,32]"),
		want(attention(16, "bf16[1,8,T,64]", "bf16[1,8,100,64]", "bf16[1,8,100,64]"), "bf16[1,8,T,64]"),
		fails(attention(-1, "f32[1,8,T,64]", "bf16[1,2,100,64]", "bf16[1,2,100,64]"), "window -1 is negative"),
		fails(attention(0, "f32[1,8,T,64]", "bf16[1,3,100,64]", "bf16[1,3,100,64]"),
			"the 3 heads of k must divide the 8 heads of q"),
		fails(attention(0, "f32[1,8,T,64]", "bf16[1,0,100,64]", "bf16[1,0,100,64]"), "has no heads"),
		fails(attention(0, "f32[1,8,T,64]", "bf16[1,2,100,32]", "bf16[1,2,100,64]"),
			"width of q and k: 64 and 32 must be equal"),
		fails(attention(0, "f32[1,8,T,64]", "bf16[1,2,100,64]", "bf16[1,2,99,64]"),
			"slots of k and v: 100 and 99 must be equal"),
		fails(attention(0, "f32[8,T,64]", "bf16[1,2,100,64]", "bf16[1,2,100,64]"), "q must have 4 dims"),
		fails(attention(0, "i8[1,8,T,64]", "bf16[1,2,100,64]", "bf16[1,2,100,64]"), "q must be floating point"),
		{op: "copy", operands: []any{"bf16[1,T,4]"}, want: "bf16[1,T,4]"},
		{op: "delta_gates", operands: []any{"bf16[1,T,4]", "f32[4]", "f32[4]", "bf16[1,T,4]"},
			want: "f32[1,T,4] bf16[1,T,4]"},
		{op: "delta_gates", operands: []any{"bf16[1,T,4]", "f32[3]", "f32[4]", "bf16[1,T,4]"},
			err: "bias f32[3] must be as long as the last dim of x"},
	}
}

func TestInferFusedState(t *testing.T) {
	ring := &Buffer{"ring", StaticType(BF16, 1, 2, 300, 16)}
	rows := &Buffer{"rows", StaticType(BF16, 1, 4, 64)}
	columns := &Buffer{"columns", StaticType(BF16, 1, 64, 4)}
	state := &Buffer{"state", StaticType(F32, 1, 4, 8, 16)}
	axis := &AxisAttrs{2}
	conv := func(change ...any) []any {
		args := []any{"bf16[1,T,64]", "f32[64,4,1]", "bool[]"}
		for i := 0; i < len(change); i += 2 {
			args[change[i].(int)] = change[i+1]
		}
		return args
	}
	delta := []any{"bf16[1,T,2,16]", "bf16[1,T,2,16]", "bf16[1,T,4,8]", "f32[1,T,4]", "f32[1,T,4]"}
	for _, c := range []struct {
		buffer *Buffer
		inferCase
	}{
		{ring, inferCase{op: "buffer_ring_update", attrs: axis, operands: []any{"f32[1,2,T,16]", "int(P)"}}},
		{ring, inferCase{op: "buffer_ring_update", attrs: &AxisAttrs{4}, operands: []any{"f32[1,2,T,16]", "int(P)"},
			err: "axis 4 is out of range"}},
		{ring, inferCase{op: "buffer_ring_update", attrs: axis, operands: []any{"f32[1,2,301,16]", 0},
			err: "has more rows than the buffer"}},
		{ring, inferCase{op: "buffer_ring_update", attrs: axis, operands: []any{"f32[1,3,T,16]", 0},
			err: "but for axis 2"}},
		{ring, inferCase{op: "buffer_ring_update", attrs: axis, operands: []any{"f32[2,T,16]", 0},
			err: "update must have the dims of the buffer"}},

		{rows, inferCase{op: "buffer_conv", operands: conv(), want: "f32[1,T,64]"}},
		{rows, inferCase{op: "buffer_conv", operands: conv()[:2], want: "f32[1,T,64]"}},
		{columns, inferCase{op: "buffer_conv", attrs: &BufferConvAttrs{"silu", true},
			operands: conv(), want: "f32[1,T,64]"}},
		{columns, inferCase{op: "buffer_conv", operands: conv(),
			err: "channels of x and the buffer: 64 and 4 must be equal"}},
		{rows, inferCase{op: "buffer_conv", attrs: &BufferConvAttrs{"gelu", false}, operands: conv(),
			err: `activation "gelu"`}},
		{rows, inferCase{op: "buffer_conv", operands: conv(1, "f32[64,3,1]"),
			err: "rows of the buffer and w: 4 and 3 must be equal"}},
		{rows, inferCase{op: "buffer_conv", operands: conv(1, "f32[63,4,1]"),
			err: "channels of x and w: 64 and 63 must be equal"}},
		{rows, inferCase{op: "buffer_conv", operands: conv(1, "f32[64,4,2]"),
			err: "inputs of a channel: 2 and 1 must be equal"}},
		{rows, inferCase{op: "buffer_conv", operands: conv(2, "i32[]"), err: "reset must be one bool, found i32[]"}},
		{rows, inferCase{op: "buffer_conv", operands: conv(2, "bool[2]"),
			err: "reset must be one bool, found bool[2]"}},
		{state, inferCase{op: "buffer_conv", operands: conv(), err: "the buffer must have three dims"}},

		{state, inferCase{op: "buffer_delta_rule", operands: delta, want: "bf16[1,T,4,8]"}},
		{state, inferCase{op: "buffer_delta_rule", operands: append(delta[:5:5], "bool[]"), want: "bf16[1,T,4,8]"}},
		{state, inferCase{op: "buffer_delta_rule", operands: append(delta[:5:5], "f32[]"),
			err: "reset must be one bool"}},
		{ring, inferCase{op: "buffer_delta_rule", operands: delta, err: "heads of v and state: 4 and 2 must be equal"}},
	} {
		op, err := newTestTypes().apply(c.buffer, c.op, c.attrs, append([]any{}, c.operands...)...)
		checkInferCase(t, op, err, c.inferCase)
	}
	_, err := newTestTypes().apply(nil, "buffer_conv", nil, conv()...)
	require.ErrorContains(t, err, "needs a buffer")
}
