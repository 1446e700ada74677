package eval

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func TestSort(t *testing.T) {
	negative := float32(math.Copysign(0, -1))
	for _, k := range []struct {
		x    *Tensor
		want []int64 // order
	}{
		{f32([]int{6}, 2, nan, -1, inf, nan, -inf), []int64{5, 2, 0, 3, 1, 4}},
		{f32([]int{4}, 0, negative, 0, -1), []int64{3, 0, 1, 2}}, // zeros are equal, in their order
		{f32([]int{3}, 1e-45, -1e-45, 0), []int64{1, 2, 0}},
		{list(ir.U64, 1, -1, 0), []int64{2, 0, 1}},
		{list(ir.I64, 1, -1, 0, math.MinInt64, 1), []int64{3, 1, 2, 0, 4}},
		{list(ir.U32, math.MaxUint32, 0, 1<<31, 1), []int64{1, 3, 2, 0}},
		{list(ir.I32, math.MaxInt32, math.MinInt32, 0), []int64{1, 2, 0}},
		{list(ir.Bool, 1, 0, 1, 0), []int64{1, 3, 0, 2}},
		{f32([]int{0}), []int64{}},
	} {
		order := must(t, "argsort", &ir.AxisAttrs{Axis: -1}, k.x)
		require.Equal(t, ir.U32, order.DType)
		require.Equal(t, k.want, order.I)
		requireSame(t, must(t, "take", nil, k.x, list(ir.I64, k.want...)), must(t, "sort", &ir.AxisAttrs{}, k.x))
	}
}

// The order is that of a stable sort, along any axis.
func TestSortIsStable(t *testing.T) {
	s := rand.New(rand.NewPCG(7, 8))
	for range 50 {
		x, _ := NewTensor(ir.I64, 3, 20, 2)
		for i := range x.I {
			x.I[i] = int64(s.IntN(5)) << 40
		}
		order := must(t, "argsort", &ir.AxisAttrs{Axis: 1}, x)
		narrow := must(t, "argsort", &ir.AxisAttrs{Axis: 1}, must(t, "astype", &ir.DTypeAttrs{ScalarType: ir.F32}, x))
		require.Equal(t, order, narrow)
		for o := range 3 {
			for k := range 2 {
				want := make([]int64, 20)
				for j := range want {
					want[j] = int64(j)
				}
				key := func(j int64) int64 { return x.I[(o*20+int(j))*2+k] }
				slices.SortStableFunc(want, func(a, b int64) int { return int(min(1, max(-1, key(a)-key(b)))) })
				for j, w := range want {
					require.Equal(t, w, order.I[(o*20+j)*2+k])
				}
			}
		}
	}
}

// What programs may rely on: element kth is where sorting puts it, nothing before it is greater, nothing
// after it smaller, and no element is lost.
func TestPartition(t *testing.T) {
	s := rand.New(rand.NewPCG(9, 10))
	for range 300 {
		n := s.IntN(40) + 1
		x, _ := NewTensor([]ir.DType{ir.F32, ir.U64, ir.I8}[s.IntN(3)], n)
		for i := range x.F {
			x.F[i] = []float32{float32(s.IntN(10)), nan, inf}[max(0, s.IntN(12)-9)]
		}
		for i := range x.I {
			x.I[i] = int64(s.IntN(10)) - 5
		}
		kth := s.IntN(2*n) - n
		at := (kth + n) % n
		sorted := must(t, "sort", nil, x)
		parts := must(t, "partition", nil, x, kth)
		requireSame(t, sorted, must(t, "sort", nil, parts))
		requireSame(t, must(t, "take", nil, sorted, at), must(t, "take", nil, parts, at))
		order := must(t, "argpartition", nil, x, register32(kth))
		taken := must(t, "take", nil, x, order)
		requireSame(t, sorted, must(t, "sort", nil, taken))
		for _, y := range []*Tensor{parts, taken} {
			low := must(t, "slice", nil, y, 0, 0, at)
			high := must(t, "slice", nil, y, 0, at, n)
			requireSame(t, must(t, "slice", nil, sorted, 0, 0, at), must(t, "sort", nil, low))
			requireSame(t, must(t, "slice", nil, sorted, 0, at, n), must(t, "sort", nil, high))
		}
	}
	for _, kth := range []register32{5, -6} {
		refuses(t, "out of range", "partition", nil, iota32(5), kth)
	}
}
