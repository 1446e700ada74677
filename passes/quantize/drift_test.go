package quantize

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/numeric/dot"
)

// drifted are inputs x as they become of exact ones, [rows, cols]: neighbouring columns leak into each other.
func drifted(exact []float32, cols int) []float32 {
	x := make([]float32, len(exact))
	for i, v := range exact {
		next := i + 1
		if next%cols == 0 {
			next -= cols
		}
		x[i] = float32(v*0.9) + float32(exact[next]*0.2)
	}
	return x
}

// TestFollowGain pins what a solver gains that knows what inputs the checkpoint would have had, on inputs that it has
// not seen.
func TestFollowGain(t *testing.T) {
	const rows, cols = 64, 128
	s := Scheme{Method: Learned, Bits: 4, GroupSize: 64}
	w, seen, other := normal(rows*cols, 1), correlated(2048, cols, 1), correlated(256, cols, 2)
	x, exact := drifted(seen, cols), seen
	squares := func(d *Drift) float64 {
		m := NewMoments(cols)
		m.Add(x, len(x)/cols, serially)
		v, err := NewSolver(m, s, serially)
		require.NoError(t, err)
		if d != nil {
			v.Follow(d, serially)
		}
		r := &Result{}
		require.NoError(t, v.Quantize(r, w, rows))
		stored := make([]float32, len(w))
		require.NoError(t, r.Dequantize(stored))
		sum := 0.0
		for in, want := drifted(other, cols), other; len(in) > 0; in, want = in[cols:], want[cols:] {
			for row := range rows {
				e := float64(dot.Product(in[:cols], stored[row*cols:][:cols])) -
					float64(dot.Product(want[:cols], w[row*cols:][:cols]))
				sum += e * e
			}
		}
		return sum
	}
	d := NewDrift(cols)
	d.Add(exact, x, len(x)/cols, serially)
	require.Less(t, squares(d), 0.25*squares(nil))

	same := NewDrift(cols)
	same.Add(x, x, len(x)/cols, serially)
	require.Equal(t, squares(nil), squares(same), "without a drift nothing is followed")
}

// TestFollowChance has drifts that only chance has put into a few inputs not followed.
func TestFollowChance(t *testing.T) {
	const cols = 128
	for _, rows := range []int{40, 140, 2048} {
		x, away := correlated(rows, cols, 1), correlated(rows, cols, 2)
		exact := make([]float32, len(x))
		for i, v := range x {
			exact[i] = v + float32(away[i]/8)
		}
		m := NewMoments(cols)
		m.Add(x, rows, serially)
		v, err := NewSolver(m, Scheme{Method: Learned, Bits: 4, GroupSize: 64}, serially)
		require.NoError(t, err)
		d := NewDrift(cols)
		d.Add(exact, x, rows, serially)
		v.Follow(d, serially)
		require.Less(t, v.followed, float32(0.15), "%d inputs", rows)
	}
}

func TestDrift(t *testing.T) {
	const rows, cols = 1100, 72
	x := correlated(rows, cols, 9)
	exact := drifted(x, cols)
	d, other := NewDrift(cols), NewDrift(cols)
	for _, part := range [][2]int{{0, 600}, {600, rows}} {
		from, to := part[0]*cols, part[1]*cols
		d.Add(exact[from:to], x[from:to], part[1]-part[0], serially)
		other.Add(exact[from:to], x[from:to], part[1]-part[0], backwards)
	}
	require.Equal(t, d, other)
	for i := range cols {
		for j := range cols {
			sum, size := 0.0, 1e-3
			for r := range rows {
				p := float64(x[r*cols+j]) * float64(exact[r*cols+i]-x[r*cols+i])
				sum, size = sum+p, size+max(p, -p)
			}
			require.InDelta(t, sum, d.sums.Row(j)[i], 1e-5*size, "%d, %d", i, j)
		}
	}
}

// TestSolve multiplies solutions by the matrix again.
func TestSolve(t *testing.T) {
	const rows, n = 5, 83
	m := NewMoments(n)
	m.Add(correlated(400, n, 4), 400, serially)
	m.AddIdentity(20)
	m.mirror(serially)
	c := normal(rows*n, 3)
	x := dot.Dense(append([]float32{}, c...), rows, n)
	solve(x, factor(m.sums, 1e-3, serially))
	for r := range rows {
		for i := range n {
			require.InDelta(t, c[r*n+i], dot.Product(x.Row(r), m.sums.Row(i)), 1e-4, "%d, %d", r, i)
		}
	}
}

// TestFollowSameBits has the bits of what follows a drift, which must be the same on every CPU, OS and for any workers.
func TestFollowSameBits(t *testing.T) {
	const rows, cols = 70, 192
	w, exact := normal(rows*cols, 5), correlated(700, cols, 5)
	x := drifted(exact, cols)
	for _, each := range []Each{serially, backwards} {
		m, d := NewMoments(cols), NewDrift(cols)
		m.Add(x, 700, each)
		d.Add(exact, x, 700, each)
		v, err := NewSolver(m, Scheme{Method: Learned, Bits: 4, GroupSize: 64}, each)
		require.NoError(t, err)
		v.Follow(d, each)
		r := &Result{}
		require.NoError(t, v.Quantize(r, w, rows))
		require.Equal(t, "a013630c1b1166cd", hashed(t, r))
	}
}
