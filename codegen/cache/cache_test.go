package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// files lists the files under a directory.
func files(t testing.TB, dir string) (out []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	}))
	return out
}

func open(t testing.TB, dir string, max int64) *Cache {
	t.Helper()
	c, err := Open(dir, max)
	require.NoError(t, err)
	return c
}

func TestEntries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	c := open(t, dir, 1<<20)
	for i, content := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("abc"), 10000)} {
		name := Name("test", fmt.Sprint(i))
		_, ok := c.Get(name)
		require.False(t, ok)
		c.Put(name, content)
		got, ok := open(t, dir, 1<<20).Get(name)
		require.True(t, ok)
		require.Equal(t, string(content), string(got))
	}
	require.NotEqual(t, Name("a", "bc"), Name("ab", "c"))
	u, err := c.Usage()
	require.NoError(t, err)
	require.Equal(t, 3, u.Entries)
}

// TestDamage: whatever became of an entry, it is not there.
func TestDamage(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"hash":    func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"magic":   func(b []byte) []byte { b[0] ^= 1; return b },
		"cut":     func(b []byte) []byte { return b[:len(b)-1] },
		"empty":   func([]byte) []byte { return nil },
		"longer":  func(b []byte) []byte { return append(b, 0) },
		"of others": func([]byte) []byte {
			return append([]byte(magic), append([]byte("y"), sum("another", []byte(magic+"y"))...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := open(t, dir, 1<<20)
			key := Name("test")
			c.Put(key, []byte("content"))
			path := files(t, dir)[0]
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, damage(bytes.Clone(b)), 0o644))
			_, ok := c.Get(key)
			require.False(t, ok)
			require.EqualValues(t, 1, c.Stats().Damaged)
			require.Empty(t, files(t, dir))
			c.Put(key, []byte("content"))
			_, ok = c.Get(key)
			require.True(t, ok)

			require.NoError(t, os.WriteFile(path, damage(bytes.Clone(b)), 0o644))
			c.Put(Name("other"), []byte("content"))
			u, err := c.Check()
			require.NoError(t, err)
			require.Equal(t, Usage{Entries: 1, Size: u.Size, Damaged: 1}, u)
			require.Len(t, files(t, dir), 1)
		})
	}
}

// TestBound: what was not used for the longest time goes, and no more than has to.
func TestBound(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, 10000)
	name := func(i int) string { return Name(fmt.Sprint(i)) }
	begin := time.Now().Add(-time.Hour)
	for i := range 9 {
		c.Put(name(i), make([]byte, 1000))
		at := begin.Add(time.Duration(i) * time.Minute)
		require.NoError(t, os.Chtimes(c.path(name(i)), at, at))
	}
	_, ok := c.Get(name(0)) // used now
	require.True(t, ok)
	c.Put(name(9), make([]byte, 1000))
	u, err := c.Usage()
	require.NoError(t, err)
	require.LessOrEqual(t, u.Size, int64(9000))
	for i := range 10 {
		_, ok := c.Get(name(i))
		require.Equal(t, i == 0 || i > 2, ok, i)
	}
	c.Put(name(10), make([]byte, 20000)) // never fits
	_, ok = c.Get(name(10))
	require.False(t, ok)
	require.NoError(t, c.Stats().Err)
	open(t, dir, 3000)
	u, err = c.Usage()
	require.NoError(t, err)
	require.LessOrEqual(t, u.Size, int64(3000))
	require.Positive(t, u.Entries)
}

// TestUnwritable: a cache that cannot be written makes nothing fail.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, 1<<20)
	name := Name("a")
	require.NoError(t, os.WriteFile(filepath.Join(dir, name[:2]), nil, 0o644)) // where a directory should be
	c.Put(name, []byte("x"))
	require.Error(t, c.Stats().Err)
	c.Put(Name("b"), []byte("x"))
	_, ok := c.Get(name)
	require.False(t, ok)
}

// blocks gives 10 bytes of each of two outputs for each of 5 blocks.
type blocks struct {
	mu       sync.Mutex
	computed map[int]int
	skipped  map[int]int
	fail     error
	source   ir.Data
}

func newBlocks(source ir.Data) *blocks {
	return &blocks{computed: map[int]int{}, skipped: map[int]int{}, source: source}
}

func (b *blocks) Provenance() string                           { return "blocks(" + b.source.Provenance() + ")" }
func (b *blocks) Blocks() int                                  { return 5 }
func (b *blocks) From() []ir.Data                              { return []ir.Data{b.source} }
func (b *blocks) Skip(i int)                                   { b.mu.Lock(); b.skipped[i]++; b.mu.Unlock() }
func (b *blocks) WorkerBytes() int64                           { return 100 }
func (b *blocks) SharedBytes() int64                           { return 1000 }
func (b *blocks) Produce(func(int, int64, []byte) error) error { return errors.New("not in blocks") }

func (b *blocks) ProduceBlock(i int, emit func(output int, offset int64, p []byte) error) error {
	b.mu.Lock()
	b.computed[i]++
	b.mu.Unlock()
	for output := range 2 {
		if err := emit(output, int64(10*i), bytes.Repeat([]byte{byte(10*i + output)}, 10)); err != nil {
			return err
		}
	}
	return b.fail
}

type blocksPart struct {
	ir.Data
	c      *blocks
	output int
}

func (p blocksPart) Provenance() string           { return fmt.Sprintf("%s.%d", p.c.Provenance(), p.output) }
func (p blocksPart) Group() (ir.Computation, int) { return p.c, p.output }
func (p blocksPart) From() []ir.Data              { return p.c.From() }

