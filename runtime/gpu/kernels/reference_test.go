package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/mat"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// TestMatMulTwinByGonum compares the reference implementation of products, that kernels are compared with, with
// gonum's.
func TestMatMulTwinByGonum(t *testing.T) {
	const n, tokens = 40, 5
	for i, f := range formats {
		r, m := seeded(uint64(i)), kernels.MatMul{Matrices: kernels.Matrices{Format: f, K: 128, Exact: true}, N: n}
		w, x, got := r.weight(f, n, m.K), r.floats(tokens*m.K), blank(tokens*n)
		m.Reference(&w.Weight, x, nil, got)
		decoded, rows := mat.NewDense(n, m.K, nil), mat.NewDense(tokens, m.K, nil)
		decoded.Apply(func(row, column int, _ float64) float64 { return w.At(row, column) }, decoded)
		rows.Apply(func(row, column int, _ float64) float64 { return float64(x[row*m.K+column]) }, rows)
		var want mat.Dense
		want.Mul(rows, decoded.T())
		require.Greater(t, mat.Max(&want), 0.0)
		narrow := make([]float32, tokens*n)
		for j, v := range want.RawMatrix().Data {
			narrow[j] = float32(v)
		}
		requireClose(t, narrow, got, 1e-6)
	}
}
