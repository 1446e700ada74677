package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func TestIntegerArithmeticWraps(t *testing.T) {
	for _, k := range []struct {
		op         string
		d          ir.DType
		a, b, want int64
	}{
		{"add", ir.I8, 127, 1, -128}, {"add", ir.U8, 255, 1, 0}, {"add", ir.I32, math.MaxInt32, 1, math.MinInt32},
		{"add", ir.I64, math.MaxInt64, 1, math.MinInt64}, {"add", ir.Bool, 1, 1, 1}, {"subtract", ir.U8, 0, 1, 255},
		{"subtract", ir.U64, 0, 1, -1}, {"subtract", ir.Bool, 0, 1, 1}, {"multiply", ir.I16, 300, 300, 24464},
		{"multiply", ir.Bool, 1, 0, 0}, {"multiply", ir.U32, 1 << 31, 2, 0},
		{"maximum", ir.U64, -1, 1, -1}, {"minimum", ir.U64, -1, 1, 1}, {"maximum", ir.I64, -1, 1, 1},
		{"remainder", ir.I32, -7, 2, 1}, {"remainder", ir.I32, 7, -2, -1}, {"remainder", ir.I32, -7, -2, -1},
		{"remainder", ir.I32, 6, 3, 0},
		{"remainder", ir.I64, math.MinInt64, -1, 0}, {"remainder", ir.U64, -1, 10, 5}, {"remainder", ir.U8, 250, 7, 5},
		{"power", ir.I32, -2, 3, -8}, {"power", ir.I32, 2, 31, math.MinInt32}, {"power", ir.I32, 1, -1, 0},
		{"power", ir.I64, 0, 0, 1},
		{"power", ir.U64, 3, -1, -6148914691236517205}, {"power", ir.Bool, 0, 0, 1}, {"power", ir.Bool, 0, 1, 0},
		{"bitwise_and", ir.I8, -1, 15, 15}, {"bitwise_or", ir.Bool, 0, 1, 1}, {"bitwise_xor", ir.U8, 255, 1, 254},
	} {
		require.Equal(t, list(k.d, k.want), must(t, k.op, nil, list(k.d, k.a), list(k.d, k.b)),
			"%s %s %d %d", k.op, k.d, k.a, k.b)
	}
	require.Equal(t, list(ir.I16, -6), must(t, "subtract", nil, list(ir.I8, -5), list(ir.U8, 1)),
		"i8 and u8 promote to i16")
	refuses(t, "element 1 of b", "remainder", nil, list(ir.I32, 1, 2), list(ir.I32, 1, 0))
	refuses(t, "division by zero", "floor_divide", nil, list(ir.I32, 1), list(ir.I32, 0))
}

func TestFloatArithmetic(t *testing.T) {
	zero := float32(0)
	for _, k := range []struct {
		op         string
		a, b, want float32
	}{
		{"divide", 1, zero, inf}, {"divide", zero, zero, nan}, {"maximum", nan, 1, nan}, {"maximum", 1, nan, nan},
		{"minimum", nan, 1, nan}, {"minimum", 1, nan, nan}, {"minimum", -inf, 1, -inf},
		{"remainder", -7, 2, 1}, {"remainder", 7, -2, -1}, {"remainder", 5.5, 2, 1.5}, {"remainder", 1, zero, nan},
		{"remainder", -1, inf, inf},
		{"power", 2, -1, 0.5}, {"power", -8, 1.0 / 3, nan}, {"power", zero, zero, 1},
		{"logaddexp", -inf, -inf, -inf}, {"logaddexp", inf, -inf, inf}, {"logaddexp", inf, inf, inf},
		{"logaddexp", 1000, zero, 1000},
		{"logaddexp", nan, 1, nan}, {"logaddexp", zero, zero, 0.6931472}, {"atan2", zero, -1, math.Pi},
		{"atan2", 1, zero, math.Pi / 2},
		{"floor_divide", -7, 2, -4}, {"floor_divide", 7, 2, 3}, {"floor_divide", 1, zero, inf},
	} {
		requireSame(t, f32(nil, k.want), must(t, k.op, nil, f32(nil, k.a), f32(nil, k.b)))
	}
}

// The delegate divides integers in f32 and does not truncate.
func TestFloorDivideOfIntegers(t *testing.T) {
	for _, k := range []struct {
		a, b *Tensor
		want []float32
	}{
		{list(ir.I32, -7, 7, -7, 7), list(ir.I32, 2, 2, -2, -2), []float32{-4.5, 3.5, 3.5, -4.5}},
		{list(ir.U8, 7, 250), list(ir.U8, 2, 100), []float32{3.5, 2.5}},
		{list(ir.U64, -1), list(ir.U64, 2), []float32{1 << 63}},
		{list(ir.I64, 1<<24+1), list(ir.I64, 1), []float32{1 << 24}},
		{list(ir.I32, -7), f32([]int{1}, 2), []float32{-4.5}},
		{list(ir.Bool, 1), list(ir.Bool, 1), []float32{1}},
	} {
		require.Equal(t, f32(k.a.Shape, k.want...), must(t, "floor_divide", nil, k.a, k.b))
	}
	got := must(t, "floor_divide", nil, Ints(ir.I32, []int{2, 1}, []int64{-7, 6}),
		Ints(ir.I32, []int{1, 3}, []int64{2, -4, 3}))
	require.Equal(t, f32([]int{2, 3}, -4.5, 1.75, -7.0/3-1, 3, -2.5, 2), got)
}

// bf16 and f16 get the IEEE remainder without a correction of the sign, as recorded from MLX on a CPU.
func TestRemainderOfShortFloats(t *testing.T) {
	for _, d := range []ir.DType{ir.BF16, ir.F16} {
		for _, p := range []Precision{FP32, Mixed, Strict} {
			a, b := Floats(d, []int{2}, []float32{4, -1}), Floats(d, []int{1}, []float32{7})
			require.Equal(t, []float32{-3, -1}, mustIn(t, p, "remainder", nil, a, b).F)
		}
	}
}

func TestBinaryRefusesShapes(t *testing.T) {
	for _, op := range []string{"add", "less", "logical_and", "bitwise_and", "floor_divide", "atan2"} {
		c := &Call{Op: &ir.Op{Def: ir.LookupOp(op), Results: []*ir.Value{{Type: ir.Type{DType: ir.I32}}}},
			Args: [][]Value{{{Tensor: list(ir.I32, 1, 2)}}, {{Tensor: list(ir.I32, 1, 2, 3)}}}}
		_, err := Run(c)
		require.ErrorContains(t, err, "[[2] [3]] do not broadcast", op)
	}
}
