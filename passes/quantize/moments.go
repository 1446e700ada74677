package quantize

import (
	"math"

	"github.com/etc-ml/etc/ir/numeric/dot"
)

// Moments are the second moments of the inputs x of a linear, the sum of x·xᵀ over all of them: what its output's
// squared error depends on, since the sum of |(w' - w)·x|² is (w' - w)·Σx·xᵀ·(w' - w)ᵀ.
type Moments struct {
	cols, rows int
	sums       dot.Matrix // [cols, cols]; elements above the diagonal are those below once mirrored
	mirrored   bool
}

// Blocks of the computation of moments. They are part of the result: sums of floats depend on their order.
const (
	momentRows = 512 // inputs that one product sums up
	momentCols = 32
)

// NewMoments makes the moments of no inputs of cols numbers.
func NewMoments(cols int) *Moments {
	return &Moments{cols: cols, sums: dot.Dense(make([]float32, cols*cols), cols, cols)}
}

// Bytes returns the memory that moments of inputs of cols numbers take, with what [NewSolver] makes of them and a
// [Drift].
func Bytes(cols int) int64 { return 3 * 4 * int64(cols) * int64(cols) }

// Rows returns the number of inputs.
func (m *Moments) Rows() int { return m.rows }

// Each calls f for every number below n, perhaps on several goroutines, and returns when all calls have.
type Each func(n int, f func(i int))

// Add adds the inputs x [rows, cols]. The result depends on the order of calls and on how inputs are
// divided among them, not on each.
func (m *Moments) Add(x []float32, rows int, each Each) {
	m.rows += rows
	m.mirrored = false
	turned := make([]float32, m.cols*momentRows)
	for rows > 0 {
		n := min(rows, momentRows)
		stride := (n + 7) &^ 7 // zeros behind the last input add nothing
		clear(turned)
		each((m.cols+momentCols-1)/momentCols, func(b int) {
			for i := b * momentCols; i < min(m.cols, (b+1)*momentCols); i++ {
				for t := range n {
					turned[i*stride+t] = x[t*m.cols+i]
				}
			}
		})
		t := dot.Dense(turned, m.cols, stride)
		each((m.cols+momentCols-1)/momentCols, func(b int) { m.addBlock(t, b*momentCols) })
		x, rows = x[n*m.cols:], rows-n
	}
}

// addBlock adds the products of rows of t from first on with all rows up to theirs.
func (m *Moments) addBlock(t dot.Matrix, first int) {
	rows := min(momentCols, m.cols-first)
	sums := dot.Dense(make([]float32, rows*(first+rows)), rows, first+rows)
	dot.Multiply(sums, t.Part(first, 0, rows, t.Cols), t.Part(0, 0, first+rows, t.Cols))
	for i := range rows {
		to := m.sums.Row(first + i)
		for j, v := range sums.Row(i) {
			to[j] += v
		}
	}
}

// AddScaled adds factor times other moments, which count as no inputs.
func (m *Moments) AddScaled(o *Moments, factor float32) {
	m.mirrored = false
	for i := range m.cols {
		to, from := m.sums.Row(i)[:i+1], o.sums.Row(i)[:i+1]
		for j, v := range from {
			to[j] += float32(v * factor)
		}
	}
}

// AddIdentity adds factor to the diagonal, as inputs that are all independent would.
func (m *Moments) AddIdentity(factor float32) {
	for i := range m.cols {
		m.sums.Row(i)[i] += factor
	}
}

// Mean returns the mean of the diagonal, 0 where there is no input but zeros.
func (m *Moments) Mean() float32 {
	sum := 0.0
	for i := range m.cols {
		sum += float64(m.sums.Row(i)[i])
	}
	return float32(sum / float64(m.cols))
}

// finite reports whether all moments are finite numbers.
func (m *Moments) finite() bool {
	for i := range m.cols {
		if !isFinite(m.sums.Row(i)[i]) { // bounds the others: |Σab| ≤ sqrt(Σa²·Σb²)
			return false
		}
	}
	return true
}

// mirror copies what is below the diagonal above it.
func (m *Moments) mirror(each Each) {
	if m.mirrored {
		return
	}
	each(m.cols, func(i int) {
		row := m.sums.Row(i)
		for j := i + 1; j < m.cols; j++ {
			row[j] = m.sums.Row(j)[i]
		}
	})
	m.mirrored = true
}

// Blocks of the factorization; they are part of the result.
const factorBlock = 32

// factor returns L of the Cholesky decomposition L·Lᵀ of a, symmetric and positive definite, as a matrix whose row j
// holds L[j][i] for the i ≤ j, and behind its diagonal L[i][j]/L[j][j] for the i > j. A pivot that rounding has made
// too small becomes least.
func factor(a dot.Matrix, least float32, each Each) dot.Matrix {
	n := a.Rows
	l := dot.Dense(make([]float32, n*n), n, n)
	diagonal := make([]float32, n)
	for first := 0; first < n; first += factorBlock {
		width := min(factorBlock, n-first)
		chunks := (n - first + factorBlock - 1) / factorBlock
		subtract := func(c int) { // a less the products of the columns that are done
			at := first + c*factorBlock
			rows := min(factorBlock, n-at)
			sums := dot.Dense(make([]float32, rows*width), rows, width)
			dot.Multiply(sums, l.Part(at, 0, rows, first), l.Part(first, 0, width, first))
			for i := range rows {
				for j, v := range sums.Row(i) {
					l.Row(at + i)[first+j] = a.Row(at + i)[first+j] - v
				}
			}
		}
		each(chunks, subtract)
		for j := first; j < first+width; j++ {
			row := l.Row(j)
			pivot := row[j] - dot.Product(row[first:j], row[first:j])
			if !(pivot > least) {
				pivot = least
			}
			diagonal[j] = float32(math.Sqrt(float64(pivot)))
			row[j] = diagonal[j]
			for i := j + 1; i < first+width; i++ {
				l.Row(i)[j] = (l.Row(i)[j] - dot.Product(l.Row(i)[first:j], row[first:j])) / diagonal[j]
			}
		}
		each(chunks, func(c int) {
			for i := max(first+width, first+c*factorBlock); i < min(n, first+(c+1)*factorBlock); i++ {
				row := l.Row(i)
				for j := first; j < first+width; j++ {
					row[j] = (row[j] - dot.Product(row[first:j], l.Row(j)[first:j])) / diagonal[j]
				}
			}
		})
	}
	each(n, func(j int) {
		row := l.Row(j)
		for i := j + 1; i < n; i++ {
			row[i] = l.Row(i)[j] / diagonal[j]
		}
	})
	return l
}
