package quantize

import (
	"math"

	"github.com/etc-ml/etc/ir/numeric/dot"
)

// Moments are the second moments of the inputs x of a linear, the sum of x·xᵀ over all of them: what its output's
// squared error depends on, since the sum of |(w' - w)·x|² is (w' - w)·Σx·xᵀ·(w' - w)ᵀ.
type Moments struct {
	cols, rows int
	// sums is [cols, cols], where elements above the diagonal are those below once mirrored; or [cols, 1], the diagonal
	// alone.
	sums     dot.Matrix
	diagonal bool
	mirrored bool
	turned   []float32 // scratch of Add
}

// Blocks of the computation of moments. They are part of the result: sums of floats depend on their order.
const (
	// MomentRows is the number of inputs that one product sums up.
	MomentRows = 512
	momentCols = 32
)

// momentPart is the number of columns of the moments that are computed at a time. The result does not depend on it.
const momentPart = 512

// NewMoments makes the moments of no inputs of cols numbers.
func NewMoments(cols int) *Moments {
	return &Moments{cols: cols, sums: dot.Dense(make([]float32, cols*cols), cols, cols)}
}

// NewDiagonalMoments makes moments of which only the diagonal is known, for methods that need no more: see
// [Method.Diagonal].
func NewDiagonalMoments(cols int) *Moments {
	return &Moments{cols: cols, sums: dot.Dense(make([]float32, cols), cols, 1), diagonal: true}
}

// MomentBytes returns the memory that moments of inputs of cols numbers take while [Moments.Add] sums them up, the
// whole matrix or the diagonal alone.
func MomentBytes(cols int, diagonal bool) int64 {
	sums := int64(cols)
	if !diagonal {
		sums *= int64(cols)
	}
	return 4 * (sums + MomentRows*int64(cols))
}

// Rows returns the number of inputs.
func (m *Moments) Rows() int { return m.rows }

// at returns element i of the diagonal.
func (m *Moments) at(i int) *float32 {
	if m.diagonal {
		return &m.sums.Values[i]
	}
	return &m.sums.Values[i*m.cols+i]
}

// Each calls f for every number below n, perhaps on several goroutines, and returns when all calls have.
type Each func(n int, f func(i int))

// Add adds the inputs x [rows, cols]. The result depends on the order of calls and on how inputs are
// divided among them, not on each. Calls with a multiple of [MomentRows] inputs, before the last, divide them as one
// call does.
func (m *Moments) Add(x []float32, rows int, each Each) {
	m.rows += rows
	m.mirrored = false
	for rows > 0 {
		n := min(rows, MomentRows)
		stride := (n + 7) &^ 7 // zeros after the last input add nothing
		m.turned = resized(m.turned, m.cols*stride)
		each((m.cols+momentCols-1)/momentCols, func(b int) {
			for i := b * momentCols; i < min(m.cols, (b+1)*momentCols); i++ {
				row := m.turned[i*stride : (i+1)*stride]
				for t := range n {
					row[t] = x[t*m.cols+i]
				}
				clear(row[n:])
			}
		})
		t := dot.Dense(m.turned, m.cols, stride)
		each((m.cols+momentCols-1)/momentCols, func(b int) { m.addBlock(t, b*momentCols) })
		x, rows = x[n*m.cols:], rows-n
	}
}

// addBlock adds the products of rows of t from first on with all rows up to theirs.
func (m *Moments) addBlock(t dot.Matrix, first int) {
	rows := min(momentCols, m.cols-first)
	if m.diagonal {
		for i := first; i < first+rows; i++ {
			*m.at(i) += dot.Product(t.Row(i), t.Row(i))
		}
		return
	}
	addProducts(m.sums.Part(first, 0, rows, first+rows), t.Part(first, 0, rows, t.Cols),
		t.Part(0, 0, first+rows, t.Cols))
}

// addProducts adds a·bᵀ to sums, some columns at a time.
func addProducts(sums, a, b dot.Matrix) {
	values := make([]float32, a.Rows*min(momentPart, b.Rows))
	for first := 0; first < b.Rows; first += momentPart {
		n := min(momentPart, b.Rows-first)
		part := dot.Dense(values[:a.Rows*n], a.Rows, n)
		dot.Multiply(part, a, b.Part(first, 0, n, b.Cols))
		for i := range a.Rows {
			to := sums.Row(i)[first : first+n]
			for j, v := range part.Row(i) {
				to[j] += v
			}
		}
	}
}

// AddScaled adds factor times other moments, of which no less is known, and which count as no inputs.
func (m *Moments) AddScaled(o *Moments, factor float32) {
	m.mirrored = false
	for i := range m.cols {
		if m.diagonal {
			*m.at(i) += float32(*o.at(i) * factor)
			continue
		}
		to, from := m.sums.Row(i)[:i+1], o.sums.Row(i)[:i+1]
		for j, v := range from {
			to[j] += float32(v * factor)
		}
	}
}

// AddIdentity adds factor to the diagonal, as inputs that are all independent would.
func (m *Moments) AddIdentity(factor float32) {
	for i := range m.cols {
		*m.at(i) += factor
	}
}

// Mean returns the mean of the diagonal, 0 where there is no input but zeros.
func (m *Moments) Mean() float32 {
	sum := 0.0
	for i := range m.cols {
		sum += float64(*m.at(i))
	}
	return float32(sum / float64(m.cols))
}

// finite reports whether all moments are finite numbers.
func (m *Moments) finite() bool {
	for i := range m.cols {
		if !isFinite(*m.at(i)) { // bounds the others: |Σab| ≤ sqrt(Σa²·Σb²)
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

// factor returns what [factorInto] gives.
func factor(a dot.Matrix, least float32, each Each) dot.Matrix {
	l := dot.Dense(make([]float32, a.Rows*a.Rows), a.Rows, a.Rows)
	factorInto(l, a, least, each)
	return l
}

// factorInto sets l to L of the Cholesky decomposition L·Lᵀ of a, symmetric and positive definite, in a form in
// which row j holds L[j][i] for the i ≤ j, and after its diagonal L[i][j]/L[j][j] for the i > j. A pivot that rounding
// has made too small becomes least. l may be a; of a only what is below the diagonal is read.
func factorInto(l, a dot.Matrix, least float32, each Each) {
	n := a.Rows
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
}
