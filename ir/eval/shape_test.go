package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func TestReshape(t *testing.T) {
	x := iota32(2, 6)
	for _, k := range []struct{ shape, want []int }{
		{[]int{12}, []int{12}}, {[]int{3, -1}, []int{3, 4}}, {[]int{-1, 1, 12}, []int{1, 1, 12}},
	} {
		got := must(t, "reshape", nil, x, k.shape)
		require.Equal(t, k.want, got.Shape)
		require.Equal(t, x.F, got.F)
	}
	require.Equal(t, []int{0, 3}, must(t, "reshape", nil, f32([]int{0}), []int{-1, 3}).Shape)
	for want, shape := range map[string][]int{"more than one -1": {-1, -1}, "negative": {-2, 6}, "12 elements": {5, -1},
		"2147483647": {math.MaxInt}} {
		refuses(t, want, "reshape", nil, x, shape)
	}
	// A register that the type rule could not know.
	for _, v := range []register32{5, -3, math.MaxInt32} {
		refuses(t, "shape", "reshape", nil, x, v)
	}
}

func TestShapesThatOnlyTheRunKnows(t *testing.T) {
	x := iota32(2, 3)
	for op, operands := range map[string][]any{
		"full": {register32(0), 1.5}, "random_bits": {register32(-1)}, "repeat": {x, register32(-1)},
		"tile":         {x, register32(-1)},
		"broadcast_to": {x, register32(4)}, "slice": {x, 0, 0, register32(2)}, "arange": {0, register32(-4), 1},
		"tri":        {register32(0), 3},
		"as_strided": {x, register32(7), []int{1}}, "split": {x, register32(2)}, "take": {x, register32(2)},
	} {
		attrs := ir.LookupOp(op).NewAttrs()
		if d, ok := attrs.(*ir.DTypeAttrs); ok {
			d.ScalarType = ir.F32
		}
		_, err := evaluate(FP32, op, attrs, operands...)
		if op == "slice" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, op, "%v", operands)
	}
}

func TestExpandAndSqueeze(t *testing.T) {
	x := iota32(1, 2, 1)
	for axis, want := range map[int][]int{0: {1, 1, 2, 1}, 3: {1, 2, 1, 1}, -1: {1, 2, 1, 1},
		-4: {1, 1, 2, 1}, 2: {1, 2, 1, 1}} {
		require.Equal(t, want, must(t, "expand_dims", &ir.AxisAttrs{Axis: axis}, x).Shape)
	}
	refuses(t, "axis 4", "expand_dims", &ir.AxisAttrs{Axis: 4}, x)
	for _, k := range []struct{ dims, want []int }{
		{nil, []int{2}}, {[]int{0}, []int{2, 1}}, {[]int{-1}, []int{1, 2}}, {[]int{1}, []int{1, 2, 1}},
		{[]int{0, 1, 2, 9}, []int{2}},
	} {
		require.Equal(t, k.want, must(t, "squeeze", &ir.SqueezeAttrs{Dims: k.dims}, x).Shape, "%v", k.dims)
	}
}

func TestTranspose(t *testing.T) {
	x := iota32(2, 3, 4)
	for _, perm := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, -1, -2}, {-1, 0, 1}} {
		got := must(t, "transpose", &ir.TransposeAttrs{Perm: perm}, x)
		walkIndices(got.Shape, func(n int, index []int) {
			from := make([]int, 3)
			for i, p := range perm {
				from[(p+3)%3] = index[i]
			}
			require.Equal(t, at(x, from), got.F[n], "%v at %v", perm, index)
		})
	}
	refuses(t, "twice", "transpose", &ir.TransposeAttrs{Perm: []int{0, 0, 1}}, x)
	refuses(t, "2 axes", "transpose", &ir.TransposeAttrs{Perm: []int{0, 1}}, x)
}

func TestBroadcastTo(t *testing.T) {
	x := f32([]int{2, 1}, 1, 2)
	require.Equal(t, f32([]int{2, 2, 3}, 1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2),
		must(t, "broadcast_to", nil, x, []int{2, -1, 3}))
	require.Equal(t, []int{2, 0}, must(t, "broadcast_to", nil, x, []int{2, 0}).Shape)
	refuses(t, "-1", "broadcast_to", nil, x, []int{-1, 2, 1})
	refuses(t, "broadcast", "broadcast_to", nil, x, []int{1})
	refuses(t, "broadcast", "broadcast_to", nil, x, []int{1, 1})
}

func TestAsStrided(t *testing.T) {
	x := iota32(2, 5)
	require.Equal(t, f32([]int{3, 2}, 1, 2, 3, 4, 5, 6),
		must(t, "as_strided", &ir.AsStridedAttrs{Offset: 1}, x, []int{3, 2}, []int{2, 1}))
	require.Equal(t, f32([]int{2, 2}, 9, 9, 7, 7),
		must(t, "as_strided", &ir.AsStridedAttrs{Offset: 9}, x, []int{2, 2}, []int{-2, 0}))
	require.Equal(t, []int{0}, must(t, "as_strided", nil, x, []int{0}, []int{1 << 30}).Shape)
	for _, k := range []struct {
		offset         int
		shape, strides []int
	}{
		{1, []int{10}, []int{1}}, {0, []int{2}, []int{-1}}, {10, []int{1}, []int{1}}, {math.MaxInt, []int{2}, []int{1}},
		{0, []int{2}, []int{math.MaxInt32}},
	} {
		refuses(t, "", "as_strided", &ir.AsStridedAttrs{Offset: k.offset}, x, k.shape, k.strides)
	}
}

