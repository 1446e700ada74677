package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func dtype(d ir.DType) *ir.DTypeAttrs { return &ir.DTypeAttrs{ScalarType: d} }

func TestFull(t *testing.T) {
	require.Equal(t, Ints(ir.I64, []int{2, 1}, []int64{3, 3}), must(t, "full", dtype(ir.I64), []int{2, 1}, 3.9))
	require.Equal(t, list(ir.I64, 1<<24), must(t, "full", dtype(ir.I64), []int{1}, float64(1<<24+1)),
		"the value passes through a float32")
	require.Equal(t, list(ir.Bool, 1), must(t, "full", dtype(ir.Bool), []int{1}, math.NaN()))
	require.Equal(t, f32([]int{}, -5), must(t, "full", dtype(ir.F32), []int{}, register32(-5)))
	require.Equal(t, f32([]int{2}, -inf, -inf), must(t, "full", dtype(ir.F32), []int{2}, math.Inf(-1)))
	for _, shape := range [][]int{{0}, {2, -1}, {1 << 30, 2}, {math.MaxInt32, math.MaxInt32, math.MaxInt32}} {
		refuses(t, "", "full", dtype(ir.F32), shape, 1.0)
	}
	i8 := ir.I8
	require.Equal(t, list(ir.I8, 2, 2), must(t, "full_like", &ir.OptionalDTypeAttrs{ScalarType: &i8},
		f32([]int{2}, 8, 9), 2.5))
	require.Equal(t, f32([]int{2}, 2.5, 2.5), must(t, "full_like", nil, f32([]int{2}, 8, 9), 2.5))
	require.Equal(t, []int{0}, must(t, "full_like", nil, f32([]int{0}), 2.5).Shape)
}

func TestARange(t *testing.T) {
	for _, k := range []struct {
		start, stop, step int
		want              []int64
	}{
		{0, 3, 1, []int64{0, 1, 2}}, {0, 7, 3, []int64{0, 3, 6}}, {5, -1, -2, []int64{5, 3, 1}},
		{5, -2, -2, []int64{5, 3, 1, -1}},
		{-3, -1, 1, []int64{-3, -2}}, {0, 1, math.MaxInt, []int64{0}}, {0, -1, math.MinInt, []int64{0}},
		{math.MinInt, math.MaxInt, math.MaxInt32, []int64{math.MinInt32, -1, math.MaxInt32 - 1}},
	} {
		require.Equal(t, list(ir.I32, k.want...), must(t, "arange", nil, k.start, k.stop, k.step), "%+v", k)
		require.Equal(t, list(ir.I32, k.want...), must(t, "arange", nil, register32(clampInt32(int64(k.start))), k.stop,
			register32(clampInt32(int64(k.step)))))
	}
	f := ir.F32
	require.Equal(t, f32([]int{2}, 1, 3), must(t, "arange", &ir.OptionalDTypeAttrs{ScalarType: &f}, 1, 5, 2))
	u8, b := ir.U8, ir.Bool
	require.Equal(t, list(ir.U8, 255, 0), must(t, "arange", &ir.OptionalDTypeAttrs{ScalarType: &u8}, 255, 257, 1))
	refuses(t, "step", "arange", nil, 0, 3, 0)
	refuses(t, "step", "arange", nil, 0, 3, register32(0))
	refuses(t, "", "arange", nil, 3, 3, 1)
	refuses(t, "", "arange", nil, 3, 0, 1)
	refuses(t, "", "arange", nil, 0, math.MaxInt32, 1)
	refuses(t, "bool", "arange", &ir.OptionalDTypeAttrs{ScalarType: &b}, 0, 2, 1)
}

func TestTriangles(t *testing.T) {
	for k, want := range map[int][]int64{0: {1, 0, 0, 1, 1, 0}, 1: {1, 1, 0, 1, 1, 1}, -1: {0, 0, 0, 1, 0, 0},
		9: {1, 1, 1, 1, 1, 1}, -9: {0, 0, 0, 0, 0, 0}, math.MinInt32: {0, 0, 0, 0, 0, 0}} {
		require.Equal(t, Ints(ir.Bool, []int{2, 3}, want),
			must(t, "tri", &ir.TriAttrs{K: k, ScalarType: ir.Bool}, 2, 3))
		ones, _ := NewTensor(ir.I32, 2, 2, 3)
		for i := range ones.I {
			ones.I[i] = 1
		}
		twice := append(append([]int64{}, want...), want...)
		require.Equal(t, Ints(ir.I32, []int{2, 2, 3}, twice), must(t, "tril", &ir.DiagonalAttrs{K: k}, ones))
		upper := make([]int64, len(twice))
		for i, v := range twice {
			upper[i] = 1 - v
		}
		require.Equal(t, Ints(ir.I32, []int{2, 2, 3}, upper), must(t, "triu", &ir.DiagonalAttrs{K: k + 1}, ones))
	}
	require.Equal(t, f32([]int{2, 2}, nan, 0, nan, nan).Shape,
		must(t, "tril", nil, f32([]int{2, 2}, nan, nan, nan, nan)).Shape)
	requireSame(t, f32([]int{2, 2}, nan, 0, nan, nan), must(t, "tril", nil, f32([]int{2, 2}, nan, nan, nan, nan)))
	refuses(t, "2", "triu", nil, iota32(3))
	refuses(t, "", "tri", nil, 0, 3)
}
