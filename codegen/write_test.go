package codegen_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
)

// data is a constant's data of a size, whose reads and bytes a test decides.
type data struct {
	name  string
	shape []int64
	read  func(p []byte, off int64) (int, error)
}

func (d data) DType() ir.DType                         { return ir.U8 }
func (d data) Shape() []int64                          { return d.shape }
func (d data) Provenance() string                      { return d.name }
func (d data) ReadAt(p []byte, off int64) (int, error) { return d.read(p, off) }
func pattern(p []byte, off int64) (int, error) {
	for i := range p {
		p[i] = byte((off + int64(i)) * 7 >> 3)
	}
	return len(p), nil
}

// module has constants of the given data, of which it uses nothing.
func module(t testing.TB, all ...ir.Data) *ir.Module {
	t.Helper()
	m := parse(t, "module {\n  entry forward(%x: f32[2]) {\n    %0 = neg(x=%x) : f32[2]\n    return %0: f32[2]\n  }\n}")
	for i, d := range all {
		m.NewConstant(fmt.Sprintf("c%d", i), ir.StaticType(d.DType(), d.Shape()...), d)
	}
	return m
}

// record is a build record.
func record(text string, fields ...codegen.Field) *codegen.Record {
	return &codegen.Record{Key: "etc.build", Bytes: []byte(text), Fields: fields}
}

// requireOnly checks what a directory holds.
func requireOnly(t testing.TB, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	found := []string{}
	for _, e := range entries {
		found = append(found, e.Name())
	}
	require.Equal(t, append([]string{}, names...), found)
}

// TestWriteErrors: whatever goes wrong, no file appears, nothing is left aside, and a file that is there
// stays as it is.
func TestWriteErrors(t *testing.T) {
	cancelled := errors.New("cancelled")
	failing := func(err error) ir.Data {
		return data{"failing", []int64{9 << 20}, func(p []byte, off int64) (int, error) {
			if off > 4<<20 {
				return 0, err
			}
			return pattern(p, off)
		}}
	}
	for _, test := range []struct {
		name string
		file func() codegen.File
		is   error
		want string
	}{
		{"data", func() codegen.File { return codegen.File{Module: module(t, failing(cancelled))} },
			cancelled, "failing: cancelled"},
		{"full disk", func() codegen.File { return codegen.File{Module: module(t, failing(syscall.ENOSPC))} },
			syscall.ENOSPC, "no space left on device"},
		{"short data", func() codegen.File {
			return codegen.File{Module: module(t,
				data{"short", []int64{100}, func(p []byte, off int64) (int, error) { return 99, io.EOF }})}
		}, io.ErrUnexpectedEOF, "short: unexpected EOF"},
		{"short data without an error", func() codegen.File {
			return codegen.File{Module: module(t,
				data{"short", []int64{100}, func(p []byte, off int64) (int, error) { return 99, nil }})}
		}, io.ErrUnexpectedEOF, "short: unexpected EOF"},
		{"no data", func() codegen.File {
			m := module(t)
			m.NewConstant("w", ir.StaticType(ir.F32), nil)
			return codegen.File{Module: m}
		}, nil, "constant @w has no bytes"},
		{"record", func() codegen.File {
			return codegen.File{Module: module(t),
				Record: record("??", codegen.Field{Size: 2,
					Make: func(context.Context) ([]byte, error) { return nil, cancelled }})}
		}, cancelled, "etc.build: cancelled"},
		{"field of another size", func() codegen.File {
			return codegen.File{Module: module(t),
				Record: record("???", codegen.Field{Size: 2,
					Make: func(context.Context) ([]byte, error) { return []byte("{ }"), nil }})}
		}, nil, "etc.build: field 0 has 3 bytes, 2 were planned"},
		{"field outside", func() codegen.File {
			return codegen.File{Module: module(t), Record: record("??", codegen.Field{Offset: 1, Size: 2})}
		}, nil, "etc.build: field 0 lies at 1+2, want it in bytes 0 to 2"},
		{"fields that overlap", func() codegen.File {
			return codegen.File{Module: module(t),
				Record: record("??", codegen.Field{Size: 2}, codegen.Field{Offset: 1, Size: 1})}
		}, nil, "etc.build: field 1 lies at 1+1, want it in bytes 2 to 2"},
		{"computation", func() codegen.File {
			return codegen.File{Module: module(t, part{&computation{fail: cancelled}, 0})}
		}, cancelled, "double: cancelled"},
		{"computation that gives too little", func() codegen.File {
			return codegen.File{Module: module(t, part{&computation{short: 1}, 0})}
		}, nil, "double: output 0 gave 999 of 1000 bytes"},
		{"computation that gives too much", func() codegen.File {
			return codegen.File{Module: module(t, part{&computation{short: -1}, 1})}
		}, nil, "double: output 1 has bytes at 0+1001, its size is 1000"},
		{"key twice", func() codegen.File {
			return codegen.File{Module: module(t, ir.Bytes(ir.U8, nil, []byte{1})),
				Extra: []codegen.NamedBytes{{Key: "c0"}}}
		}, nil, `named data "c0" stands twice`},
		{"constant method", func() codegen.File {
			m := module(t)
			m.Metadata = []ir.Method{{Name: "get_name", Values: []any{int64(1), "name"}}}
			return codegen.File{Module: m}
		}, nil, "constant method get_name: value 1 is a string, want int64, bool or float64"},
	} {
		for _, jobs := range []int{1, 4} {
			for _, existing := range []bool{false, true} {
				t.Run(fmt.Sprint(test.name, jobs, existing), func(t *testing.T) {
					dir := t.TempDir()
					path := filepath.Join(dir, "model.pte")
					if existing {
						require.NoError(t, os.WriteFile(path, []byte("before"), 0o600))
					}
					f := test.file()
					f.Jobs = jobs
					err := codegen.Write(t.Context(), path, f)
					require.ErrorContains(t, err, test.want)
					require.ErrorContains(t, err, path)
					if test.is != nil {
						require.ErrorIs(t, err, test.is)
					}
					if !existing {
						requireOnly(t, dir)
						return
					}
					requireOnly(t, dir, "model.pte")
					b, err := os.ReadFile(path)
					require.NoError(t, err)
					require.Equal(t, "before", string(b))
				})
			}
		}
	}
}

