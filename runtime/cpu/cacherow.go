package cpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
)

// rowWidth returns the number of floats of a cache row. A coded row has fewer words.
func (s *state) rowWidth() int {
	last := s.shape[len(s.shape)-1]
	if s.words != nil {
		return ir.Q8Width(last)
	}
	return last
}

// putRow writes row i of a cache.
func (s *state) putRow(i int, x []float32) {
	if s.words == nil {
		s.put(i*len(x), x)
		return
	}
	bytes := kernel.Q8RowBytes(len(x))
	kernel.ToQ8(s.words[i*bytes:(i+1)*bytes], x)
}

// cacheRows are the rows of a cache as attention reads them: a matrix of floats, or coded rows.
type cacheRows struct {
	floats kernel.Matrix
	codes  []byte
	width  int
}

func (s *state) cacheRows(rows int) cacheRows {
	c := cacheRows{width: s.rowWidth(), codes: s.words}
	if s.words == nil {
		c.floats = s.matrix(rows, c.width, 0)
	}
	return c
}

// expandedRows is the number of coded rows that are decoded at a time, so that they stay in a CPU cache.
const expandedRows = 32

// each calls f with rows [lo, hi) as floats, some at a time: with the matrix that has them, the number of rows before,
// and their range in the matrix.
func (c *cacheRows) each(w *work, lo, hi int, f func(rows *kernel.Matrix, at, lo, hi int)) {
	if c.codes == nil {
		f(&c.floats, 0, lo, hi)
		return
	}
	bytes := kernel.Q8RowBytes(c.width)
	w.rows = grow(w.rows, expandedRows*c.width)
	for at := lo; at < hi; at += expandedRows {
		n := min(expandedRows, hi-at)
		rows := w.rows[:n*c.width]
		kernel.FromQ8(rows, c.codes[at*bytes:(at+n)*bytes], c.width)
		m := kernel.Matrix{Format: kernel.F32, Rows: n, Cols: c.width, Data: bytesOf(rows)}
		f(&m, at-lo, 0, n)
	}
}

// Bytes returns the size of n rows.
func (c *cacheRows) Bytes(n int) int {
	if c.codes != nil {
		return n * kernel.Q8RowBytes(c.width)
	}
	return c.floats.Bytes(n)
}
