package disk

import (
	"cmp"
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/etc-ml/etc/internal/outfile"
)

// suffix ends the names of the files.
const suffix = ".prefix"

// sumSize is the size of the checksum after a content, in bytes: xxHash's 64 bits of the name and the content. It is
// for damage, not against who can write the file.
const sumSize = 8

// mostPending is the number of bytes that wait to be written before Put waits for the disk.
const mostPending = 256 << 20

// Options are the settings of a folder.
type Options struct {
	// Limit is the largest number of bytes of all files.
	Limit int64
	// Failed, if not nil, is told of a content that could not be written, once in a row of failures. The content is
	// forgotten.
	Failed func(error)
}

// Folder keeps contents in files. Its methods may be called by several goroutines.
type Folder struct {
	dir     string
	options Options
	unlock  func() error

	mu      sync.Mutex
	changed *sync.Cond // pending or closed changed
	kept    map[string]*entry
	used    *list.List // of *entry, the latest used in front
	bytes   int64      // of used
	queue   []*entry   // to be written, the oldest first
	pending int64      // bytes of the queue
	closed  bool
	done    chan struct{} // closed when the writer has ended
}

// entry is a content in the folder, or on its way there.
type entry struct {
	name    string
	size    int64         // of the file in bytes
	content []byte        // until it is written
	elem    *list.Element // in used; nil once it was dropped
}

// Open opens a folder, or makes it, with what is left there from before. The error says so if another process has it.
func Open(dir string, o Options) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := outfile.Lock(filepath.Join(dir, "folder"))
	if err != nil {
		return nil, err
	}
	f := &Folder{dir: dir, options: o, unlock: unlock, kept: map[string]*entry{}, used: list.New(),
		done: make(chan struct{})}
	f.changed = sync.NewCond(&f.mu)
	if err := f.scan(); err != nil {
		return nil, errors.Join(err, unlock())
	}
	go f.write()
	return f, nil
}

// scan finds the files of before, the latest used last, and removes those that were left unfinished.
func (f *Folder) scan() error {
	files, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	type found struct {
		name string
		size int64
		at   time.Time
	}
	var all []found
	for _, file := range files {
		info, err := file.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if name, is := strings.CutSuffix(file.Name(), suffix); is && info.Size() >= sumSize {
			all = append(all, found{name, info.Size(), info.ModTime()})
		} else if outfile.IsAside(file.Name()) && strings.Contains(file.Name(), suffix) {
			outfile.Remove(filepath.Join(f.dir, file.Name())) //nolint:errcheck // it is in nobody's way
		}
	}
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.name, b.name))
	})
	for _, x := range all {
		f.insert(&entry{name: x.name, size: x.size})
	}
	f.trim()
	return nil
}

func (f *Folder) path(name string) string { return filepath.Join(f.dir, name+suffix) }

// insert adds an entry as the latest used.
func (f *Folder) insert(e *entry) {
	e.elem = f.used.PushFront(e)
	f.kept[e.name] = e
	f.bytes += e.size
}

// drop forgets an entry, whose file goes if it has one.
func (f *Folder) drop(e *entry) {
	f.used.Remove(e.elem)
	e.elem = nil
	delete(f.kept, e.name)
	f.bytes -= e.size
	if e.content == nil {
		outfile.Remove(f.path(e.name)) //nolint:errcheck // it may be gone already
	}
}

// trim drops the longest unused until the rest is within the limit.
func (f *Folder) trim() {
	for f.bytes > f.options.Limit {
		f.drop(f.used.Back().Value.(*entry))
	}
}

// Has reports whether the folder has a content of this name.
func (f *Folder) Has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kept[name] != nil
}

// Bytes returns the number of bytes of all files, with those that are still to be written.
func (f *Folder) Bytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes
}

