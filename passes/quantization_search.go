package passes

import (
	"sync"
	"sync/atomic"

	"github.com/etc-ml/etc/passes/quantize"
)

// search is the state of hqq's search over one matrix, which has to end before the first block of the matrix is
// quantized. Every worker that needs the result helps: it looks at blocks of rows until none is left. Only then does it
// wait for the others.
type search struct {
	next   atomic.Int64 // block to look at
	looked sync.WaitGroup
	start  sync.Once
	left   atomic.Int64 // blocks that are still to be quantized; then fits is freed

	mu   sync.Mutex
	test quantize.Search
	err  error
	fits atomic.Pointer[[]quantize.Fit] // the fit of each group of the matrix; nil after they were freed
}

func newSearches(q *quantization) []search {
	s := make([]search, q.stack)
	for i := range s {
		s[i].looked.Add(q.matrixBlocks())
		s[i].left.Store(int64(q.matrixBlocks()))
	}
	return s
}

// search returns the search over a matrix when it is complete.
func (q *quantization) search(matrix int) (*search, error) {
	s := &q.searches[matrix]
	s.start.Do(func() {
		fits := make([]quantize.Fit, q.groups(q.rows))
		s.fits.Store(&fits)
	})
	for {
		i := int(s.next.Add(1)) - 1
		if i >= q.matrixBlocks() {
			break
		}
		q.look(s, matrix*q.matrixBlocks()+i)
	}
	s.looked.Wait()
	return s, s.err
}

// groups returns the number of groups in rows rows.
func (q *quantization) groups(rows int) int {
	if q.scheme.GroupSize == 0 {
		return rows
	}
	return rows * (q.cols / q.scheme.GroupSize)
}

// look reads block i and adds what hqq's search needs of it to s.
func (q *quantization) look(s *search, i int) {
	defer s.looked.Done()
	w := newBlockWork()
	defer w.release()
	var test quantize.Search
	err := q.tiles(w, i, func(first, rows int) error {
		return test.Observe(w.values, rows, q.cols, q.scheme, s.fitsOf(q, first, rows))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.test.Merge(&test)
	if s.err == nil {
		s.err = err
	}
}

// fitsOf returns the fits of rows, counted from the first of the stack.
func (s *search) fitsOf(q *quantization, first, rows int) []quantize.Fit {
	fits := s.fits.Load()
	if fits == nil {
		return nil
	}
	return (*fits)[q.groups(first%q.rows):][:q.groups(rows)]
}

// release counts a block that was quantized, and frees the fits after the last one. A block that is read once more
// computes its fits again.
func (s *search) release() {
	if s.left.Add(-1) == 0 {
		s.fits.Store(nil)
	}
}
