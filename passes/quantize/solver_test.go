package quantize

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func serially(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// backwards is an Each that calls in another order, on goroutines.
func backwards(n int, f func(i int)) {
	var wait sync.WaitGroup
	for i := n - 1; i >= 0; i-- {
		wait.Go(func() { f(i) })
	}
	wait.Wait()
}

// correlated are inputs of a linear as they are in models: columns go together, and some are much larger than others.
// All arithmetic rounds by itself, so that they are the same on every CPU.
func correlated(rows, cols int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 7))
	x := make([]float32, rows*cols)
	for t := range rows {
		common := float32(r.NormFloat64())
		for i := range cols {
			v := float32(r.NormFloat64()) + float32(common*float32(i%5)/2)
			if i%37 == 0 {
				v = float32(v * 8)
			}
			x[t*cols+i] = v
		}
	}
	return x
}

func normal(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 3))
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(r.NormFloat64()) / 16
	}
	return w
}

// solved quantizes w for the inputs x.
func solved(t *testing.T, w, x []float32, rows, cols int, s Scheme, each Each) *Result {
	t.Helper()
	r := &Result{}
	if !s.Method.Calibrated() {
		require.NoError(t, Quantize(r, w, rows, cols, s))
		return r
	}
	m := NewMoments(cols)
	m.Add(x, len(x)/cols, each)
	solver, err := NewSolver(m, s, each)
	require.NoError(t, err)
	require.NoError(t, solver.Quantize(r, w, rows))
	return r
}

// outputError is the relative squared error of the outputs of r for inputs x.
func outputError(t *testing.T, r *Result, w, x []float32) float64 {
	t.Helper()
	stored := make([]float32, len(w))
	require.NoError(t, r.Dequantize(stored))
	noise, signal := 0.0, 0.0
	for ; len(x) > 0; x = x[r.Cols:] {
		for row := range r.Rows {
			var e, y float64
			for i, v := range x[:r.Cols] {
				e += float64(v) * (float64(stored[row*r.Cols+i]) - float64(w[row*r.Cols+i]))
				y += float64(v) * float64(w[row*r.Cols+i])
			}
			noise, signal = noise+e*e, signal+y*y
		}
	}
	return noise / signal
}

// TestSolverGain pins what each method gains on inputs that it has not seen.
func TestSolverGain(t *testing.T) {
	const rows, cols = 96, 256
	w, seen, other := normal(rows*cols, 1), correlated(2048, cols, 1), correlated(256, cols, 2)
	for _, bits := range []int{4, 8} {
		for _, group := range []int{32, 64, 128} {
			errors := map[Method]float64{}
			for _, m := range []Method{MinMax, Best, Weighted, GPTQ, Learned} {
				errors[m] = outputError(t,
					solved(t, w, seen, rows, cols, Scheme{Method: m, Bits: bits, GroupSize: group}, serially), w, other)
			}
			t.Logf("%d bits, groups of %d: of minmax's error best has %.3f, weighted %.3f, gptq %.3f, learned %.3f",
				bits, group,
				errors[Best]/errors[MinMax], errors[Weighted]/errors[MinMax], errors[GPTQ]/errors[MinMax],
				errors[Learned]/errors[MinMax])
			require.Less(t, errors[Weighted], 0.95*errors[Best])
			require.Less(t, errors[GPTQ], 0.75*errors[Weighted])
			require.Less(t, errors[Learned], 1.02*errors[GPTQ]) // with 8 bits what is left is chance
			require.Less(t, errors[Learned], 0.40*errors[MinMax])
		}
	}
}

