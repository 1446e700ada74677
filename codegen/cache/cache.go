package cache

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etc-ml/etc/internal/outfile"
)

const (
	magic     = "etccache1\n"
	extension = ".block"
	// maxEntry bounds what is read of an entry; a block of a weight is far smaller.
	maxEntry = 1 << 30
	// slack is the part of the bound that is free after entries have been removed, so that it is not done for every
	// entry.
	slack = 10
)

// Cache is a directory of entries. Its methods may be called from several goroutines, and several processes may
// have the same directory open.
type Cache struct {
	dir string
	max int64

	hits, misses, damaged atomic.Int64
	broken                atomic.Pointer[error] // why nothing is written any more

	mu   sync.Mutex
	size int64 // what the directory held at the last look, and what has been written since
}

// Stats counts the blocks of computations that were found, computed and stored.
type Stats struct {
	Hits, Misses int64
	// Damaged entries were removed.
	Damaged int64
	// Err is why entries were not written, nil where they were.
	Err error
}

// Open opens a directory, which is made where it does not exist, as a cache of at most max bytes.
func Open(dir string, max int64) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	c := &Cache{dir: dir, max: max}
	return c, c.trim()
}

// Stats tells what has become of the blocks so far.
func (c *Cache) Stats() Stats {
	s := Stats{Hits: c.hits.Load(), Misses: c.misses.Load(), Damaged: c.damaged.Load()}
	if err := c.broken.Load(); err != nil {
		s.Err = *err
	}
	return s
}

// Name returns the name of an entry: a hash of parts, each with its length, so that different parts never give the same
// input.
func Name(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (c *Cache) path(name string) string { return filepath.Join(c.dir, name[:2], name[2:]+extension) }

// Get returns the content of an entry, false where there is none. The time of its use is noted.
func (c *Cache) Get(name string) ([]byte, bool) {
	path := c.path(name)
	p, err := readEntry(path, name)
	if err == nil {
		now := time.Now()
		os.Chtimes(path, now, now) //nolint:errcheck // a cache that cannot be written is still of use
		return p, true
	}
	if errors.Is(err, errDamaged) {
		c.damaged.Add(1)
		os.Remove(path) //nolint:errcheck // it is found damaged again
	}
	return nil, false
}

var errDamaged = errors.New("damaged")

// readEntry reads an entry and checks it.
func readEntry(path, name string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxEntry {
		return nil, errDamaged
	}
	p, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	body := len(p) - sha256.Size
	if body < len(magic) || string(p[:len(magic)]) != magic || !bytes.Equal(p[body:], sum(name, p[:body])) {
		return nil, errDamaged
	}
	return p[len(magic):body], nil
}

// sum returns the hash at the end of an entry.
func sum(name string, p []byte) []byte {
	h := sha256.New()
	h.Write([]byte(name))
	h.Write(p)
	return h.Sum(nil)
}

// Put keeps an entry. Where that is not possible, the cache keeps nothing from then on.
func (c *Cache) Put(name string, content []byte) {
	if c.broken.Load() != nil || int64(len(content)) > min(c.max, maxEntry/2) {
		return
	}
	if err := c.put(name, content); err != nil {
		c.broken.CompareAndSwap(nil, &err)
	}
}

func (c *Cache) put(name string, content []byte) error {
	path := c.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	p := append([]byte(magic), content...)
	p = append(p, sum(name, p)...)
	if err := outfile.Write(path, outfile.Options{Unsynced: true},
		func(w io.Writer) error { _, err := w.Write(p); return err }); err != nil {
		return err
	}
	c.mu.Lock()
	c.size += int64(len(p))
	full := c.size > c.max
	c.mu.Unlock()
	if full {
		return c.trim()
	}
	return nil
}

// entry is a file of the directory.
type entry struct {
	path string
	size int64
	used time.Time
}

// list returns the entries. What other processes remove meanwhile is left out. Files that a process has begun and not
// ended for a day are removed.
func (c *Cache) list() ([]entry, error) {
	var out []entry
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		switch name := d.Name(); {
		case strings.HasSuffix(name, extension):
			out = append(out, entry{path, info.Size(), info.ModTime()})
		case outfile.IsAside(name) && time.Since(info.ModTime()) > 24*time.Hour:
			os.Remove(path) //nolint:errcheck // the next one tries again
		}
		return nil
	})
	return out, err
}

// trim removes entries, the least recently used first, until the directory is within its bound with some room.
func (c *Cache) trim() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := c.list()
	if err != nil {
		return err
	}
	c.size = 0
	for _, e := range entries {
		c.size += e.size
	}
	if c.size <= c.max {
		return nil
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path))
	})
	for _, e := range entries {
		if c.size <= c.max-c.max/slack {
			break
		}
		if err := os.Remove(e.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		c.size -= e.size
	}
	return nil
}

// Usage describes the content of a cache directory.
type Usage struct {
	Entries int   `json:"entries"`
	Size    int64 `json:"size"`    // bytes
	Damaged int   `json:"damaged"` // found and removed by Check
}

// Usage counts the entries.
func (c *Cache) Usage() (Usage, error) {
	entries, err := c.list()
	u := Usage{Entries: len(entries)}
	for _, e := range entries {
		u.Size += e.size
	}
	return u, err
}

// Check reads all entries, removes those that are damaged, and counts the rest.
func (c *Cache) Check() (Usage, error) {
	entries, err := c.list()
	var u Usage
	for _, e := range entries {
		dir, file := filepath.Split(e.path)
		_, err := readEntry(e.path, filepath.Base(dir)+strings.TrimSuffix(file, extension))
		switch {
		case err == nil:
			u.Entries++
			u.Size += e.size
		case errors.Is(err, errDamaged):
			u.Damaged++
			if err := os.Remove(e.path); err != nil {
				return u, err
			}
		case !errors.Is(err, fs.ErrNotExist):
			return u, err
		}
	}
	return u, err
}
