package codegen

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/internal/outfile"
)

// How much is written before the disk is asked to keep it. Whatever is written after that is lost with the
// process and written again. Tests set them.
var (
	flushBytes    = int64(128 << 20)
	flushInterval = 5 * time.Second
)

const (
	partialSuffix = ".partial"
	journalSuffix = ".partial.journal"
)

// output is a file that is being written, aside: path.partial, and path.partial.journal with the tasks whose
// bytes have reached the disk. At most twice flushBytes are on their way to it.
type output struct {
	path    string
	target  outfile.Options
	file    outfile.File
	journal *journal
	at      func(offset int64) int64
	keep    bool // when abandoned
	inputs  *inputs

	done     set // tasks
	progress func(written, total int64)

	mu             sync.Mutex
	flushed        sync.Cond
	written, total int64
	dirty          int64 // bytes that have been written since the last flush began
	pending        []int // tasks that have ended since then
	flushing       bool
	last           time.Time // when the last flush began
	failed         error     // of a flush
}

// SpaceError is a disk that is too small for a file.
type SpaceError struct {
	Path         string
	Needed, Free int64 // bytes
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("%s: needs %s (%d bytes), but its disk has %s (%d bytes) free",
		e.Path, humanize.IBytes(uint64(e.Needed)), e.Needed, humanize.IBytes(uint64(e.Free)), e.Free)
}

// openOutput opens the file aside, after a look at what an earlier export has left there, and takes the space
// that it needs.
func openOutput(path string, f File, i image) (_ *output, err error) {
	if err := outfile.Check(path, f.Target); err != nil {
		return nil, err
	}
	file, err := outfile.OpenLocked(path+partialSuffix, 0o644)
	switch {
	case errors.Is(err, outfile.ErrLocked):
		return nil, fmt.Errorf("%s%s: another export is writing it", path, partialSuffix)
	case errors.Is(err, outfile.ErrReplaced):
		return nil, fmt.Errorf("%s%s: another export has just written it", path, partialSuffix)
	case err != nil:
		return nil, err
	}
	o := &output{path: path, target: f.Target, file: file, at: i.at, keep: f.Resume,
		progress: f.Progress, last: time.Now()}
	o.flushed.L = &o.mu
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	identity := append([]Property{{Name: planProperty, Value: i.key}}, f.Identity...)
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if f.Resume && info.Size() > 0 {
		if o.journal, o.done, err = continueJournal(path+journalSuffix, identity, i.tasks); err != nil {
			return nil, err
		}
	}
	if o.journal == nil || info.Size() != i.size {
		// From the beginning. The old journal goes first: it must never speak of new bytes.
		if o.journal != nil {
			if err := o.journal.close(); err != nil {
				return nil, err
			}
		}
		if err := removeIfThere(path + journalSuffix); err != nil {
			return nil, err
		}
		if err := file.Truncate(0); err != nil {
			return nil, err
		}
		o.journal, o.done = newJournal(path+journalSuffix, identity), nil
	}
	if f.Log != nil && f.Resume {
		f.Log(resumeMessage(path, o.done, len(i.tasks)))
	}
	if err := allocate(path, file, i.size); err != nil {
		if o.done == nil {
			o.keep = false // there is nothing to keep
		}
		return nil, errors.Join(err, o.discard())
	}
	o.count(i.tasks)
	o.inputs = newInputs(f.Inputs, i.tasks, o.done)
	return o, nil
}

// count counts the bytes to write, and those that are written; a part of a group counts as its share.
func (o *output) count(tasks []task) {
	all, done := map[*group]int64{}, map[*group]int64{}
	for _, t := range tasks {
		all[t.group]++
		if o.done.has(t.id) {
			done[t.group]++
		}
	}
	for g, n := range all {
		size := g.size()
		o.total += size
		o.written += size * done[g] / n
	}
}

func resumeMessage(path string, done set, tasks int) string {
	if done == nil {
		return path + ": nothing to resume, written from the beginning"
	}
	return fmt.Sprintf("%s: resumed, %.0f %% have been written", path, 100*float64(done.count())/float64(max(tasks, 1)))
}

// allocate takes the disk's space for a file before its bytes are computed.
func allocate(path string, file outfile.File, size int64) error {
	if free, known := freeSpace(filepath.Dir(path)); known {
		if needed := size - allocated(file); needed > free {
			return &SpaceError{Path: path, Needed: needed, Free: free}
		}
	}
	if err := file.Allocate(size); err != nil {
		return fmt.Errorf("%s: %d bytes: %w", path, size, err)
	}
	return nil
}

