package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func TestTake(t *testing.T) {
	x := iota32(2, 3, 2)
	require.Equal(t, f32([]int{2, 2}, 4, 5, 10, 11), must(t, "take", &ir.AxisAttrs{Axis: 1}, x, -1))
	require.Equal(t, f32([]int{3, 2}, 6, 7, 8, 9, 10, 11), must(t, "take", nil, x, register32(1)))
	require.Equal(t, f32([]int{2, 1, 2, 2}, 4, 5, 0, 1, 10, 11, 6, 7),
		must(t, "take", &ir.AxisAttrs{Axis: -2}, x, Ints(ir.I32, []int{1, 2}, []int64{-1, 0})))
	require.Equal(t, []int{2, 2}, must(t, "take", &ir.AxisAttrs{Axis: 1}, x, Ints(ir.U8, []int{}, []int64{2})).Shape)
	require.Equal(t, []int{0, 3, 2}, must(t, "take", nil, x, Ints(ir.I64, []int{0}, []int64{})).Shape)
	refuses(t, "3", "take", &ir.AxisAttrs{Axis: 1}, x, 3)
	refuses(t, "out of range", "take", nil, x, register32(-3))
	refuses(t, "element 1", "take", nil, x, list(ir.I64, 0, 2))
	refuses(t, "element 0", "take", nil, x, list(ir.I64, -3))
	refuses(t, "element 0", "take", nil, x, list(ir.U64, -1))
	refuses(t, "element 0", "take", nil, x, list(ir.I64, math.MinInt64))
	refuses(t, "bool", "take", nil, x, list(ir.Bool, 1))
}

func TestTakeAlongAxis(t *testing.T) {
	x := iota32(2, 3)
	require.Equal(t, f32([]int{2, 2}, 2, 0, 4, 5),
		must(t, "take_along_axis", &ir.AxisAttrs{Axis: 1}, x, Ints(ir.U32, []int{2, 2}, []int64{2, 0, 1, 2})))
	require.Equal(t, f32([]int{2, 1}, 2, 5),
		must(t, "take_along_axis", &ir.AxisAttrs{Axis: -1}, x, Ints(ir.I64, []int{1, 1}, []int64{-1})))
	require.Equal(t, f32([]int{1, 3}, 3, 1, 5),
		must(t, "take_along_axis", nil, x, Ints(ir.I64, []int{1, 3}, []int64{1, 0, 1})))
	require.Equal(t, f32([]int{2, 2}, 0, 1, 2, 0), must(t, "take_along_axis", &ir.AxisAttrs{Axis: 1}, iota32(1, 3),
		Ints(ir.I64, []int{2, 2}, []int64{0, 1, 2, 0})))
	refuses(t, "3", "take_along_axis", nil, x, list(ir.I64, 0))
	refuses(t, "out of range", "take_along_axis", nil, x, Ints(ir.I64, []int{1, 3}, []int64{0, 2, 0}))
}

func TestScatterAdd(t *testing.T) {
	x := f32([]int{2, 3}, 0, 1, 2, 3, 4, 5)
	index := Ints(ir.I64, []int{2, 2}, []int64{0, 0, -1, 1})
	got := must(t, "scatter_add", &ir.AxisAttrs{Axis: 1}, x, index, f32([]int{2, 2}, 10, 20, 30, 40))
	require.Equal(t, f32([]int{2, 3}, 30, 1, 2, 3, 44, 35), got)
	got = must(t, "scatter_add", &ir.AxisAttrs{Axis: 1}, x, Ints(ir.I64, []int{1, 1}, []int64{1}),
		f32([]int{1, 1, 1}, 100))
	require.Equal(t, f32([]int{2, 3}, 0, 101, 2, 3, 104, 5), got)
	wrapped := must(t, "scatter_add", nil, list(ir.U8, 250), Ints(ir.I64, []int{2}, []int64{0, 0}), list(ir.I32, 5, 3))
	require.Equal(t, list(ir.U8, 2), wrapped)
	require.Equal(t, f32([]int{2, 3}, 0, 1, 2, 3, 4, 5), x, "the argument is left alone")
	refuses(t, "out of range", "scatter_add", &ir.AxisAttrs{Axis: 1}, x, Ints(ir.I64, []int{1, 1}, []int64{3}),
		f32([]int{1, 1}, 1))
	// 256 additions of 1 to a bf16 256 would all be lost if each were rounded.
	ones := Floats(ir.BF16, []int{256}, make([]float32, 256))
	for i := range ones.F {
		ones.F[i] = 1
	}
	zeros, _ := NewTensor(ir.I64, 256)
	require.Equal(t, float32(512), mustIn(t, Strict, "scatter_add", nil, Floats(ir.BF16, []int{1}, []float32{256}),
		zeros, ones).F[0])
}

