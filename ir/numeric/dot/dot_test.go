package dot

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestRows holds the kernels to the bits of Product.
func TestProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, x := range []struct{ m, n, k int }{{1, 1, 1}, {2, 4, 8}, {3, 5, 64}, {5, 11, 24}, {4, 8, 13}, {2, 7, 256},
		{1, 9, 40}, {6, 3, 32}, {3, 2, 0}} {
		a, b, stride := make([]float32, x.m*x.k), make([]float32, x.n*x.k), x.n+3
		for i := range a {
			a[i] = float32(r.NormFloat64())
		}
		for i := range b {
			b[i] = float32(r.NormFloat64())
		}
		out := make([]float32, x.m*stride)
		Rows(out, stride, a, x.m, b, x.n, x.k)
		for i := range x.m {
			for j := range x.n {
				want := Product(a[i*x.k:(i+1)*x.k], b[j*x.k:(j+1)*x.k])
				if got := out[i*stride+j]; math.Float32bits(got) != math.Float32bits(want) {
					t.Errorf("%v: product %d, %d is %v, want %v", x, i, j, got, want)
				}
			}
			for _, beyond := range out[i*stride+x.n : (i+1)*stride] {
				if beyond != 0 {
					t.Errorf("%v: row %d is written beyond its end", x, i)
				}
			}
		}
	}
}

func BenchmarkProducts(b *testing.B) {
	const m, n, k = 64, 64, 512
	x, y, out := make([]float32, m*k), make([]float32, n*k), make([]float32, m*n)
	b.SetBytes(2 * m * n * k)
	for b.Loop() {
		Rows(out, n, x, m, y, n, k)
	}
}