func TestWriteToNowhere(t *testing.T) {
	dir := t.TempDir()
	require.ErrorIs(t, codegen.Write(t.Context(), filepath.Join(dir, "none", "model.pte"),
		codegen.File{Module: module(t)}), os.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "model.pte"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.pte", "x"), nil, 0o644))
	require.Error(t, codegen.Write(t.Context(), filepath.Join(dir, "model.pte"), codegen.File{Module: module(t)}),
		"a directory that is not empty is not replaced")
	requireOnly(t, dir, "model.pte")
}

// TestWriteStopsAtAnError: once a piece has failed, workers begin no other.
func TestWriteStopsAtAnError(t *testing.T) {
	var reads atomic.Int64
	var all []ir.Data
	for i := range 500 {
		all = append(all, data{fmt.Sprint(i), []int64{10}, func(p []byte, off int64) (int, error) {
			reads.Add(1)
			return 0, errors.New("broken")
		}})
	}
	require.Error(t, codegen.Write(t.Context(), filepath.Join(t.TempDir(), "model.pte"),
		codegen.File{Module: module(t, all...), Jobs: 4}))
	require.LessOrEqual(t, reads.Load(), int64(8))
}

// TestWriteReplaces: a file appears whole, readable by all, in the place of an older one.
func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.pte")
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("old"), 1<<20), 0o600))
	f := codegen.File{Module: module(t, data{"c", []int64{5 << 20}, pattern})}
	require.NoError(t, codegen.Write(t.Context(), path, f))
	requireOnly(t, dir, "model.pte")
	info, err := os.Stat(path)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.Equal(t, os.FileMode(0o644), info.Mode().Perm())
	}
	l, err := codegen.Plan(f)
	require.NoError(t, err)
	require.Equal(t, l.Size, info.Size())
	requireSameConstants(t, f.Module, lifted(t, open(t, path), "forward"))
}