func TestGather(t *testing.T) {
	x := iota32(3, 4)
	got := must(t, "gather", &ir.GatherAttrs{Axes: []int{1}, SliceSizes: []int{2, 2}}, x, []*Tensor{list(ir.I32, 0, 2)})
	require.Equal(t, f32([]int{2, 2, 2}, 0, 1, 4, 5, 2, 3, 6, 7), got)
	got = must(t, "gather", &ir.GatherAttrs{Axes: []int{0, 1}, SliceSizes: []int{1, 1}}, x,
		[]*Tensor{Ints(ir.I64, []int{2, 1}, []int64{0, -1}), list(ir.U8, 1, 3)})
	require.Equal(t, f32([]int{2, 2, 1, 1}, 1, 3, 9, 11), got)
	got = must(t, "gather", &ir.GatherAttrs{SliceSizes: []int{1, 4}}, x, []*Tensor{})
	require.Equal(t, f32([]int{1, 4}, 0, 1, 2, 3), got)
	for _, k := range []struct {
		axes, sizes []int
		index       []*Tensor
	}{
		{[]int{1}, []int{3, 2}, []*Tensor{list(ir.I32, 3)}}, // the slice ends beyond x
		{[]int{0}, []int{1, 4}, []*Tensor{list(ir.I32, 3)}},
		{[]int{0}, []int{0, 4}, []*Tensor{list(ir.I32, 0)}},
		{[]int{0}, []int{1, 5}, []*Tensor{list(ir.I32, 0)}},
		{[]int{0, 0}, []int{1, 4}, []*Tensor{list(ir.I32, 0), list(ir.I32, 0)}},
		{[]int{-1}, []int{1, 4}, []*Tensor{list(ir.I32, 0)}},
		{[]int{0, 1}, []int{1, 1}, []*Tensor{list(ir.I32, 0)}},
		{[]int{0}, []int{1}, []*Tensor{list(ir.I32, 0)}},
		{[]int{0}, []int{1, 4}, []*Tensor{f32([]int{1}, 0)}},
	} {
		refuses(t, "", "gather", &ir.GatherAttrs{Axes: k.axes, SliceSizes: k.sizes}, x, k.index)
	}
}

func TestIndexCopy(t *testing.T) {
	dst := iota32(3, 2)
	got := must(t, "index_copy", nil, dst, f32([]int{3, 2}, 10, 11, 12, 13, 14, 15), list(ir.I64, 2, -3, 2))
	require.Equal(t, f32([]int{3, 2}, 12, 13, 2, 3, 14, 15), got, "of equal indices the last wins")
	got = must(t, "index_copy", &ir.AxisAttrs{Axis: -1}, dst, list(ir.I32, 7).reshaped([]int{1, 1}), list(ir.I64, 1))
	require.Equal(t, f32([]int{3, 2}, 0, 7, 2, 7, 4, 7), got)
	require.Equal(t, dst, must(t, "index_copy", nil, dst, iota32(0, 2), Ints(ir.I64, []int{0}, []int64{})))
	require.Equal(t, iota32(3, 2), dst, "the argument is left alone")
	refuses(t, "i32", "index_copy", nil, dst, iota32(1, 2), list(ir.I32, 0))
	refuses(t, "", "index_copy", nil, dst, iota32(1, 2), Ints(ir.I64, []int{1, 1}, []int64{0}))
	refuses(t, "3", "index_copy", nil, dst, iota32(1, 2), list(ir.I64, 3))
	refuses(t, "-4", "index_copy", nil, dst, iota32(1, 2), list(ir.I64, -4))
	refuses(t, "", "index_copy", nil, dst, iota32(2, 2), list(ir.I64, 0))
}
