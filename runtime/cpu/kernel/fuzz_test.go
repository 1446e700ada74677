package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzLevels: matrices of any form and size give at every level of the processor what they give in plain Go.
func FuzzLevels(f *testing.F) {
	f.Add(uint8(0), uint8(3), uint8(1), uint8(0), uint8(1), uint8(0), uint64(1))
	f.Add(uint8(1), uint8(33), uint8(3), uint8(1), uint8(5), uint8(3), uint64(2))
	f.Add(uint8(2), uint8(9), uint8(40), uint8(2), uint8(9), uint8(0), uint64(3))
	f.Fuzz(func(t *testing.T, form, rows, groups, group, vectors, variant uint8, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		size := []int{32, 64, 128}[group%3]
		format := []Format{Q4, Q8, BF16, F32}[form%4]
		w := randomMatrix(r, format, []Format{BF16, F32}[variant/2%2], 1+int(rows)%70, size*(1+int(groups)%40), size,
			variant%2 == 1)
		defer release()
		require.NoError(t, w.Check())
		n := 1 + int(vectors)%20
		x := floats(r, n*w.Cols)
		before := Level()
		defer func() { require.NoError(t, SetLevel(before)) }()
		for _, path := range []Path{Exact, Integer} {
			want, magnitudes := product(w, path, x, n)
			for _, level := range Levels() {
				require.NoError(t, SetLevel(level))
				var a Activations
				a.Reset(w.Layout(path), n, w.Cols)
				a.Fill(x, w.Cols, 0, n)
				y := floats(r, n*w.Rows)
				MatMul(y, w.Rows, w, &a, 0, w.Rows)
				requireClose(t, want, magnitudes, y, tolerance, level+" "+w.describe())
			}
		}
	})
}
