package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// Any set of axes gives the sums that a loop over all indices gives.
func TestReductionAgreesWithIndexing(t *testing.T) {
	s := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		shape := make([]int, s.IntN(5))
		for i := range shape {
			shape[i] = s.IntN(3) + 1
		}
		x := iota32(shape...)
		var axes []int
		mark := make([]bool, len(shape))
		for i := range shape {
			if s.IntN(2) == 0 {
				axes = append(axes, i-s.IntN(2)*len(shape))
				mark[i] = true
			}
		}
		keepdims := s.IntN(2) == 0
		want, kept := map[string]float32{}, []int{}
		for i, d := range shape {
			switch {
			case len(axes) > 0 && !mark[i]:
				kept = append(kept, d)
			case keepdims:
				kept = append(kept, 1)
			}
		}
		key := func(index []int, keep bool) string {
			out := ""
			for i, k := range index {
				if keep || len(axes) > 0 && !mark[i] {
					out += fmt.Sprint(k, ",")
				}
			}
			return out
		}
		walkIndices(shape, func(n int, index []int) { want[key(index, false)] += x.F[n] })
		got := must(t, "sum", &ir.ReduceAttrs{Axes: axes, Keepdims: keepdims}, x)
		require.Equal(t, kept, got.Shape, "%v over %v", shape, axes)
		keptOnly := make([]int, 0, len(shape))
		for i, d := range shape {
			if len(axes) > 0 && !mark[i] {
				keptOnly = append(keptOnly, d)
			}
		}
		walkIndices(keptOnly, func(n int, index []int) {
			require.Equal(t, want[key(index, true)], got.F[n], "%v over %v at %v", shape, axes, index)
		})
	}
}

func TestReductionDTypes(t *testing.T) {
	for _, k := range []struct {
		op   string
		x    *Tensor
		want *Tensor
	}{
		{"sum", list(ir.Bool, 1, 1, 1), Ints(ir.I32, []int{}, []int64{3})},
		{"sum", list(ir.U8, 200, 100), Ints(ir.U32, []int{}, []int64{300})},
		{"sum", list(ir.I32, math.MaxInt32, 1), Ints(ir.I32, []int{}, []int64{math.MinInt32})},
		{"sum", list(ir.I64, math.MaxInt32, 1), Ints(ir.I64, []int{}, []int64{1 << 31})},
		{"sum", Ints(ir.Bool, []int{}, []int64{1}), Ints(ir.Bool, []int{}, []int64{1})},
		{"prod", list(ir.I8, 100, 100), Ints(ir.I32, []int{}, []int64{10000})},
		{"mean", list(ir.I32, 1, 2), f32([]int{}, 1.5)},
		{"mean", list(ir.I32, math.MaxInt32, math.MaxInt32), f32([]int{}, -1)}, // the sum wraps
		{"max", list(ir.U64, 1, -1), Ints(ir.U64, []int{}, []int64{-1})},
		{"min", list(ir.Bool, 1, 0), Ints(ir.Bool, []int{}, []int64{0})},
		{"median", list(ir.I32, 5, 1, 2, 4), f32([]int{}, 3)},
		{"any", f32([]int{2}, 0, nan), Ints(ir.Bool, []int{}, []int64{1})},
		{"all", f32([]int{2}, 1, 0), Ints(ir.Bool, []int{}, []int64{0})},
		{"any", f32([]int{0}), Ints(ir.Bool, []int{}, []int64{0})},
		{"all", f32([]int{0}), Ints(ir.Bool, []int{}, []int64{1})},
		{"sum", f32([]int{0}), f32([]int{}, 0)},
		{"prod", f32([]int{0}), f32([]int{}, 1)},
		{"mean", f32([]int{0}), f32([]int{}, nan)},
		{"max", f32([]int{3}, 1, nan, 2), f32([]int{}, nan)},
		{"min", f32([]int{3}, nan, 1, 2), f32([]int{}, nan)},
		{"median", f32([]int{3}, nan, 1, 2), f32([]int{}, nan)},
		{"median", f32([]int{1}, 7), f32([]int{}, 7)},
		{"logsumexp", f32([]int{2}, 1, 2), f32([]int{2}, 1, 2)},
	} {
		requireSame(t, k.want, must(t, k.op, &ir.ReduceAttrs{}, k.x))
	}
	refuses(t, "no elements", "max", nil, f32([]int{0}))
	refuses(t, "twice", "sum", &ir.ReduceAttrs{Axes: []int{0, -1}}, f32([]int{2}, 1, 2))
	refuses(t, "axis 1", "sum", &ir.ReduceAttrs{Axes: []int{1}}, f32([]int{2}, 1, 2))
}

func TestLogSumExp(t *testing.T) {
	for _, k := range []struct {
		x    []float32
		want float32
	}{
		{[]float32{0, 0}, 0.6931472}, {[]float32{1000, 1000}, 1000.6932}, {[]float32{-inf, -inf}, -inf},
		{[]float32{inf, 1}, inf}, {[]float32{nan, 1}, nan}, {[]float32{-inf, 3}, 3},
	} {
		requireSame(t, f32([]int{}, k.want),
			must(t, "logsumexp", &ir.ReduceAttrs{Axes: []int{0}}, f32([]int{2}, k.x...)))
	}
}

