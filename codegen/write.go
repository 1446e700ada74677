package codegen

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/etc-ml/etc/ir"
)

// pieceSize is how much of a weight a worker holds at a time.
const pieceSize = 4 << 20

// Write writes a file under path. It writes aside, in the same directory, and renames when the file is
// whole, so that a file that exists is never half of one.
func Write(path string, f File) (err error) {
	l, err := Plan(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	out, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.part")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(out.Close()), os.Remove(out.Name()))
		}
	}()
	if err := out.Truncate(l.Size); err != nil {
		return err
	}
	if err := l.write(out, f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := out.Chmod(0o644); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(out.Name(), path)
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// task is a part of the file that one worker writes, or work beside that.
type task struct {
	size int64 // bytes
	run  func(w *worker) error
}

type worker struct {
	out    io.WriterAt
	base   int64
	buffer []byte
	wrote  func(n int64)
}

// at writes bytes at an offset from the segment base.
func (w *worker) at(p []byte, offset int64) error {
	if _, err := w.out.WriteAt(p, w.base+offset); err != nil {
		return err
	}
	w.wrote(int64(len(p)))
	return nil
}

func (l *Layout) write(out io.WriterAt, f File) error {
	if _, err := out.WriteAt(l.Program, 0); err != nil {
		return err
	}
	total := int64(0)
	for _, s := range l.segments {
		total += s.size
	}
	var mu sync.Mutex
	written := int64(0)
	wrote := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		written += n
		if f.Progress != nil {
			f.Progress(written, total)
		}
	}
	jobs := f.Jobs
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	if err := runTasks(l.allTasks(), jobs, func() *worker {
		return &worker{out: out, base: l.Base, wrote: wrote}
	}); err != nil {
		return err
	}
	for _, s := range l.segments {
		if s.record == nil {
			continue
		}
		p, err := s.record.Make()
		if err != nil {
			return fmt.Errorf("%s: %w", s.record.Key, err)
		}
		if int64(len(p)) != s.size {
			return fmt.Errorf("%s: %d bytes, %d were planned", s.record.Key, len(p), s.size)
		}
		if err := (&worker{out: out, base: l.Base, wrote: wrote}).at(p, s.offset); err != nil {
			return err
		}
	}
	return nil
}

// allTasks are the tasks of writing, and among them those of the record, both spread evenly.
func (l *Layout) allTasks() []task {
	writing := l.tasks()
	var beside []task
	for _, s := range l.segments {
		if s.record == nil {
			continue
		}
		for _, b := range s.record.Before {
			beside = append(beside, task{b.Size, func(*worker) error {
				if err := b.Do(); err != nil {
					return fmt.Errorf("%s: %w", s.record.Key, err)
				}
				return nil
			}})
		}
	}
	return spread(writing, beside)
}

// spread merges tasks so that the parts of a and of b, by size, that come before any task are alike.
func spread(a, b []task) []task {
	total := func(tasks []task) (n int64) {
		for _, t := range tasks {
			n += t.size
		}
		return max(n, 1)
	}
	merged := make([]task, 0, len(a)+len(b))
	perA, perB := 1/float64(total(a)), 1/float64(total(b))
	var doneA, doneB int64
	for len(a)+len(b) > 0 {
		if len(a) == 0 || len(b) > 0 && float64(doneB)*perB <= float64(doneA)*perA {
			merged, doneB, b = append(merged, b[0]), doneB+b[0].size, b[1:]
			continue
		}
		merged, doneA, a = append(merged, a[0]), doneA+a[0].size, a[1:]
	}
	return merged
}

// tasks splits the segments into parts: pieces of plain data, and computations, or their blocks, where
// several segments come from one.
func (l *Layout) tasks() []task {
	var tasks []task
	productions := map[string]*production{}
	for _, s := range l.segments {
		switch {
		case s.bytes != nil:
			tasks = append(tasks, task{s.size, func(w *worker) error { return w.at(s.bytes, s.offset) }})
		case s.data != nil:
			if j, ok := s.data.(ir.Joint); ok {
				c, output := j.Group()
				key := c.Provenance()
				if p, known := productions[key]; known {
					p.targets[output] = &target{segment: s}
					continue
				}
				p := &production{computation: c, targets: map[int]*target{output: {segment: s}}}
				productions[key] = p
				tasks = append(tasks, p.tasks(s.size)...)
				continue
			}
			for off := int64(0); off < s.size; off += pieceSize {
				tasks = append(tasks, task{min(pieceSize, s.size-off), func(w *worker) error { return copyPiece(w, s, off) }})
			}
		}
	}
	return tasks
}

func copyPiece(w *worker, s *segment, off int64) error {
	if w.buffer == nil {
		w.buffer = make([]byte, pieceSize)
	}
	p := w.buffer[:min(pieceSize, s.size-off)]
	n, err := s.data.ReadAt(p, off)
	if n < len(p) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("%s: %w", s.data.Provenance(), err)
	}
	return w.at(p, s.offset+off)
}

// production is a computation and those of its outputs that are in the file.
type production struct {
	computation ir.Computation
	targets     map[int]*target
	left        atomic.Int64 // tasks
}

type target struct {
	*segment
	got atomic.Int64 // bytes
}

// tasks are the blocks of a computation that has them; others are one task. size is that of the output at hand.
func (p *production) tasks(size int64) []task {
	blocked, ok := p.computation.(ir.Blocked)
	if !ok {
		p.left.Store(1)
		return []task{{size, func(w *worker) error { return p.run(w, p.computation.Produce) }}}
	}
	tasks := make([]task, blocked.Blocks())
	p.left.Store(int64(len(tasks)))
	for i := range tasks {
		tasks[i] = task{size / int64(len(tasks)), func(w *worker) error {
			return p.run(w, func(emit func(int, int64, []byte) error) error { return blocked.ProduceBlock(i, emit) })
		}}
	}
	return tasks
}

// run writes what produce emits. The last task to end checks that the segments are whole.
func (p *production) run(w *worker, produce func(emit func(output int, offset int64, p []byte) error) error) error {
	err := produce(func(output int, offset int64, b []byte) error {
		t := p.targets[output]
		if t == nil {
			return nil
		}
		if offset < 0 || offset+int64(len(b)) > t.size {
			return fmt.Errorf("output %d has bytes at %d+%d, its size is %d", output, offset, len(b), t.size)
		}
		t.got.Add(int64(len(b)))
		return w.at(b, t.offset+offset)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", p.computation.Provenance(), err)
	}
	if p.left.Add(-1) > 0 {
		return nil
	}
	for output, t := range p.targets {
		if got := t.got.Load(); got != t.size {
			return fmt.Errorf("%s: output %d gave %d of %d bytes", p.computation.Provenance(), output, got, t.size)
		}
	}
	return nil
}

// runTasks runs the tasks on a number of workers and gives the first error, after which no task starts.
func runTasks(tasks []task, jobs int, newWorker func() *worker) error {
	queue := make(chan task)
	stop := make(chan struct{})
	var once sync.Once
	var first error
	var wait sync.WaitGroup
	for range min(jobs, len(tasks)) {
		wait.Go(func() {
			w := newWorker()
			for t := range queue {
				if err := t.run(w); err != nil {
					once.Do(func() { first = err; close(stop) })
					return
				}
			}
		})
	}
feed:
	for _, t := range tasks {
		select {
		case queue <- t:
		case <-stop:
			break feed
		}
	}
	close(queue)
	wait.Wait()
	return first
}
