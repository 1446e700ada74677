package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func TestComparisons(t *testing.T) {
	ops := []string{"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}
	for _, k := range []struct {
		name string
		a, b *Tensor
		want string // one digit per op
	}{
		{"1 < 2", f32(nil, 1), f32(nil, 2), "110001"},
		{"2 > 1", f32(nil, 2), f32(nil, 1), "001101"},
		{"zeros", f32(nil, 0), f32(nil, float32(math.Copysign(0, -1))), "010110"},
		{"NaN", f32(nil, nan), f32(nil, nan), "000001"},
		{"u64", list(ir.U64, -1), list(ir.U64, 1), "001101"},
		{"i64", list(ir.I64, math.MinInt64), list(ir.I64, math.MaxInt64), "110001"},
		{"i8 and u8", list(ir.I8, -1), list(ir.U8, 255), "110001"},
		{"i64 and u64 meet as f32", list(ir.I64, -1), list(ir.U64, -1), "110001"},
		{"bool and i32", list(ir.Bool, 1), list(ir.I32, 1), "010110"},
		{"i32 beyond 2^24 meets f32", list(ir.I32, 1<<24+1), f32([]int{1}, 1<<24), "010110"},
	} {
		for i, op := range ops {
			got := must(t, op, nil, k.a, k.b)
			require.Equal(t, ir.Bool, got.DType)
			require.Equal(t, int64(k.want[i]-'0'), got.I[0], "%s: %s", k.name, op)
		}
	}
}

func TestLogical(t *testing.T) {
	a, b := f32([]int{5}, 0, nan, 0.1, 0, -1), list(ir.I32, 0, 0, 7, -7, 1)
	require.Equal(t, list(ir.Bool, 0, 0, 1, 0, 1), must(t, "logical_and", nil, a, b))
	require.Equal(t, list(ir.Bool, 0, 1, 1, 1, 1), must(t, "logical_or", nil, a, b))
	require.Equal(t, list(ir.Bool, 1, 0, 0, 1, 0), must(t, "logical_not", nil, a))
	refuses(t, "f32", "bitwise_and", nil, a, b)
}
