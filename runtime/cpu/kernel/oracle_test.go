package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/mat"
)

// dense is a matrix of rows of numbers, each stride after the one before it.
func dense(x []float32, rows, columns, stride int) *mat.Dense {
	m := mat.NewDense(rows, columns, nil)
	m.Apply(func(r, c int, _ float64) float64 { return float64(x[r*stride+c]) }, m)
	return m
}

// magnitudes is a matrix of the magnitudes of another's elements.
func magnitudes(m *mat.Dense) *mat.Dense {
	var out mat.Dense
	out.Apply(func(_, _ int, v float64) float64 { return max(v, -v) }, m)
	return &out
}

// TestMatMulByGonum compares exact products with gonum's of the decoded matrix, on every level.
func TestMatMulByGonum(t *testing.T) {
	const rows, columns, vectors = 37, 192, 7
	r := rand.New(rand.NewPCG(31, 32))
	for _, format := range []Format{Q4, Q8, BF16, F32} {
		w := randomMatrix(r, format, F32, rows, columns, 64, false)
		decoded := make([]float32, rows*columns)
		for i := range rows {
			w.Row(decoded[i*columns:][:columns], i)
		}
		x := floats(r, vectors*columns)
		xs, ws := dense(x, vectors, columns, columns), dense(decoded, rows, columns, columns)
		var want, size mat.Dense
		want.Mul(xs, ws.T())
		size.Mul(magnitudes(xs), magnitudes(ws).T())
		atEachLevel(t, func(t *testing.T) {
			var a Activations
			a.Reset(w.Layout(Exact), vectors, columns)
			a.Fill(x, columns, 0, vectors)
			y := make([]float32, vectors*rows)
			MatMul(y, rows, w, &a, 0, rows)
			requireClose(t, want.RawMatrix().Data, size.RawMatrix().Data, y, tolerance, w.describe())
		})
		release()
	}
}

// wy runs the gated delta rule for a head, all tokens at once: it solves the triangular system of the WY form, see
// delta_chunk.go, where case.add walks from token to token. It gives the state and y.
func wy(d *DeltaRun, h *DeltaHead) (state, y *mat.Dense) {
	n := d.Tokens
	s, v := dense(h.State, h.Rows, d.Keys, d.Keys), dense(h.V, n, h.Rows, d.VStride)
	q, k := dense(d.Q, n, d.Keys, d.QStride), dense(d.K, n, d.Keys, d.KStride)
	decay := func(from, to int) float64 { // the product of the decays of tokens after from, to to
		product := 1.0
		for t := from + 1; t <= to; t++ {
			product *= float64(h.Decay[t*d.DecayStride])
		}
		return product
	}
	var kk, qk, seen, passed mat.Dense
	kk.Mul(k, k.T())
	qk.Mul(q, k.T())
	seen.Mul(k, s.T())
	passed.Mul(q, s.T())
	system, mixed, r := mat.NewTriDense(n, mat.Lower, nil), mat.NewTriDense(n, mat.Lower, nil),
		mat.NewDense(n, h.Rows, nil)
	for t := range n {
		beta := float64(h.Beta[t*d.BetaStride])
		for i := range t {
			system.SetTri(t, i, beta*decay(i, t)*kk.At(t, i))
			mixed.SetTri(t, i, decay(i, t)*qk.At(t, i))
		}
		system.SetTri(t, t, 1)
		mixed.SetTri(t, t, qk.At(t, t))
		for row := range h.Rows {
			r.Set(t, row, beta*(v.At(t, row)-decay(-1, t)*seen.At(t, row)))
		}
	}
	var u mat.Dense
	if err := system.SolveTo(&u, false, r); err != nil {
		panic(err)
	}
	state, y = new(mat.Dense), new(mat.Dense)
	y.Mul(mixed, &u)
	y.Apply(func(t, row int, x float64) float64 { return x + decay(-1, t)*passed.At(t, row) }, y)
	u.Apply(func(t, _ int, x float64) float64 { return x * decay(t, n-1) }, &u)
	state.Mul(u.T(), k)
	s.Scale(decay(-1, n-1), s)
	state.Add(state, s)
	return state, y
}

// TestDeltaChunksByGonum compares steps and chunks with one triangular system for all tokens, on every level, and the
// system with the rule in float64.
func TestDeltaChunksByGonum(t *testing.T) {
	for _, decay := range []string{"random", "near one", "zero", "one reset"} {
		atEachLevel(t, func(t *testing.T) {
			for name, run := range map[string]func(d *DeltaRun){"chunks": (*DeltaRun).chunks,
				"steps": (*DeltaRun).steps} {
				c := newDeltaCase(rand.New(rand.NewPCG(33, 34)), 67, 24, []int{11, 5}, decay, "random", false)
				for i := range c.run.Heads {
					state, y := wy(&c.run, &c.run.Heads[i])
					require.InDeltaSlice(t, c.states[i], state.RawMatrix().Data, 1e-11)
					require.InDeltaSlice(t, c.ys[i], y.RawMatrix().Data, 1e-11)
					c.states[i], c.ys[i] = state.RawMatrix().Data, y.RawMatrix().Data
				}
				run(&c.run)
				c.check(t, 3e-6, fmt.Sprintf("%s, decays %s", name, decay))
				release()
			}
		})
	}
}