// Put keeps a content under a name, which is then the latest used. A name that is there keeps its content. The folder
// owns the slice from then on. Put waits for the disk where more than 256 MiB are to be written.
func (f *Folder) Put(name string, content []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.kept[name]; e != nil {
		f.used.MoveToFront(e.elem)
		return
	}
	size := int64(len(content)) + sumSize
	for f.pending > 0 && f.pending+size > mostPending && !f.closed {
		f.changed.Wait()
	}
	if f.closed || size > f.options.Limit {
		return
	}
	e := &entry{name: name, size: size, content: content}
	f.insert(e)
	f.queue = append(f.queue, e)
	f.pending += size
	f.trim()
	f.changed.Broadcast()
}

// sum returns the checksum of a content.
func sum(name string, content []byte) []byte {
	h := xxhash.New()
	h.WriteString(name) //nolint:errcheck // a hash takes everything
	h.Write(content)    //nolint:errcheck
	return binary.LittleEndian.AppendUint64(nil, h.Sum64())
}

// Get returns the content of a name, which is then the latest used. A file that is damaged or cannot be read is
// removed.
func (f *Folder) Get(name string) ([]byte, error) {
	f.mu.Lock()
	e := f.kept[name]
	if e == nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("%s: there is no such file", f.path(name))
	}
	f.used.MoveToFront(e.elem)
	content := e.content
	f.mu.Unlock()
	if content != nil {
		return slices.Clone(content), nil
	}
	content, err := f.read(name)
	if err != nil {
		f.mu.Lock()
		if f.kept[name] == e {
			f.drop(e)
		}
		f.mu.Unlock()
		return nil, err
	}
	now := time.Now()
	os.Chtimes(f.path(name), now, now) //nolint:errcheck // the order after a restart is a guess at worst
	return content, nil
}

// read reads a file and checks it.
func (f *Folder) read(name string) ([]byte, error) {
	b, err := os.ReadFile(f.path(name))
	if err != nil {
		return nil, err
	}
	n := len(b) - sumSize
	if n < 0 || string(sum(name, b[:n])) != string(b[n:]) {
		return nil, fmt.Errorf("%s is damaged: its checksum is not that of its content", f.path(name))
	}
	return b[:n], nil
}

// write writes what Put takes, until Close.
func (f *Folder) write() {
	defer close(f.done)
	failing := false
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		for len(f.queue) == 0 && !f.closed {
			f.changed.Wait()
		}
		if len(f.queue) == 0 {
			return
		}
		e := f.queue[0]
		f.queue = f.queue[1:]
		if e.elem != nil { // else it was dropped before it was written
			f.mu.Unlock()
			err := f.save(e)
			f.mu.Lock()
			failing = f.saved(e, err, failing)
		}
		f.pending -= e.size
		f.changed.Broadcast()
	}
}

// save writes the file of an entry.
func (f *Folder) save(e *entry) error {
	o := outfile.Options{Private: true, Unsynced: true}
	return outfile.Write(f.path(e.name), o, func(w io.Writer) error {
		if _, err := w.Write(e.content); err != nil {
			return err
		}
		_, err := w.Write(sum(e.name, e.content))
		return err
	})
}

// saved takes the result of save, and returns whether it was an error. It tells the first error of a row.
func (f *Folder) saved(e *entry, err error, failing bool) bool {
	switch {
	case err == nil && e.elem == nil: // dropped while it was written
		outfile.Remove(f.path(e.name)) //nolint:errcheck // nobody reads it
	case err == nil:
		e.content = nil
	case e.elem != nil:
		f.drop(e)
	}
	if err != nil && !failing && f.options.Failed != nil {
		f.options.Failed(err)
	}
	return err != nil
}

// Close writes what is to be written, and gives the folder to other processes. Has and Get work afterwards, Put does
// nothing.
func (f *Folder) Close() error {
	f.mu.Lock()
	closed := f.closed
	f.closed = true
	f.changed.Broadcast()
	f.mu.Unlock()
	<-f.done
	if closed {
		return nil
	}
	return f.unlock()
}
