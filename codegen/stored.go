package codegen

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"sync"
)

// StoredProgram is what [Field.Of] calls the program: its FlatBuffer with its headers, and after it the delegate graphs
// of its entries, in their order. No named data of a file that is written can have the name.
const StoredProgram = "etc.program"

// StoredKeys returns the keys of the named data of a file, those of [File.Extra] among them, without the record and
// with one key for each piece: weights that are stored once have the key of the first. So a record with the SHA-256
// of each of them, and of [StoredProgram], tells every byte but its own and those between the pieces, which are zero.
func StoredKeys(f File) []string {
	var out []string
	seen := map[string]bool{}
	for _, c := range f.Module.Constants {
		if c.Data == nil || seen[c.Data.Provenance()] {
			continue
		}
		seen[c.Data.Provenance()] = true
		out = append(out, c.Name)
	}
	for _, x := range f.Extra {
		out = append(out, x.Key)
	}
	return out
}

// hashedSegments sets, for each field of a record that is the hash of stored data, the segment of that data. byKey has
// the segments of the named data.
func (l *Layout) hashedSegments(r *Record, byKey map[string]int) error {
	for i, f := range r.Fields {
		if f.Of == "" {
			continue
		}
		if f.Size != hex.EncodedLen(sha256.Size) {
			return fmt.Errorf("%s: field %d is the SHA-256 of %q and has %d bytes, want %d",
				r.Key, i, f.Of, f.Size, hex.EncodedLen(sha256.Size))
		}
		if f.Of == StoredProgram {
			continue
		}
		n, ok := byKey[f.Of]
		if !ok || l.segments[n].record != nil {
			return fmt.Errorf("%s: field %d is the SHA-256 of %q, which is no named data of the file", r.Key, i, f.Of)
		}
		l.segments[n].hashes = append(l.segments[n].hashes, f.Offset)
	}
	return nil
}

// programHash returns the SHA-256 of what [StoredProgram] stands for, in hexadecimal.
func (l *Layout) programHash() []byte {
	h := sha256.New()
	h.Write(l.Program)
	for _, s := range l.segments[1 : 1+l.graphs] { // after the constant segment
		h.Write(s.bytes)
	}
	return hex.AppendEncode(nil, h.Sum(nil))
}

// running is the SHA-256 of a segment while it is written. What is written next in order is hashed from memory; what
// comes early is read back when its turn comes, soon after, and so from the page cache. What an earlier export has
// written is read back at the end. A nil running is for a segment without a hash.
type running struct {
	segment *segment

	mu   sync.Mutex
	hash hash.Hash
	next int64           // up to here the segment is hashed
	busy bool            // somebody hashes
	then map[int64]int64 // the sizes of what is written and not hashed, by offset
	left int64           // their sum
	went sync.Cond       // something has been hashed, or nobody hashes
}

// hashLag is how much may be written and not hashed while somebody hashes: little enough to be in the page cache still.
const hashLag = 32 << 20

func newRunning(s *segment) *running {
	if len(s.hashes) == 0 {
		return nil
	}
	r := &running{segment: s, hash: sha256.New(), then: map[int64]int64{}}
	r.went.L = &r.mu
	return r
}

// wrote notes that p was written at an offset of the segment. One of the workers hashes; the others wait while the hash
// is far behind them.
func (r *running) wrote(w *worker, p []byte, offset int64) error {
	if r == nil || len(p) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.then[offset] = int64(len(p))
	r.left += int64(len(p))
	if r.busy {
		for r.busy && r.left > hashLag {
			r.went.Wait()
		}
		return nil
	}
	r.busy = true
	defer func() {
		r.busy = false
		r.went.Broadcast()
	}()
	for size, ok := r.then[r.next]; ok; size, ok = r.then[r.next] {
		at := r.next
		delete(r.then, at)
		err := func() error {
			r.mu.Unlock()
			defer r.mu.Lock()
			if at != offset {
				return w.hash(r.hash, r.segment.offset+at, size)
			}
			_, err := r.hash.Write(p)
			return err
		}()
		if err != nil {
			return err
		}
		r.next, r.left = at+size, r.left-size
		r.went.Broadcast()
	}
	return nil
}

// sum returns the SHA-256 in hexadecimal, when all is written.
func (r *running) sum(w *worker) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := w.hash(r.hash, r.segment.offset+r.next, r.segment.size-r.next); err != nil {
		return nil, err
	}
	r.next = r.segment.size
	return hex.AppendEncode(nil, r.hash.Sum(nil)), nil
}

// hashTasks returns the tasks that compute the hashes of a segment, for a record at an offset. They are in the group of
// the segment's other tasks and run after them, since a hash needs the bytes in order.
func (s *segment) hashTasks(r *running, g *group, record int64) []task {
	var tasks []task
	for _, field := range s.hashes {
		at := record + int64(field)
		g.extents = append(g.extents, extent{at, int64(hex.EncodedLen(sha256.Size))})
		tasks = append(tasks, task{group: g, after: true, run: func(ctx context.Context, w *worker) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			sum, err := r.sum(w)
			if err != nil {
				return err
			}
			return w.out.writeAt(sum, at)
		}})
	}
	return tasks
}

// hashPiece is how much of what has been written is read at a time.
const hashPiece = 256 << 10

// hash hashes what has been written to a range of the program.
func (w *worker) hash(h hash.Hash, offset, size int64) error {
	buffer := make([]byte, min(hashPiece, size))
	for at := int64(0); at < size; at += hashPiece {
		p := buffer[:min(hashPiece, size-at)]
		if n, err := w.out.readAt(p, offset+at); n < len(p) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("reading what was written: byte %d: %w", offset+at+int64(n), err)
		}
		h.Write(p)
	}
	return nil
}

// waiting are the tasks that run after all others of their group.
type waiting struct {
	mu     sync.Mutex
	groups map[*group]*follow
}

type follow struct {
	tasks []task
	waits bool // for others that this run does
	left  int  // of those
}

func newWaiting(tasks []task, done set) *waiting {
	w := &waiting{groups: map[*group]*follow{}}
	for _, t := range tasks {
		if t.after && !done.has(t.id) {
			if w.groups[t.group] == nil {
				w.groups[t.group] = &follow{}
			}
			w.groups[t.group].tasks = append(w.groups[t.group].tasks, t)
		}
	}
	for _, t := range tasks {
		if f := w.groups[t.group]; f != nil && !t.after && !done.has(t.id) {
			f.left++
			f.waits = true
		}
	}
	return w
}

// waits reports whether completed will return a task.
func (w *waiting) waits(t task) bool { return t.after && w.groups[t.group].waits }

// completed counts a task as done, and gives those that need not wait any more.
func (w *waiting) completed(t task) []task {
	f := w.groups[t.group]
	if f == nil || t.after {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.left--; f.left > 0 {
		return nil
	}
	return f.tasks
}
