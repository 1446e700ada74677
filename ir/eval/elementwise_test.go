package eval

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

var nan, inf = float32(math.NaN()), float32(math.Inf(1))

func TestBroadcastShape(t *testing.T) {
	for _, k := range []struct {
		shapes [][]int
		want   []int // nil: an error
	}{
		{[][]int{{}, {}}, []int{}},
		{[][]int{{3}, {}}, []int{3}},
		{[][]int{{2, 1}, {3}}, []int{2, 3}},
		{[][]int{{1}, {0}}, []int{0}},
		{[][]int{{4, 1, 3}, {2, 1}, {1}}, []int{4, 2, 3}},
		{[][]int{{2}, {3}}, nil},
		{[][]int{{3}, {0}}, nil},
		{[][]int{{2, 3}, {2}}, nil},
	} {
		got, err := broadcastShape(k.shapes...)
		if k.want == nil {
			require.Error(t, err, k.shapes)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, k.want, got, "%v", k.shapes)
	}
}

// at reads an element of a dense tensor by an index of a shape that it broadcasts to.
func at(x *Tensor, index []int) float32 {
	p := 0
	for i, d := range x.Shape {
		k := index[len(index)-len(x.Shape)+i]
		if d == 1 {
			k = 0
		}
		p = p*d + k
	}
	return x.F[p]
}

// walkIndices calls f for the indices of a shape in row-major order.
func walkIndices(shape []int, f func(n int, index []int)) {
	index := make([]int, len(shape))
	total, _ := elements(shape)
	for n := range total {
		f(n, index)
		for i := len(shape) - 1; i >= 0; i-- {
			if index[i]++; index[i] < shape[i] {
				break
			}
			index[i] = 0
		}
	}
}

// Every pattern of stretched dims gives what a loop over all indices gives.
func TestBroadcastingAgreesWithIndexing(t *testing.T) {
	s := rand.New(rand.NewPCG(3, 4))
	random := func(shape []int) *Tensor {
		x := iota32(shape...)
		for i := range x.F {
			x.F[i] = float32(s.IntN(100) + 1)
		}
		return x
	}
	for range 500 {
		shape := make([]int, s.IntN(5))
		for i := range shape {
			shape[i] = s.IntN(4) + 1
		}
		stretched := func() []int {
			out := append([]int(nil), shape...)
			for i := range out {
				if s.IntN(3) == 0 {
					out[i] = 1
				}
			}
			return out[min(s.IntN(6), 1)*s.IntN(len(out)+1):]
		}
		a, b, cond := random(stretched()), random(stretched()), random(stretched())
		for i := range cond.F {
			cond.F[i] = float32(s.IntN(2))
		}
		joined, err := broadcastShape(a.Shape, b.Shape)
		require.NoError(t, err)
		for op, f := range map[string]func(x, y float32) float32{
			"add":      func(x, y float32) float32 { return x + y },
			"subtract": func(x, y float32) float32 { return x - y },
			"multiply": func(x, y float32) float32 { return x * y },
			"divide":   func(x, y float32) float32 { return x / y },
		} {
			got := must(t, op, nil, a, b)
			require.Equal(t, joined, got.Shape)
			walkIndices(joined, func(n int, index []int) {
				require.Equal(t, f(at(a, index), at(b, index)), got.F[n], "%s of %v and %v at %v", op,
					a.Shape, b.Shape, index)
			})
		}
		joined, err = broadcastShape(a.Shape, b.Shape, cond.Shape)
		require.NoError(t, err)
		got := must(t, "where", nil, cond, a, b)
		require.Equal(t, joined, got.Shape)
		walkIndices(joined, func(n int, index []int) {
			want := at(b, index)
			if at(cond, index) != 0 {
				want = at(a, index)
			}
			require.Equal(t, want, got.F[n], "where of %v, %v and %v at %v", cond.Shape, a.Shape, b.Shape, index)
		})
	}
}

func TestWhere(t *testing.T) {
	got := must(t, "where", nil, f32([]int{4}, nan, 0, float32(math.Copysign(0, -1)), 2), list(ir.I32, 1, 2, 3, 4),
		list(ir.U8, 9, 8, 7, 6))
	require.Equal(t, list(ir.I32, 1, 8, 7, 4), got, "NaN is true; i32 and u8 promote to i32")
	got = must(t, "where", nil, list(ir.Bool, 1, 0), f32(nil, 5), f32(nil, 6))
	require.Equal(t, f32([]int{2}, 5, 6), got)
}

func TestClip(t *testing.T) {
	x := f32([]int{5}, -3, -1, 0, 2, nan)
	low, high := f32(nil, -1), f32([]int{5}, 9, 9, 9, 1, 9)
	for _, k := range []struct {
		low, high any
		want      []float32
	}{
		{low, nil, []float32{-1, -1, 0, 2, nan}},
		{nil, high, []float32{-3, -1, 0, 1, nan}},
		{low, high, []float32{-1, -1, 0, 1, nan}},
		{f32(nil, 4), f32(nil, 3), []float32{3, 3, 3, 3, nan}}, // the upper bound comes last
	} {
		requireSame(t, f32([]int{5}, k.want...), must(t, "clip", nil, x, k.low, k.high))
	}
}

// requireSame compares every bit, except that all NaNs are equal.
func requireSame(t *testing.T, want, got *Tensor) {
	t.Helper()
	require.Equal(t, want.DType, got.DType)
	require.ElementsMatch(t, want.Shape, got.Shape)
	require.Equal(t, want.I, got.I)
	require.Len(t, got.F, len(want.F))
	for i, w := range want.F {
		g := got.F[i]
		require.True(t, math.Float32bits(w) == math.Float32bits(g) || w != w && g != g, "element %d is %v, want %v", i,
			g, w)
	}
}

// In Strict an int64 that meets a bf16 is rounded to bf16 before they are compared or added.
func TestPromotedArgumentsAreRounded(t *testing.T) {
	a, b := list(ir.I64, 257), Floats(ir.BF16, []int{1}, []float32{256})
	for p, equal := range map[Precision]int64{FP32: 0, Mixed: 0, Strict: 1} {
		require.Equal(t, equal, mustIn(t, p, "equal", nil, a, b).I[0])
	}
	require.Equal(t, float32(512), mustIn(t, Strict, "add", nil, a, b).F[0])
	require.Equal(t, float32(513), mustIn(t, FP32, "add", nil, a, b).F[0])
}
