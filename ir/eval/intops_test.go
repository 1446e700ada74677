package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func TestIntArithmetic(t *testing.T) {
	for _, k := range []struct {
		op         string
		a, b, want int
	}{
		{"add_int", 3, 4, 7}, {"subtract_int", 3, 9, -6}, {"multiply_int", -3, 9, -27},
		{"multiply_int", 1 << 16, -1 << 15, math.MinInt32},
		{"floor_divide_int", 7, 2, 3}, {"floor_divide_int", -7, 2, -4}, {"floor_divide_int", 7, -2, -4},
		{"floor_divide_int", -7, -2, 3}, {"floor_divide_int", math.MinInt32, 1, math.MinInt32},
		{"mod_int", 7, 2, 1}, {"mod_int", -7, 2, 1}, {"mod_int", 7, -2, -1}, {"mod_int", -7, -2, -1},
		{"mod_int", math.MinInt32, -1, 0},
		{"add_int", math.MaxInt, -1, math.MaxInt32 - 1}, // a literal is clamped to 32 bits
	} {
		for _, operands := range [][]any{{k.a, k.b}, {register32(clampInt32(int64(k.a))), k.b},
			{k.a, register32(clampInt32(int64(k.b)))}} {
			got, err := evaluate(FP32, k.op, nil, operands...)
			require.NoError(t, err)
			require.Equal(t, []Value{{Int: int64(k.want)}}, got, "%s %d %d", k.op, k.a, k.b)
		}
	}
	for _, k := range []struct {
		op, want string
		a, b     register32
	}{
		{"add_int", "does not fit", math.MaxInt32, 1}, {"subtract_int", "does not fit", math.MinInt32, 1},
		{"multiply_int", "does not fit", 1 << 16, 1 << 15},
		{"floor_divide_int", "does not fit", math.MinInt32, -1}, {"floor_divide_int", "// 0", 1, 0},
		{"mod_int", "% 0", 1, 0},
	} {
		refuses(t, k.want, k.op, nil, k.a, k.b)
	}
}

func TestItemInt(t *testing.T) {
	for _, k := range []struct {
		x    *Tensor
		want int64
	}{
		{list(ir.Bool, 1), 1}, {list(ir.Bool, 0), 0}, {list(ir.U8, 255), 255}, {list(ir.I8, -1), -1},
		{list(ir.I32, -5), -5},
		{list(ir.I64, 1<<32+5), 5}, {list(ir.I64, 1<<31), math.MinInt32}, {list(ir.U32, math.MaxUint32), -1},
		{f32(nil, 3.7), 1080872141}, {Floats(ir.BF16, nil, []float32{1}), 0x3f80},
		{Floats(ir.F16, []int{1, 1}, []float32{-1}), 0xbc00},
		// FP32 may hold more digits than the dtype has: its bytes decide.
		{Floats(ir.BF16, nil, []float32{1.001}), 0x3f80},
	} {
		got, err := evaluate(FP32, "item_int", nil, k.x)
		require.NoError(t, err)
		require.Equal(t, []Value{{Int: k.want}}, got, "%s", k.x.DType)
	}
	refuses(t, "one element", "item_int", nil, list(ir.I32, 1, 2))
}

func TestSymSize(t *testing.T) {
	for dim, want := range map[int]int64{0: 2, 1: 3, -1: 3, -2: 2} {
		got, err := evaluate(FP32, "sym_size", &ir.SymSizeAttrs{Dim: dim}, iota32(2, 3))
		require.NoError(t, err)
		require.Equal(t, []Value{{Int: want}}, got)
	}
	refuses(t, "2", "sym_size", &ir.SymSizeAttrs{Dim: 2}, iota32(2, 3))
	got, err := evaluate(FP32, "noop", nil)
	require.NoError(t, err)
	require.Empty(t, got)
}
