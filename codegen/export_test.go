package codegen

import (
	"io"
	"testing"
	"time"
)

// SetSizes makes pieces and flushes small for a test, so that little data is much to write.
func SetSizes(piece, flush int64) (restore func()) {
	p, b, i := pieceSize, flushBytes, flushInterval
	pieceSize, flushBytes, flushInterval = piece, flush, time.Hour
	return func() { pieceSize, flushBytes, flushInterval = p, b, i }
}

// Tasks is the number of tasks of a file.
func Tasks(t testing.TB, f File) int {
	l, err := Plan(f)
	if err != nil {
		t.Fatal(err)
	}
	return len(l.tasks())
}

// DroppedPages runs the tasks of a file in order and gives the ranges of inputs whose pages are dropped after
// each; done are tasks of an earlier export.
func DroppedPages(t testing.TB, f File, done ...int) [][][2]int64 {
	l, err := Plan(f)
	if err != nil {
		t.Fatal(err)
	}
	tasks := l.tasks()
	s := newSet(len(tasks))
	for _, i := range done {
		s.add(i)
	}
	in := newInputs(f.Inputs, tasks, s)
	defer in.close()
	out := make([][][2]int64, len(tasks))
	for i, x := range tasks {
		if s.has(i) {
			continue
		}
		in.drop = func(_ interface{ Fd() uintptr }, offset,
			size int64) {
			out[i] = append(out[i], [2]int64{offset, size})
		}
		in.completed(x)
	}
	return out
}

// ParseJournal is parseJournal: the identity, the number of tasks that are done, the length of what is whole.
func ParseJournal(text []byte, tasks int) (identity []Property, done, whole int) {
	h, s, whole := parseJournal(text, tasks)
	if h == nil {
		return nil, 0, 0
	}
	return h.Identity, s.count(), whole
}

// DropsPages tells whether pages of inputs are dropped on this system.
const DropsPages = dropsPages

// ReadPartHeader is readPartHeader: the ranges of a part and where they begin.
func ReadPartHeader(r io.ReaderAt, size int64) ([][2]int64, int64, error) {
	h, start, err := readPartHeader(r, size)
	return h.Extents, start, err
}
