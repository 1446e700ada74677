package codegen

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/etc-ml/etc/ir"
)

// pieceSize is the number of bytes of a weight that a worker copies at a time. Tests set it.
var pieceSize = int64(4 << 20)

// task is a unit of work of a worker: it writes a part of the file. The list of all tasks depends on the layout alone.
// id is a task's index in it.
type task struct {
	id    int
	group *group
	field bool     // the task computes a field of the record
	after bool     // it runs when all other tasks of its group are done
	size  int64    // its work: bytes that it writes or, for a field of the record, reads
	reads []string // provenances of the data that it reads
	run   func(ctx context.Context, w *worker) error
	skip  func() // is called instead of run where an interrupted export has done the task already; nil for nothing
}

// group is tasks that write into the same ranges of the file.
type group struct{ extents []extent }

// size returns the number of bytes that a group writes.
func (g *group) size() (n int64) {
	for _, e := range g.extents {
		n += e.size
	}
	return n
}

// worker is what a worker has for its tasks: the output that they write to, and a buffer that they reuse.
type worker struct {
	out    *output
	buffer []byte
}

// tasks returns all tasks of a file: those of writing the weights, and among them those of the record's fields,
// both spread evenly.
func (l *Layout) tasks() []task {
	writing := []task{{group: &group{[]extent{{0, int64(len(l.Program))}}}, size: int64(len(l.Program)),
		run: func(_ context.Context, w *worker) error {
			return w.out.writeAt(l.Program, 0)
		}}}
	var fields []task
	productions := map[string]*production{}
	record := l.segments[len(l.segments)-1].offset // of the record, where there is one
	for _, s := range l.segments {
		switch {
		case s.record != nil:
			constant, computed := s.record.tasks(l, s.offset)
			writing, fields = append(writing, constant), append(fields, computed...)
		case s.data == nil:
			g, r := &group{[]extent{{s.offset, s.size}}}, newRunning(s)
			writing = append(writing, task{group: g, size: s.size, run: func(_ context.Context, w *worker) error {
				if err := w.out.writeAt(s.bytes, s.offset); err != nil {
					return err
				}
				return r.wrote(w, s.bytes, 0)
			}})
			writing = append(writing, s.hashTasks(r, g, record)...)
		default:
			writing = append(writing, s.tasks(productions, record)...)
		}
	}
	all := spread(writing, fields)
	for i := range all {
		all[i].id = i
	}
	return all
}

// tasks returns the tasks of a segment's data: pieces of it, or blocks of the computation that it comes from, unless an
// earlier segment has those; and the tasks of its hashes, for a record at an offset. Pieces with a common hash are one
// group, so that they are all in one part of the file.
func (s *segment) tasks(productions map[string]*production, record int64) []task {
	reads, r := leaves(s.data), newRunning(s)
	j, joint := s.data.(ir.Joint)
	if !joint {
		var tasks []task
		whole := &group{[]extent{{s.offset, s.size}}}
		for off := int64(0); off < s.size; off += pieceSize {
			n, g := min(pieceSize, s.size-off), whole
			if len(s.hashes) == 0 {
				g = &group{[]extent{{s.offset + off, n}}}
			}
			tasks = append(tasks, task{group: g, size: n, reads: reads, run: func(_ context.Context, w *worker) error {
				return s.copyPiece(w, off, r)
			}})
		}
		return append(tasks, s.hashTasks(r, whole, record)...)
	}
	c, output := j.Group()
	p := productions[c.Provenance()]
	known := p != nil
	if !known {
		p = &production{computation: c, targets: map[int]*target{}, group: &group{}}
		productions[c.Provenance()] = p
	}
	p.targets[output] = &target{segment: s, running: r}
	p.group.extents = append(p.group.extents, extent{s.offset, s.size})
	hashes := s.hashTasks(r, p.group, record)
	if known {
		return hashes
	}
	tasks := p.tasks(s.size)
	for i := range tasks {
		tasks[i].reads = reads
	}
	return append(tasks, hashes...)
}

// leaves returns the provenances of what data is made of.
func leaves(d ir.Data) []string {
	var out []string
	for _, l := range ir.Leaves(d) {
		out = append(out, l.Provenance())
	}
	return out
}

func (s *segment) copyPiece(w *worker, off int64, r *running) error {
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
	if err := w.out.writeAt(p, s.offset+off); err != nil {
		return err
	}
	return r.wrote(w, p, off)
}

