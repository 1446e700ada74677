package numeric

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// TestDistributions compares draws with the distributions that they are of: their mean, their deviation, and the
// largest distance between the cumulative distributions (the statistic of Kolmogorov and Smirnov, at p = 0.001).
func TestDistributions(t *testing.T) {
	const n = 1 << 16
	for name, c := range map[string]struct {
		fill func(dst []float32, key [2]uint32)
		of   interface {
			CDF(float64) float64
			Mean() float64
			StdDev() float64
		}
	}{
		"uniform": {FillUniform, distuv.Uniform{Max: 1}},
		"gumbel":  {FillGumbel, distuv.GumbelRight{Beta: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				draws, x := make([]float32, n), make([]float64, n)
				c.fill(draws, Key(seed))
				for i, v := range draws {
					x[i] = float64(v)
				}
				slices.Sort(x)
				mean, deviation := stat.MeanStdDev(x, nil)
				require.InDelta(t, c.of.Mean(), mean, 3.3*stat.StdErr(c.of.StdDev(), n))
				require.InEpsilon(t, c.of.StdDev(), deviation, 0.015)
				distances := make([]float64, n)
				for i, v := range x {
					p := c.of.CDF(v)
					distances[i] = max(p-float64(i)/n, float64(i+1)/n-p)
				}
				require.Less(t, floats.Max(distances)*math.Sqrt(n), 1.95)
			}
		})
	}
}