// Nothing saturates: sums of ones that are formed in bf16 stop at 256.
func TestSumsOfShortFloats(t *testing.T) {
	ones := Floats(ir.BF16, []int{1024}, make([]float32, 1024))
	for i := range ones.F {
		ones.F[i] = 1
	}
	axis := &ir.ReduceAttrs{Axes: []int{0}}
	for _, p := range []Precision{FP32, Mixed, Strict} {
		require.Equal(t, float32(1024), mustIn(t, p, "sum", axis, ones).F[0])
		require.Equal(t, float32(1), mustIn(t, p, "mean", axis, ones).F[0])
		require.Equal(t, float32(1024), mustIn(t, p, "cumsum", &ir.CumsumAttrs{Inclusive: true}, ones).F[1023])
		for _, precise := range []bool{false, true} {
			got := mustIn(t, p, "softmax", &ir.SoftmaxAttrs{Precise: precise}, ones)
			require.Equal(t, float32(1.0/1024), got.F[500])
		}
		require.InDelta(t, 1+math.Log(1024), float64(mustIn(t, p, "logsumexp", axis, ones).F[0]), 0.03)
	}
}

func TestVariance(t *testing.T) {
	x := f32([]int{2, 3}, 1, 2, 4, 10, 10, 10)
	for _, k := range []struct {
		op   string
		ddof int
		want []float32
	}{
		{"var", 0, []float32{1.5555556, 0}}, {"var", 1, []float32{2.3333333, 0}}, {"var", 3, []float32{inf, nan}},
		{"var", 9, []float32{inf, nan}},
		{"std", 0, []float32{1.2472191, 0}}, {"std", 1, []float32{1.5275252, 0}},
	} {
		got := must(t, k.op, &ir.VarianceAttrs{Axes: []int{1}, Ddof: k.ddof}, x)
		for i, w := range k.want {
			if w != w || math.IsInf(float64(w), 0) {
				requireSame(t, f32(nil, w), f32(nil, got.F[i]))
			} else {
				require.InDelta(t, w, got.F[i], 2e-6)
			}
		}
	}
	require.Equal(t, f32([]int{1, 1}, 0.25),
		must(t, "var", &ir.VarianceAttrs{Keepdims: true}, Ints(ir.I32, []int{2, 1}, []int64{3, 4})))
}

func TestArgExtremum(t *testing.T) {
	for _, k := range []struct {
		x          *Tensor
		max, least int64
	}{
		{f32([]int{4}, 1, 3, 3, 1), 1, 0},
		{f32([]int{3}, nan, 1, 2), 2, 1},
		{f32([]int{2}, nan, nan), 0, 0},
		{f32([]int{3}, -inf, nan, -inf), 0, 0},
		{list(ir.U64, 1, -1, 0), 1, 2},
		{list(ir.I64, 1, -1, 0), 0, 1},
		{list(ir.Bool, 0, 1, 1), 1, 0},
	} {
		require.Equal(t, Ints(ir.U32, []int{}, []int64{k.max}), must(t, "argmax", &ir.ArgReduceAttrs{Axis: -1}, k.x))
		require.Equal(t, Ints(ir.U32, []int{1}, []int64{k.least}),
			must(t, "argmin", &ir.ArgReduceAttrs{Keepdims: true}, k.x))
	}
	got := must(t, "argmax", &ir.ArgReduceAttrs{Axis: 0}, f32([]int{2, 3}, 1, 5, 2, 4, 0, 2))
	require.Equal(t, list(ir.U32, 1, 0, 0), got)
	refuses(t, "", "argmax", nil, f32([]int{2, 0}))
}

func TestCumsum(t *testing.T) {
	x := Ints(ir.I32, []int{2, 3}, []int64{1, 2, 3, 4, 5, 6})
	for _, k := range []struct {
		attrs ir.CumsumAttrs
		want  []int64
	}{
		{ir.CumsumAttrs{Axis: 1, Inclusive: true}, []int64{1, 3, 6, 4, 9, 15}},
		{ir.CumsumAttrs{Axis: -1}, []int64{0, 1, 3, 0, 4, 9}},
		{ir.CumsumAttrs{Axis: 1, Reverse: true, Inclusive: true}, []int64{6, 5, 3, 15, 11, 6}},
		{ir.CumsumAttrs{Axis: 1, Reverse: true}, []int64{5, 3, 0, 11, 6, 0}},
		{ir.CumsumAttrs{Axis: 0, Inclusive: true}, []int64{1, 2, 3, 5, 7, 9}},
	} {
		require.Equal(t, Ints(ir.I32, []int{2, 3}, k.want), must(t, "cumsum", &k.attrs, x))
	}
	require.Equal(t, list(ir.I32, 1, 2), must(t, "cumsum", &ir.CumsumAttrs{Inclusive: true}, list(ir.Bool, 1, 1)))
	require.Equal(t, list(ir.U8, 200, 144), must(t, "cumsum", &ir.CumsumAttrs{Inclusive: true}, list(ir.U8, 200, 200)))
}

func TestSoftmax(t *testing.T) {
	got := must(t, "softmax", &ir.SoftmaxAttrs{Axis: 0}, f32([]int{2, 3}, 0, 1000, -inf, 0, 0, -inf))
	requireSame(t, f32([]int{2, 3}, 0.5, 1, nan, 0.5, 0, nan), got)
	got = must(t, "softmax", &ir.SoftmaxAttrs{Axis: -1}, Ints(ir.I32, []int{1, 2}, []int64{7, 7}))
	require.Equal(t, f32([]int{1, 2}, 0.5, 0.5), got)
	require.Equal(t, []int{0, 2}, must(t, "softmax", &ir.SoftmaxAttrs{Axis: 1}, iota32(0, 2)).Shape)
}
