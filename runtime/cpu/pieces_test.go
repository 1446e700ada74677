package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/cpu/kernel"
)

// matrixOf has the sizes of a matrix of 4-bit codes in groups of 64, and no bytes.
func matrixOf(rows, cols int) *kernel.Matrix {
	return &kernel.Matrix{Format: kernel.Q4, Rows: rows, Cols: cols, Group: 64, ScaleFormat: kernel.BF16, Biases: []byte{}}
}

// Every row is in one piece, in order, and no piece is larger than the largest nor, but for the end of a matrix,
// smaller than the smallest. Pieces begin at multiples of a step.
func TestPieces(t *testing.T) {
	for _, c := range []struct{ threads, step int }{{1, 1}, {2, 1}, {4, 1}, {16, 1}, {2, 32}, {16, 32}} {
		for _, shapes := range [][][2]int{{{248320, 2048}}, {{5, 128}}, {{12352, 2048}, {1, 2048}, {256, 2048}},
			{{512, 2048}, {512, 2048}, {512, 2048}, {512, 2048}, {512, 2048}, {512, 2048}}, {{2049, 5376}}} {
			var matrices []*kernel.Matrix
			for _, s := range shapes {
				matrices = append(matrices, matrixOf(s[0], s[1]))
			}
			matrix, row := 0, 0
			for _, p := range pieces(matrices, 1, c.step, c.threads) {
				if row == matrices[matrix].Rows {
					matrix, row = matrix+1, 0
				}
				m := matrices[matrix]
				require.Equal(t, matrix, p.matrix)
				require.Equal(t, row, p.lo)
				require.Zero(t, p.lo%c.step)
				require.Greater(t, p.hi, p.lo)
				require.LessOrEqual(t, m.Bytes(p.hi-p.lo), largestPiece+m.Bytes(max(8, c.step)))
				if m.Bytes(m.Rows) > 2*smallestPiece && p.hi < m.Rows {
					require.GreaterOrEqual(t, m.Bytes(p.hi-p.lo), smallestPiece/2)
				}
				row = p.hi
			}
			require.Equal(t, len(matrices)-1, matrix)
			require.Equal(t, matrices[matrix].Rows, row)
		}
	}
}

// Parts of an expert's rows are enough for all threads, and neither too large nor too small.
func TestExpertParts(t *testing.T) {
	for _, c := range []struct{ rows, cols, experts, threads, parts int }{
		{2048, 512, 8, 1, 1}, {2048, 512, 8, 2, 2}, {2048, 512, 8, 4, 3}, {2048, 512, 8, 64, 18}, // 576 KiB
		{2048, 4096, 8, 1, 5}, {16, 64, 2, 8, 1}, {2816, 704, 8, 2, 2},
	} {
		rows, parts := expertParts(matrixOf(c.rows, c.cols), c.experts, 1, c.threads)
		require.Equal(t, c.parts, parts, "%+v", c)
		require.Zero(t, rows%8)
		whole, _ := expertParts(matrixOf(c.rows, c.cols), c.experts, 32, c.threads)
		require.Zero(t, whole%32)
		require.GreaterOrEqual(t, rows*parts, c.rows)
		require.Less(t, rows*(parts-1), c.rows)
	}
}
