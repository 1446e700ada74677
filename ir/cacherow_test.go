package ir_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// TestQ8Rows: every width that has rows of codes is told from the words of its row, and no other number of words has a
// width.
func TestQ8Rows(t *testing.T) {
	widths := map[int]int{}
	for width := -1; width <= 4096; width++ {
		words := ir.Q8Words(width)
		if words == 0 {
			_, err := ir.Q8Rows(ir.StaticType(ir.BF16, 2, int64(max(width, 0))))
			require.ErrorContains(t, err, "want a multiple of 32, or 4, 8 or 16")
			continue
		}
		require.Equal(t, width, ir.Q8Width(words))
		require.Zero(t, width%ir.Q8Group(width))
		require.GreaterOrEqual(t, 4*words, width+2*width/ir.Q8Group(width))
		widths[words] = width
	}
	for words := -1; words <= 1000; words++ {
		require.Equal(t, widths[words], ir.Q8Width(words), "%d words", words)
	}
	rows, err := ir.Q8Rows(ir.StaticType(ir.BF16, 1, 8, 4096, 128))
	require.NoError(t, err)
	require.Equal(t, "u32[1,8,4096,34]", rows.String()) // 8.5 bits for each number
	_, err = ir.Q8Rows(ir.StaticType(ir.I32, 4))
	require.ErrorContains(t, err, "no rows of floats")
}
