package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// TestQ8Rows: rows are those that the reference kernels define, to the bit, for groups of all sizes and what is no
// finite number; and what is read is nearest to what was written.
func TestQ8Rows(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(8, 8))
		for _, width := range []int{4, 8, 16, 32, 64, 96, 256} {
			require.Equal(t, 4*ir.Q8Words(width), Q8RowBytes(width))
			group := ir.Q8Group(width)
			for trial := range 40 {
				x := make([]float32, width)
				for i := range x {
					x[i] = float32(r.NormFloat64() * math.Pow(10, float64(trial-20)))
				}
				switch at := r.IntN(width); trial % 8 {
				case 0:
					x[at] = float32(math.NaN())
				case 1:
					x[at] = float32(math.Inf(-1))
				case 2:
					clear(x[:group])
				case 3:
					x[at] = math.Float32frombits(1) // subnormal
				}
				row, back := make([]byte, Q8RowBytes(width)), make([]float32, width)
				for i := range row {
					row[i] = 0xee
				}
				ToQ8(row, x)
				FromQ8(back, row, width)
				for i, v := range x {
					part := x[i/group*group : (i/group+1)*group]
					scale := numeric.Q8Scale(part)
					require.Equal(t, byte(scale), row[width+2*(i/group)])
					require.Equal(t, byte(scale>>8), row[width+2*(i/group)+1])
					require.Equal(t, numeric.Q8Code(v, scale), int8(row[i]), "%g in %g", v, part)
					s := numeric.BF16ToF32(scale)
					if s != s || math.IsInf(float64(s), 0) {
						require.True(t, back[i] != back[i], "a group with a number that is not finite is read as NaN")
						continue
					}
					require.InDelta(t, v, back[i], float64(s)/2*1.0001)
				}
			}
		}
	})
}

func BenchmarkFromQ8(b *testing.B) {
	const width, rows = 256, 32
	src, dst := make([]byte, rows*Q8RowBytes(width)), make([]float32, rows*width)
	b.SetBytes(int64(len(dst)))
	for b.Loop() {
		FromQ8(dst, src, width)
	}
}
