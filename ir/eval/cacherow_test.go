package eval

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// TestQ8Cache: attention over a cache in codes of 8 bits is, bit for bit, that over a cache of the numbers that its
// rows stand for, and these are those that were written, up to half a step of their group. Rows that nobody wrote are
// NaN.
func TestQ8Cache(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 8))
	for _, width := range []int{8, 32, 96} {
		const heads, kvHeads, units, rows, total = 4, 2, 4, 4, 11
		q, k, v := noise(r, 1, heads, total, width), noise(r, 1, kvHeads, total, width),
			noise(r, 1, kvHeads, total, width)
		words := ir.Q8Words(width)
		codes, floats := [2]*Tensor{}, [2]*Tensor{}
		positions, owners := make([]int64, total), make([]int64, total)
		for i := range positions {
			positions[i] = int64(i)
		}
		tables := []any{Ints(ir.I64, []int{total}, positions), Ints(ir.I32, []int{total}, owners),
			Ints(ir.I32, []int{1, 3}, []int64{2, 0, 3})}
		for i, x := range []*Tensor{k, v} {
			unwritten := make([]int64, kvHeads*units*rows*words)
			for j := range unwritten {
				unwritten[j] = math.MaxUint32
			}
			codes[i] = Ints(ir.U32, []int{kvHeads, units, rows, words}, unwritten)
			update(t, "block_write", nil, Mixed, codes[i], append([]any{x}, tables...)...)
			floats[i] = Floats(ir.F32, []int{kvHeads, units, rows, width}, make([]float32, kvHeads*units*rows*width))
			for row := range kvHeads * units * rows {
				unpackQ8(floats[i].F[row*width:(row+1)*width], codes[i].I[row*words:(row+1)*words])
			}
			require.True(t, math.IsNaN(float64(floats[i].F[rows*width])), "unit 1 is nobody's")
			for h := range kvHeads {
				for p := range total {
					at := ((h*units+[]int{2, 0, 3}[p/rows])*rows + p%rows) * width
					from := x.F[(h*total+p)*width:][:width]
					for j, w := range from {
						group := from[j/ir.Q8Group(width)*ir.Q8Group(width):][:ir.Q8Group(width)]
						high := 0.0
						for _, g := range group {
							high = max(high, math.Abs(float64(g)))
						}
						require.InDelta(t, w, floats[i].F[at+j], high/127*0.51)
					}
				}
			}
		}
		for _, window := range []int{0, 5} {
			attrs := &ir.CachedAttentionAttrs{Scale: 0.5, Window: window}
			require.Equal(t, run(t, "block_attention", attrs, Mixed,
				append([]any{q, floats[0], floats[1]}, tables...)...)[0],
				run(t, "block_attention", attrs, Mixed, append([]any{q, codes[0], codes[1]}, tables...)...)[0])
		}
	}
}