// tasks returns one that writes what is known of a record that lies at offset, and one for each field that is no hash
// of a segment, whose tasks are the segment's.
func (r *Record) tasks(l *Layout, offset int64) (constant task, fields []task) {
	known := r.constantBytes()
	constant = task{group: &group{}, run: func(_ context.Context, w *worker) error {
		for _, e := range known {
			if err := w.out.writeAt(r.Bytes[e.offset:e.offset+e.size], offset+e.offset); err != nil {
				return err
			}
		}
		return nil
	}}
	for _, e := range known {
		constant.group.extents = append(constant.group.extents, extent{offset + e.offset, e.size})
		constant.size += e.size
	}
	for i, f := range r.Fields {
		if f.Of == StoredProgram {
			f.Make = func(context.Context) ([]byte, error) { return l.programHash(), nil }
		} else if f.Of != "" {
			continue
		}
		at := offset + int64(f.Offset)
		var reads []string
		if f.Reads != "" {
			reads = []string{f.Reads}
		}
		fields = append(fields, task{group: &group{[]extent{{at, int64(f.Size)}}}, field: true, size: f.Work,
			reads: reads, run: func(ctx context.Context, w *worker) error {
				p, err := f.Make(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", r.Key, err)
				}
				if len(p) != f.Size {
					return fmt.Errorf("%s: field %d has %d bytes, %d were planned", r.Key, i, len(p), f.Size)
				}
				return w.out.writeAt(p, at)
			}})
	}
	return constant, fields
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
		if len(a) == 0 || len(b) > 0 && float64(float64(doneB)*perB) <= float64(float64(doneA)*perA) {
			merged, doneB, b = append(merged, b[0]), doneB+b[0].size, b[1:]
			continue
		}
		merged, doneA, a = append(merged, a[0]), doneA+a[0].size, a[1:]
	}
	return merged
}

// production is the writing of the outputs of one computation, such as the codes, scales and biases of a weight that is
// quantized. targets are the segments of those outputs that are in the file.
type production struct {
	computation ir.Computation
	targets     map[int]*target
	group       *group
	blocks      int64
	ended       atomic.Int64 // tasks that have ended
}

type target struct {
	*segment
	running *running
	got     atomic.Int64 // bytes that were written
}

// tasks returns the blocks of a computation that has blocks, else a single task. size is the size of the present
// output.
func (p *production) tasks(size int64) []task {
	blocked, ok := p.computation.(ir.Blocked)
	if !ok {
		p.blocks = 1
		return []task{{group: p.group, size: size, run: func(ctx context.Context, w *worker) error {
			return p.run(ctx, w, p.computation.Produce)
		}}}
	}
	tasks := make([]task, blocked.Blocks())
	p.blocks = int64(len(tasks))
	skipper, skips := p.computation.(skipper)
	for i := range tasks {
		tasks[i] = task{group: p.group, size: size / p.blocks, run: func(ctx context.Context, w *worker) error {
			return p.run(ctx, w, func(emit func(int, int64, []byte) error) error {
				return blocked.ProduceBlock(i,
					emit)
			})
		}}
		if skips {
			tasks[i].skip = func() { skipper.Skip(i) }
		}
	}
	return tasks
}

// skipper is implemented by computations that can be told that a block will not be asked for, so that they free its
// memory.
type skipper interface{ Skip(block int) }

// run writes what produce emits. Where all blocks have been run, the last one to end checks that the segments
// are whole; blocks that an earlier, interrupted export has written are not run.
func (p *production) run(ctx context.Context, w *worker,
	produce func(emit func(output int, offset int64, p []byte) error) error) error {
	err := produce(func(output int, offset int64, b []byte) error {
		t := p.targets[output]
		if t == nil {
			return ctx.Err()
		}
		if offset < 0 || offset+int64(len(b)) > t.size {
			return fmt.Errorf("output %d has bytes at %d+%d, its size is %d", output, offset, len(b), t.size)
		}
		t.got.Add(int64(len(b)))
		if err := w.out.writeAt(b, t.offset+offset); err != nil {
			return err
		}
		if err := t.running.wrote(w, b, offset); err != nil {
			return err
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", p.computation.Provenance(), err)
	}
	if p.ended.Add(1) < p.blocks {
		return nil
	}
	for output, t := range p.targets {
		if got := t.got.Load(); got != t.size {
			return fmt.Errorf("%s: output %d gave %d of %d bytes", p.computation.Provenance(), output, got, t.size)
		}
	}
	return nil
}

// hash returns the SHA-256 of everything that the bytes of the file follow from and that the layout knows.
func (l *Layout) hash() string {
	h := sha256.New()
	add := func(p []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
	add(l.Program)
	for _, s := range l.segments {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(s.offset)))
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(s.size)))
		switch {
		case s.record != nil:
			for _, e := range s.record.constantBytes() {
				add(s.record.Bytes[e.offset : e.offset+e.size])
			}
		case s.data == nil:
			add(s.bytes)
		default:
			add([]byte(s.data.Provenance()))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
