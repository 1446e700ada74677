package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func TestAsType(t *testing.T) {
	for _, k := range []struct {
		name    string
		x, want *Tensor
	}{
		{"toward zero", f32([]int{4}, 1.9, -1.9, 0.5, -0.5), list(ir.I32, 1, -1, 0, 0)},
		{"i32 out of range", f32([]int{4}, 3e9, -3e9, nan, inf),
			list(ir.I32, math.MinInt32, math.MinInt32, math.MinInt32, math.MinInt32)},
		{"i64 out of range", f32([]int{3}, 1e19, nan, -inf), list(ir.I64, math.MinInt64, math.MinInt64, math.MinInt64)},
		{"i64 in range", f32([]int{2}, 1<<62, -1<<63), list(ir.I64, 1<<62, math.MinInt64)},
		{"u8 wraps", f32([]int{3}, -1.9, 256, 300), list(ir.U8, 255, 0, 44)},
		{"u32", f32([]int{2}, 4e9, -1), list(ir.U32, 4000000000, math.MaxUint32)},
		{"u64", f32([]int{2}, 1<<63, 5), list(ir.U64, math.MinInt64, 5)},
		{"bool", f32([]int{4}, 0, nan, 1e-30, -2), list(ir.Bool, 0, 1, 1, 1)},
		{"ints wrap", list(ir.I64, 300, -1, 1<<40+5), list(ir.U8, 44, 255, 5)},
		{"sign of a narrower dtype", list(ir.U8, 200), list(ir.I8, -56)},
		{"widening keeps the value", list(ir.I8, -5), list(ir.I64, -5)},
		{"negative to u64", list(ir.I32, -1), list(ir.U64, -1)},
		{"u64 to f32", list(ir.U64, -1), f32([]int{1}, 1<<64)},
		{"i64 to bool", list(ir.I64, 256, 0), list(ir.Bool, 1, 0)},
		{"bool to f32", list(ir.Bool, 1, 0), f32([]int{2}, 1, 0)},
		{"u32 to i32", list(ir.U32, math.MaxUint32), list(ir.I32, -1)},
	} {
		got := must(t, "astype", &ir.DTypeAttrs{ScalarType: k.want.DType}, k.x)
		require.Equal(t, k.want, got, k.name)
	}
}

// What cast shares without a copy must equal what wrapping every element gives.
func TestHolds(t *testing.T) {
	for _, from := range dtypes {
		for _, to := range dtypes {
			if from.IsFloat() || to.IsFloat() || !holds(to, from) {
				continue
			}
			for _, v := range []int64{0, 1, -1, 127, 128, 255, 256, 32767, 32768, 65535, math.MaxInt32,
				math.MaxUint32, math.MinInt64} {
				v = wrap(from, v)
				require.Equal(t, v, wrap(to, v), "%s %d to %s", from, v, to)
			}
		}
	}
}

func TestFloatsRoundUnderStrictOnly(t *testing.T) {
	x := f32([]int{1}, 1.001)
	for p, want := range map[Precision]float32{FP32: 1.001, Mixed: 1.001, Strict: 1} {
		require.Equal(t, want, mustIn(t, p, "astype", &ir.DTypeAttrs{ScalarType: ir.BF16}, x).F[0])
		require.Equal(t, want, mustIn(t, p, "full", &ir.DTypeAttrs{ScalarType: ir.BF16}, []int{1}, 1.001).F[0])
		require.Equal(t, int64(1), mustIn(t, p, "astype", &ir.DTypeAttrs{ScalarType: ir.I32}, x).I[0])
	}
	require.Equal(t, float32(1.001), x.F[0], "the argument is left alone")
}