// hashed stands for all bits of a result.
func hashed(t *testing.T, r *Result) string {
	t.Helper()
	h := sha256.New()
	for _, part := range []any{r.Packed, r.Scales, r.Biases} {
		require.NoError(t, binary.Write(h, binary.LittleEndian, part))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// TestSolverSameBits has the bits of every method, which must be the same on every CPU, OS and for any workers.
func TestSolverSameBits(t *testing.T) {
	const rows, cols = 70, 192
	w, x := normal(rows*cols, 5), correlated(700, cols, 5)
	for m, want := range map[Method]string{
		Weighted: "6d4b5144d929ce93", GPTQ: "3a782f042cec7f9e", Learned: "356926c50b0cf406",
	} {
		for _, each := range []Each{serially, backwards} {
			r := solved(t, w, x, rows, cols, Scheme{Method: m, Bits: 4, GroupSize: 64}, each)
			require.Equal(t, want, hashed(t, r), "%s", m)
		}
	}
}

func TestMoments(t *testing.T) {
	const rows, cols = 1100, 72
	x := correlated(rows, cols, 9)
	m := NewMoments(cols)
	m.Add(x[:600*cols], 600, serially)
	m.Add(x[600*cols:], rows-600, backwards)
	require.Equal(t, rows, m.Rows())
	m.mirror(backwards)
	for i := range cols {
		for j := range cols {
			sum, size := 0.0, 0.0
			for t := range rows {
				p := float64(x[t*cols+i]) * float64(x[t*cols+j])
				sum, size = sum+p, size+math.Abs(p)
			}
			require.InDelta(t, sum, m.sums.Row(i)[j], 1e-5*size, "moment %d, %d", i, j)
		}
	}
	other := NewMoments(cols)
	other.AddScaled(m, 0.5)
	require.Equal(t, float32(m.sums.Row(5)[3]/2), other.sums.Row(5)[3])
	require.Zero(t, other.Rows())
}

// TestDiagonalMoments holds moments of which only the diagonal is known to whole ones, and a sum that comes in parts to
// one that comes at once.
func TestDiagonalMoments(t *testing.T) {
	const rows, cols = 2*MomentRows + 77, 160
	x := correlated(rows, cols, 5)
	whole, parts, diagonal := NewMoments(cols), NewMoments(cols), NewDiagonalMoments(cols)
	whole.Add(x, rows, backwards)
	diagonal.Add(x, rows, backwards)
	for first := 0; first < rows; first += MomentRows {
		n := min(MomentRows, rows-first)
		parts.Add(x[first*cols:(first+n)*cols], n, serially)
	}
	require.Equal(t, whole.sums.Values, parts.sums.Values)
	for i := range cols {
		require.Equal(t, *whole.at(i), *diagonal.at(i))
	}
	require.Equal(t, whole.Mean(), diagonal.Mean())
	diagonal.AddScaled(whole, 0.5)
	parts.AddScaled(whole, 0.5)
	diagonal.AddIdentity(3)
	parts.AddIdentity(3)
	for i := range cols {
		require.Equal(t, *parts.at(i), *diagonal.at(i))
	}
	w := normal(3*cols, 1)
	var results [2]Result
	for i, m := range []*Moments{parts, diagonal} {
		v, err := NewSolver(m, Scheme{Method: Weighted, Bits: 4, GroupSize: 32}, serially)
		require.NoError(t, err)
		require.NoError(t, v.Quantize(&results[i], w, 3))
	}
	require.Equal(t, results[0], results[1])
	_, err := NewSolver(NewDiagonalMoments(cols), Scheme{Method: GPTQ, Bits: 4, GroupSize: 32}, serially)
	require.Error(t, err)
	diagonal.AddIdentity(1)
	_, err = NewSolver(diagonal, Scheme{Method: GPTQ, Bits: 4, GroupSize: 32}, serially)
	require.ErrorContains(t, err, "needs all moments")
}

// TestSolverBytes pins the order of what a solver is reckoned with: the sums, the factor and the drift of K inputs.
func TestSolverBytes(t *testing.T) {
	const cols = 8192
	square := int64(4 * cols * cols)
	of := func(m Method, follows bool) float64 {
		return float64(SolverBytes(Scheme{Method: m, Bits: 4, GroupSize: 64}, cols, follows)) / float64(square)
	}
	require.Less(t, of(Weighted, false), 0.1)
	require.InDelta(t, 1, of(GPTQ, false), 0.1)
	require.InDelta(t, 2, of(Learned, false), 0.1)
	require.InDelta(t, 3, of(Learned, true), 0.15)
}

// TestFactor multiplies the decomposition out.
func TestFactor(t *testing.T) {
	const n = 83
	m := NewMoments(n)
	m.Add(correlated(400, n, 4), 400, serially)
	m.AddIdentity(20)
	m.mirror(serially)
	f := factor(m.sums, 1e-3, backwards)
	require.Equal(t, factor(m.sums, 1e-3, serially).Values, f.Values)
	diagonal := make([]float64, n)
	at := func(i, j int) float64 { // L[i][j]
		if i == j {
			return diagonal[j]
		}
		return float64(f.Row(j)[i]) * diagonal[j]
	}
	for i := range n {
		for j := range i + 1 {
			sum := 0.0
			for k := range j {
				sum += at(i, k) * at(j, k)
			}
			if i == j {
				diagonal[j] = math.Sqrt(float64(m.sums.Row(j)[j]) - sum)
				continue
			}
			require.InDelta(t, m.sums.Row(i)[j], sum+at(i, j)*diagonal[j], 2e-3*float64(m.Mean()), "%d, %d", i, j)
		}
	}
}

func TestSolverErrors(t *testing.T) {
	const rows, cols = 4, 64
	s := Scheme{Method: GPTQ, Bits: 4, GroupSize: 64}
	m := NewMoments(cols)
	_, err := NewSolver(m, s, serially)
	require.ErrorContains(t, err, "the mean 0")
	m.AddIdentity(1)
	_, err = NewSolver(m, Scheme{Method: Best, Bits: 4, GroupSize: 64}, serially)
	require.ErrorContains(t, err, "needs no moments")
	_, err = NewSolver(m, Scheme{Method: GPTQ, Bits: 4, GroupSize: 128}, serially)
	require.ErrorContains(t, err, "128 does not divide")
	solver, err := NewSolver(m, s, serially)
	require.NoError(t, err)
	w := normal(rows*cols, 2)
	w[2*cols+7] = float32(math.NaN())
	var value *ValueError
	require.ErrorAs(t, solver.Quantize(&Result{}, w, rows), &value)
	require.Equal(t, 2, value.Row)
	require.ErrorContains(t, solver.Quantize(&Result{}, w[1:], rows), "found 255 weights")
	require.ErrorContains(t, Quantize(&Result{}, w, rows, cols, s), "use a Solver")
	for _, constant := range []float32{0, 1e-30, -3} { // groups without an extent
		for i := range w {
			w[i] = constant
		}
		r := &Result{}
		require.NoError(t, solver.Quantize(r, w, rows))
		require.NoError(t, r.Dequantize(w))
		require.InDelta(t, constant, w[5], 0.01)
	}
	m = NewMoments(cols)
	bad := correlated(8, cols, 1)
	bad[3] = float32(math.Inf(1))
	m.Add(bad, 8, serially)
	_, err = NewSolver(m, s, serially)
	require.ErrorContains(t, err, "finite")
}

// FuzzSolver has results finite and within their codes for any weights.
func FuzzSolver(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, raw []byte) {
		w := make([]float32, 64)
		for i := range min(len(raw)/4, len(w)) {
			w[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		m := NewMoments(64)
		m.Add(correlated(70, 64, 3), 70, serially)
		s, err := NewSolver(m, Scheme{Method: Learned, Bits: 4, GroupSize: 32}, serially)
		require.NoError(t, err)
		r := &Result{}
		if s.Quantize(r, w, 1) != nil {
			return
		}
		for i := range r.Scales {
			require.True(t, isFinite(r.Scales[i]) && isFinite(r.Biases[i]))
		}
	})
}

func BenchmarkSolver(b *testing.B) {
	const rows, cols = 128, 1024
	w := normal(rows*cols, 1)
	m := NewMoments(cols)
	m.Add(correlated(2048, cols, 1), 2048, serially)
	for _, method := range []Method{Weighted, GPTQ, Learned} {
		kept := NewMoments(cols)
		kept.AddScaled(m, 1)
		s, err := NewSolver(kept, Scheme{Method: method, Bits: 4, GroupSize: 64}, serially)
		require.NoError(b, err)
		b.Run(method.String(), func(b *testing.B) {
			b.SetBytes(rows * cols)
			var r Result
			for b.Loop() {
				require.NoError(b, s.Quantize(&r, w, rows))
			}
		})
	}
	b.Run("moments", func(b *testing.B) {
		x := correlated(MomentRows, cols, 1)
		for b.Loop() {
			m.Add(x, MomentRows, serially)
		}
	})
	b.Run("factor", func(b *testing.B) {
		m.mirror(serially)
		for b.Loop() {
			factor(m.sums, 1, serially)
		}
	})
}
