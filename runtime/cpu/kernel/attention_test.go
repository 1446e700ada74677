package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, format := range []Format{BF16, F32} {
		for _, c := range []struct{ rows, width, queries, lo, hi int }{
			{1, 1, 1, 0, 1}, {5, 16, 2, 1, 4}, {9, 40, 3, 0, 9}, {70, 64, 4, 3, 70}, {33, 128, 8, 0, 33},
			{40, 256, 16, 5, 40}, {20, 512, 5, 0, 20}, {17, 256, 25, 0, 17}, {4, 64, 2, 2, 2},
		} {
			cache := randomMatrix(r, format, 0, c.rows, c.width, 0, false)
			n := c.hi - c.lo
			q, weights := floats(r, c.queries*c.width), floats(r, c.queries*n)
			scores, scoreSize := make([]float64, c.queries*n), make([]float64, c.queries*n)
			sums, sumSize := make([]float64, c.queries*c.width), make([]float64, c.queries*c.width)
			row := make([]float32, c.width)
			for at := range n {
				cache.Row(row, c.lo+at)
				for h := range c.queries {
					for d, v := range row {
						s := float64(q[h*c.width+d]) * float64(v)
						scores[h*n+at] += s
						scoreSize[h*n+at] += math.Abs(s)
						s = float64(weights[h*n+at]) * float64(v)
						sums[h*c.width+d] += s
						sumSize[h*c.width+d] += math.Abs(s)
					}
				}
			}
			seed := r.Uint64()
			atEachLevel(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 0))
				what := fmt.Sprintf("%v %+v", format, c)
				got := floats(r, c.queries*n)
				AttentionScores(got, n, q, c.width, c.queries, cache, c.lo, c.hi)
				requireClose(t, scores, scoreSize, got, tolerance, what)
				before := floats(r, c.queries*c.width)
				values := append([]float32{}, before...)
				AttentionValues(values, c.width, weights, n, c.queries, cache, c.lo, c.hi)
				want, size := make([]float64, len(values)), make([]float64, len(values))
				for i := range want {
					want[i], size[i] = sums[i]+float64(before[i]), sumSize[i]+math.Abs(float64(before[i]))
				}
				requireClose(t, want, size, values, tolerance, what)
			})
			release()
		}
	}
}

func TestAttentionRefusesWhatDoesNotFit(t *testing.T) {
	cache := &Matrix{Format: F32, Rows: 2, Cols: 3, Data: make([]byte, 24)}
	x := make([]float32, 6)
	require.Panics(t, func() { AttentionScores(x, 2, x, 3, 2, cache, 0, 3) })
	require.Panics(t, func() { AttentionScores(x, 2, x, 3, 3, cache, 0, 2) })
	require.Panics(t, func() { AttentionScores(x[:3], 2, x, 3, 2, cache, 0, 2) })
	require.Panics(t, func() { AttentionValues(x, 3, x[:3], 2, 2, cache, 0, 2) })
	require.Panics(t, func() { AttentionValues(x, 3, x, -1, 2, cache, 0, 2) })
	require.Panics(t, func() { AttentionValues(x, 3, x, 2, 2, &Matrix{Format: Q4}, 0, 0) })
}
