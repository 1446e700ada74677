package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestReduce(t *testing.T) {
	t.Parallel()
	for _, r := range []kernels.Reduce{
		{Kind: kernels.SumOf, N: 1000, Heads: 1},
		{Kind: kernels.MeanOf, N: 20, Heads: 3, X: kernels.Rows{Token: 100, Row: 30}},
		{Kind: kernels.MaxOf, N: 300, Heads: 2},
		{Kind: kernels.MinOf, N: 33, Heads: 1}, {Kind: kernels.ArgMaxOf, N: 400, Heads: 1},
		{Kind: kernels.ArgMinOf, N: 7, Heads: 2},
	} {
		t.Run(fmt.Sprint(r.Kind), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			l, err := r.Launch(5)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 4, Capacity: 5}))
		})
	}
}

// TestReduceNaN: an extremum with a NaN among the numbers is NaN; its place is that of a number, if there is one, else
// the first.
func TestReduceNaN(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for kind, places := range map[kernels.Reduction][]int32{kernels.MaxOf: nil, kernels.MinOf: nil,
		kernels.ArgMaxOf: {37, 37, 37, 0}, kernels.ArgMinOf: {41, 41, 41, 0}} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel()
			const n, rows = 300, 4 // more than a threadgroup has threads
			x := make([]float32, rows*n)
			for row := range rows {
				x[row*n+37], x[row*n+41] = 3, -3
			}
			x[0], x[n+38], x[2*n+n-1] = nan, nan, nan
			for i := range n {
				x[3*n+i] = nan
			}
			r := kernels.Reduce{Kind: kind, N: n, Heads: 1}
			l, err := r.Launch(rows)
			require.NoError(t, err)
			want := make([]float32, rows)
			r.Reference(rows, x, want)
			if places == nil {
				out := make([]float32, rows)
				kerneltest.Run(t, l, kernels.ReduceArguments[any]{X: x, Out: out, Step: []int32{rows, 0}})
				for i := range rows {
					require.True(t, math.IsNaN(float64(out[i])), "row %d: %g", i, out[i])
					require.True(t, math.IsNaN(float64(want[i])), "row %d of the reference implementation: %g", i,
						want[i])
				}
				return
			}
			out := make([]int32, rows)
			kerneltest.Run(t, l, kernels.ReduceArguments[any]{X: x, Out: out, Step: []int32{rows, 0}})
			require.Equal(t, places, out)
			for i, at := range places {
				require.Equal(t, float32(at), want[i])
			}
		})
	}
}

func TestSoftmax(t *testing.T) {
	t.Parallel()
	for _, r := range []kernels.Reduce{{N: 8, Heads: 2}, {N: 700, Heads: 1, X: kernels.Rows{Token: 800, Row: 800}}} {
		l, err := r.SoftmaxLaunch(3)
		require.NoError(t, err)
		kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 2, Capacity: 3}))
	}
	_, err := kernels.Reduce{N: 0, Heads: 1}.SoftmaxLaunch(1)
	require.EqualError(t, err, "softmax of 1 rows of 0 numbers, of kind 0")
}

func TestGather(t *testing.T) {
	t.Parallel()
	for _, g := range []kernels.Gather{
		{N: 30, Rows: 9, Each: 2, Table: kernels.BF16, Out: kernels.F32, Index: kernels.I64},
		{N: 300, Rows: 4, Each: 1, Table: kernels.F32, Out: kernels.BF16, Index: kernels.I32},
	} {
		l, err := g.Launch(3)
		require.NoError(t, err)
		kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 3}))
	}
	for want, g := range map[string]kernels.Gather{
		"gather of rows of a table f32[2, 4] as f32 by bool numbers": {N: 4, Rows: 2, Each: 1, Table: kernels.F32,
			Out: kernels.F32, Index: kernels.Bool},
		"gather: table is i32, want f32 or bf16": {N: 4, Rows: 2, Each: 1, Table: kernels.I32,
			Out: kernels.F32, Index: kernels.I32},
		"gather of 3000000000 elements, want at most 2147483647": {N: 1e6, Rows: 2, Each: 1000, Table: kernels.F32,
			Out: kernels.F32, Index: kernels.I32},
	} {
		_, err := g.Launch(3)
		require.EqualError(t, err, want)
	}
}