// run runs all blocks of a wrapped computation and gives the outputs.
func run(t testing.TB, c *Cache, version string, b *blocks, hash string) [2][50]byte {
	t.Helper()
	source := b.source
	wrap := c.Wrap(version, func(d ir.Data) (string, bool, error) {
		require.Equal(t, source.Provenance(), d.Provenance())
		return hash, hash != "", nil
	})
	first, second := wrap(blocksPart{source, b, 0}), wrap(blocksPart{source, b, 1})
	require.Equal(t, b.Provenance()+".0", first.Provenance())
	computation, output := first.(ir.Joint).Group()
	same, other := second.(ir.Joint).Group()
	require.Same(t, computation, same)
	require.Equal(t, []int{0, 1}, []int{output, other})
	require.Equal(t, []ir.Data{source}, ir.Leaves(first))
	var out [2][50]byte
	require.NoError(t, computation.Produce(func(output int, offset int64, p []byte) error {
		copy(out[output][offset:], p)
		return nil
	}))
	return out
}

// TestWrap: blocks are computed once for one version, content and computation; what is cached is the same.
func TestWrap(t *testing.T) {
	dir := t.TempDir()
	source, other := ir.Float32s(nil, 1), ir.Float32s(nil, 2)
	first := newBlocks(source)
	want := run(t, open(t, dir, 1<<20), "v1", first, "hash")
	require.Len(t, first.computed, 5)
	require.Empty(t, first.skipped)
	require.Equal(t, byte(41), want[1][49])
	for _, test := range []struct {
		name, version, hash string
		source              ir.Data
		computed            int
	}{
		{"same", "v1", "hash", source, 0},
		{"version", "v2", "hash", source, 5},
		{"content", "v1", "other hash", source, 5},
		{"provenance", "v1", "hash", other, 5},
		{"not known", "v1", "", source, 5},
		{"still not known", "v1", "", source, 5},
	} {
		c := open(t, dir, 1<<20)
		b := newBlocks(test.source)
		require.Equal(t, want, run(t, c, test.version, b, test.hash), test.name)
		require.Len(t, b.computed, test.computed, test.name)
		require.Len(t, b.skipped, 5-test.computed, test.name)
		if test.hash != "" {
			require.Equal(t, Stats{Hits: int64(5 - test.computed), Misses: int64(test.computed)}, c.Stats(), test.name)
		}
	}
	// One damaged block is computed again, and only that.
	c := open(t, dir, 1<<20)
	all := files(t, dir)
	for _, path := range all {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		if bytes.Contains(b, bytes.Repeat([]byte{31}, 10)) {
			b[len(b)-40] ^= 1
			require.NoError(t, os.WriteFile(path, b, 0o644))
		}
	}
	b := newBlocks(source)
	require.Equal(t, want, run(t, c, "v1", b, "hash"))
	require.Equal(t, map[int]int{3: 1}, b.computed)
	require.Equal(t, Stats{Hits: 4, Misses: 1, Damaged: 1}, c.Stats())
}

// TestWrapErrors: a block that fails is not kept, nor is one whose source has no hash.
func TestWrapErrors(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, 1<<20)
	b := newBlocks(ir.Float32s(nil, 1))
	b.fail = errors.New("disk on fire")
	data := c.Wrap("v", func(ir.Data) (string, bool, error) { return "h", true, nil })(blocksPart{b.source, b, 0})
	computation, _ := data.(ir.Joint).Group()
	nothing := func(int, int64, []byte) error { return nil }
	require.ErrorIs(t, computation.(ir.Blocked).ProduceBlock(2, nothing), b.fail)
	require.Empty(t, files(t, dir))
	broken := c.Wrap("v", func(ir.Data) (string, bool, error) {
		return "", true,
			io.ErrUnexpectedEOF
	})(blocksPart{b.source, b, 0})
	computation, _ = broken.(ir.Joint).Group()
	require.ErrorIs(t, computation.Produce(nothing), io.ErrUnexpectedEOF)
	plain := ir.Float32s(nil, 1)
	require.Equal(t, plain, c.Wrap("v", nil)(plain))
	s := computation.(interface{ SharedBytes() int64 })
	require.EqualValues(t, 1000, s.SharedBytes())
}

// TestConcurrent: several caches of one directory, each with several workers, with room for half of the entries.
func TestConcurrent(t *testing.T) {
	dir := t.TempDir()
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			c := open(t, dir, 30*1100)
			for round := range 3 {
				for i := range 60 {
					name, content := Name(fmt.Sprint(i)), bytes.Repeat([]byte{byte(i)}, 1000)
					if got, ok := c.Get(name); ok {
						require.Equal(t, content, got, round)
					} else {
						c.Put(name, content)
					}
				}
			}
			require.Zero(t, c.Stats().Damaged)
			require.NoError(t, c.Stats().Err)
		})
	}
	wait.Wait()
	u, err := open(t, dir, 30*1100).Usage()
	require.NoError(t, err)
	require.LessOrEqual(t, u.Size, int64(30*1100))
}

// FuzzDecode: any content is pieces that encode to it, or an error.
func FuzzDecode(f *testing.F) {
	f.Add(encode(encode(nil, 0, 100, []byte("abc")), 2, 1<<40, nil))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, content []byte) {
		pieces, err := decode(content)
		if err != nil {
			return
		}
		var again []byte
		for _, p := range pieces {
			again = encode(again, p.output, p.offset, p.bytes)
		}
		require.LessOrEqual(t, len(again), len(content)) // a varint has longer forms
	})
}
