package kernel

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTopKAndArgMax(t *testing.T) {
	nan, infinity := float32(math.NaN()), float32(math.Inf(1))
	r := rand.New(rand.NewPCG(1, 2))
	inputs := [][]float32{{}, {3}, {nan}, {nan, nan, 1}, {-infinity, -infinity}, {1, 1, 1},
		{2, nan, infinity, -1, infinity}}
	for _, n := range []int{10, 255, 256, 257, 5000} {
		x := floats(r, n)
		for i := range x {
			x[i] = float32(math.Round(float64(x[i]) * 8)) // with equal ones
			if r.IntN(20) == 0 {
				x[i] = nan
			}
		}
		inputs = append(inputs, x)
	}
	atEachLevel(t, func(t *testing.T) {
		for _, x := range inputs {
			order := []int32{}
			for i, v := range x {
				if v == v {
					order = append(order, int32(i))
				}
			}
			slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(x[b], x[a]) })
			first := 0
			if len(order) > 0 && x[order[0]] > -infinity {
				first = int(order[0])
			}
			require.Equal(t, first, ArgMax(x))
			for _, k := range []int{0, 1, 2, 8, 40, 300, 6000} {
				indices := make([]int32, k)
				n := TopK(indices, x)
				require.Equal(t, order[:min(k, len(order))], indices[:n], "the %d largest of %d", k, len(x))
			}
		}
	})
}