func TestTileRepeatRoll(t *testing.T) {
	x := f32([]int{2, 2}, 1, 2, 3, 4)
	require.Equal(t, f32([]int{2, 4}, 1, 2, 1, 2, 3, 4, 3, 4), must(t, "tile", nil, x, []int{2}))
	require.Equal(t, f32([]int{2, 4, 2}, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4),
		must(t, "tile", nil, x, []int{2, 2, 1}))
	require.Equal(t, []int{0, 2}, must(t, "tile", nil, x, []int{0, 1}).Shape)
	require.Equal(t, f32([]int{4, 2}, 1, 2, 1, 2, 3, 4, 3, 4), must(t, "repeat", &ir.AxisAttrs{Axis: 0}, x, 2))
	require.Equal(t, f32([]int{2, 6}, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4),
		must(t, "repeat", &ir.AxisAttrs{Axis: -1}, x, 3))
	refuses(t, "", "repeat", nil, x, 0)
	for shift, want := range map[int][]float32{0: {0, 1, 2, 3}, 1: {3, 0, 1, 2}, -1: {1, 2, 3, 0}, 5: {3, 0, 1, 2},
		-6: {2, 3, 0, 1}, math.MinInt32: {0, 1, 2, 3}} {
		require.Equal(t, want, must(t, "roll", &ir.RollAttrs{Axes: []int{-1}}, iota32(4), []int{shift}).F, "%d", shift)
	}
	got := must(t, "roll", &ir.RollAttrs{Axes: []int{0, 1}}, x, []int{1, 1})
	require.Equal(t, f32([]int{2, 2}, 4, 3, 2, 1), got)
	require.Equal(t, x, must(t, "roll", &ir.RollAttrs{}, x, []int{1}))
}

func TestConcatenateAndStack(t *testing.T) {
	a, b := Ints(ir.I32, []int{2, 1}, []int64{1, 2}), Ints(ir.U8, []int{2, 2}, []int64{3, 4, 5, 6})
	require.Equal(t, Ints(ir.I32, []int{2, 3}, []int64{1, 3, 4, 2, 5, 6}),
		must(t, "concatenate", &ir.AxisAttrs{Axis: -1}, []*Tensor{a, b}))
	require.Equal(t, []int{2, 1}, must(t, "concatenate", nil, []*Tensor{a}).Shape)
	refuses(t, "", "concatenate", nil, []*Tensor{a, b})
	refuses(t, "", "concatenate", nil, []*Tensor{})
	x, y := f32([]int{2}, 1, 2), f32([]int{2}, 3, 4)
	require.Equal(t, f32([]int{2, 2}, 1, 2, 3, 4), must(t, "stack", nil, []*Tensor{x, y}))
	require.Equal(t, f32([]int{2, 2}, 1, 3, 2, 4), must(t, "stack", &ir.AxisAttrs{Axis: -1}, []*Tensor{x, y}))
	refuses(t, "", "stack", nil, []*Tensor{x, f32([]int{1}, 1)})
}

func TestSplit(t *testing.T) {
	x := iota32(2, 5)
	for _, k := range []struct {
		sizes []int
		want  [][]float32
	}{
		{[]int{2}, [][]float32{{0, 1, 5, 6}, {2, 3, 7, 8}, {4, 9}}},
		{[]int{9}, [][]float32{x.F}},
		{[]int{1, 0, 4}, [][]float32{{0, 5}, {}, {1, 2, 3, 4, 6, 7, 8, 9}}},
	} {
		parts, err := evaluate(FP32, "split", &ir.AxisAttrs{Axis: 1}, x, k.sizes)
		require.NoError(t, err)
		require.Len(t, parts, len(k.want))
		for i, w := range k.want {
			require.Equal(t, w, parts[i].Tensor.F)
			require.Equal(t, []int{2, len(w) / 2}, parts[i].Tensor.Shape)
		}
	}
	for _, sizes := range [][]int{{0}, {-1}, {3, 3}, {7, -2}, {}} {
		refuses(t, "", "split", &ir.AxisAttrs{Axis: 1}, x, sizes)
	}
}

func TestPad(t *testing.T) {
	x := Ints(ir.I32, []int{1, 2}, []int64{1, 2})
	require.Equal(t, Ints(ir.I32, []int{2, 4}, []int64{7, 1, 2, 7, 7, 7, 7, 7}),
		must(t, "pad", &ir.PadAttrs{Mode: "constant", ConstantValue: 7.9}, x, []int{0, 1, 1, 1}))
	require.Equal(t, Ints(ir.I32, []int{3, 5}, []int64{1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 1, 1, 1, 2, 2}),
		must(t, "pad", &ir.PadAttrs{Mode: "edge"}, x, []int{1, 1, 2, 1}))
	require.Equal(t, x, must(t, "pad", &ir.PadAttrs{Mode: "edge"}, x, []int{0, 0, 0, 0}))
	for want, k := range map[string]struct {
		mode   string
		widths []int
	}{"reflect": {"reflect", []int{0, 0, 0, 0}}, "3": {"constant", []int{1, 1, 1}},
		"negative": {"constant", []int{-1, 0, 0, 0}}} {
		refuses(t, want, "pad", &ir.PadAttrs{Mode: k.mode}, x, k.widths)
	}
	refuses(t, "no edge", "pad", &ir.PadAttrs{Mode: "edge"}, f32([]int{0}), []int{1, 0})
}

func TestCopiesAndViews(t *testing.T) {
	x := iota32(3)
	require.NotSame(t, &x.F[0], &must(t, "id_copy", nil, x).F[0])
	require.Equal(t, x, must(t, "contiguous", nil, x))
}