// writeAt writes bytes at an offset of the program. It waits where the disk is far behind.
func (o *output) writeAt(p []byte, offset int64) error {
	if len(p) == 0 {
		return nil
	}
	if o.at != nil {
		offset = o.at(offset)
	}
	if n, err := o.file.WriteAt(p, offset); err != nil {
		return err
	} else if n < len(p) {
		return io.ErrShortWrite
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written += int64(len(p))
	o.dirty += int64(len(p))
	if o.progress != nil {
		o.progress(min(o.written, o.total), o.total)
	}
	if o.dirty >= flushBytes {
		o.flush()
	}
	for o.dirty >= flushBytes && o.flushing && o.failed == nil {
		o.flushed.Wait()
	}
	return o.failed
}

// readAt reads what has been written at an offset of the program.
func (o *output) readAt(p []byte, offset int64) (int, error) {
	if o.at != nil {
		offset = o.at(offset)
	}
	return o.file.ReadAt(p, offset)
}

// completed notes that a task has written all of its bytes.
func (o *output) completed(t task) error {
	o.inputs.completed(t)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = append(o.pending, t.id)
	if time.Since(o.last) >= flushInterval {
		o.flush()
	}
	return o.failed
}

// flush begins to bring what has been written to the disk, and the tasks that have ended to the journal. The
// kernel's pages of it can be dropped then. The caller holds the lock.
func (o *output) flush() {
	if o.flushing || o.failed != nil {
		return
	}
	tasks := o.pending
	o.flushing, o.pending, o.dirty, o.last = true, nil, 0, time.Now()
	go func() {
		err := o.file.SyncData()
		if err == nil {
			err = o.journal.append(tasks)
		}
		dropPages(o.file, 0, 0)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.flushing, o.failed = false, err
		o.flushed.Broadcast()
	}()
}

// settle waits for the flush that is on its way.
func (o *output) settle() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.flushing {
		o.flushed.Wait()
	}
	return o.failed
}

// commit gives the file its name. The journal goes last: without a file aside it means nothing.
func (o *output) commit() error {
	if err := o.file.Chmod(0o644); err != nil {
		return err
	}
	if err := o.file.Sync(); err != nil {
		return err
	}
	dropPages(o.file, 0, 0)
	if mine, there := stat(o.file), statPath(o.path+partialSuffix); mine == nil || there == nil ||
		!os.SameFile(mine, there) {
		return fmt.Errorf("%s%s: another file has taken its place while it was written; export again", o.path,
			partialSuffix)
	}
	told := o.replaces()
	if err := outfile.Check(o.path, o.target); err != nil { // what was there at the start may be another file now
		return err
	}
	if err := renameOpen(o.file, o.path+partialSuffix, o.path); err != nil {
		return fmt.Errorf("%s: %w", o.path, err)
	}
	if told != "" {
		o.target.Log(told)
	}
	return o.journal.remove()
}

// replaces returns the message about the file that is replaced, or "" where there is none or nobody asked for messages.
func (o *output) replaces() string {
	info := statPath(o.path)
	if o.target.Log == nil || info == nil || info.Size() == 0 {
		return ""
	}
	return fmt.Sprintf("%s: replaced the file of %s that was there", o.path, humanize.IBytes(uint64(info.Size())))
}

func stat(file outfile.File) os.FileInfo {
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	return info
}

// statPath looks at a name, not at what a link of that name leads to.
func statPath(path string) os.FileInfo {
	info, err := os.Lstat(path)
	if err != nil {
		return nil
	}
	return info
}

// abandon ends an output that is not whole. What is to be kept reaches the disk first.
func (o *output) abandon() error {
	if !o.keep {
		return o.discard()
	}
	o.mu.Lock()
	o.failed = nil
	o.flush()
	o.mu.Unlock()
	return errors.Join(o.settle(), o.close())
}

// discard removes the file aside and the journal, unless they are to be kept.
func (o *output) discard() error {
	if o.keep {
		return nil
	}
	return errors.Join(o.journal.remove(), removeOpen(o.file, o.path+partialSuffix))
}

func (o *output) close() error {
	o.inputs.close()
	err := ignoreClosed(o.file.Close())
	if o.journal != nil {
		err = errors.Join(err, o.journal.close())
	}
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func removeIfThere(path string) error {
	if err := outfile.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
