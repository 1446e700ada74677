package ir

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInferInt(t *testing.T) { runInferCases(t, intCases()) }

func intCases() []inferCase {
	return []inferCase{
		{op: "sym_size", attrs: &SymSizeAttrs{1}, operands: []any{"f32[2,T+3]"}, want: "int(T+3)"},
		{op: "sym_size", attrs: &SymSizeAttrs{-2}, operands: []any{"f32[2,T]"}, want: "int(2)"},
		{op: "sym_size", attrs: &SymSizeAttrs{2}, operands: []any{"f32[2,T]"},
			err: "axis 2 is out of range for 2 dims"},
		{op: "item_int", operands: []any{"i64[]"}, want: "int(?)"},
		{op: "item_int", operands: []any{"bool[1,1]"}, want: "int(?)"},
		{op: "item_int", operands: []any{"i64[2]"}, err: "x must have one element, found i64[2]"},
		{op: "item_int", operands: []any{"i64[M]"}, err: "x must have one element"},
		{op: "add_int", operands: []any{"int(P)", "int(T)"}, want: "int(P+T)"},
		{op: "add_int", operands: []any{"int(P)", -3}, want: "int(P-3)"},
		{op: "subtract_int", operands: []any{"int(P+T)", "int(P)"}, want: "int(T)"},
		{op: "multiply_int", operands: []any{"int(T)", 8}, want: "int(8*T)"},
		{op: "floor_divide_int", operands: []any{-7, 2}, want: "int(-4)"},
		{op: "floor_divide_int", operands: []any{"int(8*T)", 4}, want: "int(2*T)"},
		{op: "floor_divide_int", operands: []any{"int(T-1)", 1}, want: "int(T-1)"},
		{op: "floor_divide_int", operands: []any{"int(P)", 0}, err: "b is 0: division by zero"},
		{op: "mod_int", operands: []any{-7, 2}, want: "int(1)"},
		{op: "mod_int", operands: []any{7, -2}, want: "int(-1)"},
		{op: "mod_int", operands: []any{"int(P)", 31}, want: "int(mod(P,31))"},
		{op: "mod_int", operands: []any{"int(T)", 256}, want: "int(T)"},
		{op: "mod_int", operands: []any{"int(P)", "int(T-T)"}, err: "division by zero"},
		{op: "add_int", operands: []any{math.MaxInt32, 1},
			err: "2147483647 and 1: the result 2147483648 does not fit 32 bits"},
		// literals are limited to 32 bits first
		{op: "add_int", operands: []any{math.MaxInt, -1}, want: "int(2147483646)"},
		{op: "subtract_int", operands: []any{math.MinInt, "int(T)"}, err: "does not fit 32 bits"},
		{op: "multiply_int", operands: []any{1 << 16, 1 << 16}, err: "the result 4294967296 does not fit 32 bits"},
		{op: "add_int", operands: []any{"f32[]", 1}, err: "f32[], want int"},
		{op: "add_int", operands: []any{1.5, 1}, err: "the literal 1.5, want int"},
	}
}

// TestItemIntBounds: the value of item_int is any 32-bit number, and stays the same symbol.
func TestItemIntBounds(t *testing.T) {
	op, err := newTestTypes().apply(nil, "item_int", nil, "i64[]")
	require.NoError(t, err)
	s, ok := op.Result().Type.Int.Symbol()
	require.True(t, ok)
	require.Equal(t, []int64{math.MinInt32, math.MaxInt32}, []int64{s.Lo, s.Hi})
	require.NoError(t, Infer(op))
	again, _ := op.Result().Type.Int.Symbol()
	require.Same(t, s, again)
}

// TestExpressionsStaySmall: a chain of operations that squares or nests its argument needs memory
// linear in its length, and what it gives is derived again as it is.
func TestExpressionsStaySmall(t *testing.T) {
	chains := map[string]func(b *Builder, v *Value) *Value{
		"squares": func(b *Builder, v *Value) *Value {
			return b.Value("multiply_int", nil, b.Value("add_int", nil, v, 1), v)
		},
		"nests": func(b *Builder, v *Value) *Value {
			return b.Value("add_int", nil, b.Value("floor_divide_int", nil, v, 3), b.Value("mod_int", nil, v, 5))
		},
		"reshapes": func(b *Builder, v *Value) *Value {
			x := b.Value("full", &DTypeAttrs{I8}, []any{b.Value("add_int", nil, b.Value("mod_int", nil, v, 7), 1), v},
				0.0)
			y := b.Value("reshape", nil, x, []any{2, -1})
			z := b.Value("concatenate", &AxisAttrs{0},
				[]*Value{b.Value("reshape", nil, x, []any{-1}), b.Value("reshape", nil, y, []any{-1})})
			return b.Value("sym_size", &SymSizeAttrs{0},
				b.Value("tile", nil, z, []any{b.Value("sym_size", &SymSizeAttrs{1}, y)}))
		},
		"slices": func(b *Builder, v *Value) *Value {
			x := b.Value("arange", nil, 0, v, 1)
			length := b.Value("sym_size", &SymSizeAttrs{0},
				b.Value("slice", &StepAttrs{2}, x, 0, b.Value("subtract_int", nil, 3, v), v))
			return b.Value("add_int", nil, v, length)
		},
	}
	for name, step := range chains {
		t.Run(name, func(t *testing.T) {
			m := &Module{Entry: &Func{Name: "forward", Body: &Region{}}}
			v := m.Entry.NewParam("x", StaticType(I64))
			require.NoError(t, Build(func() {
				b := &Builder{Module: m, Region: m.Entry.Body}
				v = b.Value("item_int", nil, v)
				for range 100 {
					v = step(b, v)
					require.False(t, tooLarge(v.Type.Int), v.Type)
				}
			}))
			m.Entry.Body.Results, m.Entry.Outputs = []*Value{v}, []Type{v.Type}
			require.NoError(t, Verify(m))
		})
	}
}