// TestProgress: it never goes back, is not called by two at a time, and ends at the total.
func TestProgress(t *testing.T) {
	var mu sync.Mutex
	var last, total int64
	f := codegen.File{Module: module(t, data{"a", []int64{9 << 20}, pattern}, part{&computation{}, 0},
		part{&computation{}, 1}), Jobs: 4,
		Record: record("(?)", codegen.Field{Offset: 1, Size: 1,
			Make: func(context.Context) ([]byte, error) { return []byte("b"), nil }})}
	f.Progress = func(written, all int64) {
		require.True(t, mu.TryLock())
		defer mu.Unlock()
		require.Greater(t, written, last)
		last, total = written, all
	}
	write(t, f)
	require.Equal(t, total, last)
	require.Greater(t, total, int64(9<<20+2000+3))
}

// computation gives 1000 bytes of each of two outputs in pieces; short takes from the last piece.
type computation struct {
	runs  atomic.Int64
	fail  error
	short int
}

func (c *computation) Provenance() string { return "double" }
func (c *computation) Produce(emit func(output int, offset int64, p []byte) error) error {
	c.runs.Add(1)
	if c.fail != nil {
		return c.fail
	}
	if c.short < 0 {
		return emit(1, 0, make([]byte, 1001))
	}
	buffer := make([]byte, 300)
	for off := 0; off < 1000-c.short; off += 300 {
		for output := range 2 {
			p := buffer[:min(300, 1000-c.short-off)]
			for i := range p {
				p[i] = byte(output*100 + (off+i)%97)
			}
			if err := emit(output, int64(off), p); err != nil {
				return err
			}
			clear(buffer) // emit must not keep it
		}
	}
	return nil
}

type part struct {
	c      *computation
	output int
}

func (p part) DType() ir.DType              { return ir.U8 }
func (p part) Shape() []int64               { return []int64{1000} }
func (p part) Provenance() string           { return fmt.Sprintf("double.%d", p.output) }
func (p part) Group() (ir.Computation, int) { return p.c, p.output }
func (p part) ReadAt([]byte, int64) (int, error) {
	return 0, errors.New("the writer reads parts one by one")
}

// TestComputationsRunOnce: parts of one computation are produced together, also where the file holds one of
// them, or one twice.
func TestComputationsRunOnce(t *testing.T) {
	for _, outputs := range [][]int{{0, 1}, {1}, {0, 1, 0}} {
		c := &computation{}
		var all []ir.Data
		for _, o := range outputs {
			all = append(all, part{c, o})
		}
		path, _ := write(t, codegen.File{Module: module(t, all...)})
		require.EqualValues(t, 1, c.runs.Load())
		p := open(t, path)
		for i, o := range outputs {
			got, ok := p.File.Lookup(fmt.Sprintf("c%d", i))
			require.True(t, ok)
			require.Len(t, got, 1000)
			for j, b := range got {
				require.Equal(t, byte(o*100+j%97), b)
			}
		}
	}
}

// TestMemoryDoesNotGrow: weights are read in pieces of 4 MiB at most.
func TestMemoryDoesNotGrow(t *testing.T) {
	var largest atomic.Int64
	d := data{"large", []int64{40<<20 + 5}, func(p []byte, off int64) (int, error) {
		for n := largest.Load(); int64(len(p)) > n && !largest.CompareAndSwap(n, int64(len(p))); n = largest.Load() {
		}
		return pattern(p, off)
	}}
	_, file := write(t, codegen.File{Module: module(t, d), Jobs: 3})
	require.EqualValues(t, 4<<20, largest.Load())
	want := make([]byte, 40<<20+5)
	pattern(want, 0) //nolint:errcheck // has no error
	require.True(t, bytes.HasSuffix(file, want))
}
