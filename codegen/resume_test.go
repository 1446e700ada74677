package codegen_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
)

// childPath is the variable with the file that TestKilledChild writes.
const childPath = "ETC_CODEGEN_WRITE"

// TestKilledChild is the process that TestKilled kills.
func TestKilledChild(t *testing.T) {
	path := os.Getenv(childPath)
	if path == "" {
		return
	}
	defer codegen.SetSizes(100, 1000)()
	f := manyTasks(t, func() { fmt.Print(".") })
	f.Resume = true
	require.NoError(t, codegen.Write(context.Background(), path, f))
}

// counted is a computation of 50 blocks with two outputs, which tells of every block.
type counted struct{ event func() }

func (c counted) Provenance() string { return "counted" }
func (c counted) Blocks() int        { return 50 }
func (c counted) Produce(func(int, int64, []byte) error) error {
	return errors.New("the writer takes blocks where there are some")
}

func (c counted) ProduceBlock(i int, emit func(output int, offset int64, p []byte) error) error {
	c.event()
	for output := range 2 {
		p := make([]byte, 60)
		for j := range p {
			p[j] = byte(i*7 + j + 100*output)
		}
		if err := emit(output, int64(60*i), p); err != nil {
			return err
		}
	}
	return nil
}

type countedPart struct {
	counted
	output int
}

func (p countedPart) DType() ir.DType              { return ir.U8 }
func (p countedPart) Shape() []int64               { return []int64{3000} }
func (p countedPart) Provenance() string           { return fmt.Sprintf("counted.%d", p.output) }
func (p countedPart) Group() (ir.Computation, int) { return p.counted, p.output }
func (p countedPart) ReadAt([]byte, int64) (int, error) {
	return 0, errors.New("the writer reads parts one by one")
}

// manyTasks is a file of about 200 tasks of every kind, those of the weights and of the record telling of themselves.
func manyTasks(t testing.TB, event func()) codegen.File {
	plain := data{"plain", []int64{10000}, func(p []byte, off int64) (int, error) {
		event()
		return pattern(p, off)
	}}
	r := record(strings.Repeat("?,", 20))
	for i := range 20 {
		r.Fields = append(r.Fields, codegen.Field{Offset: 2 * i, Size: 1, Work: 10,
			Make: func(context.Context) ([]byte, error) {
				event()
				return []byte{'a' + byte(i)}, nil
			}})
	}
	c := counted{event}
	return withHashes(codegen.File{Module: module(t, plain, countedPart{c, 0}, countedPart{c, 1}), Record: r, Jobs: 3,
		Extra:    []codegen.NamedBytes{{Key: "metadata.a", Bytes: []byte("some text")}},
		Identity: []codegen.Property{{Name: "flag", Value: "4w"}}})
}

const manyEvents = 100 + 50 + 20

// TestKilled: a process that is killed at random points, and started again with Resume, ends with the same bytes,
// and does not do again what had reached the disk.
func TestKilled(t *testing.T) {
	defer codegen.SetSizes(100, 1000)()
	self, err := os.Executable()
	require.NoError(t, err)
	_, want := write(t, manyTasks(t, func() {}))
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 6 {
		dir := t.TempDir()
		path := filepath.Join(dir, "model.pte")
		kills := 0
		for whole := false; !whole; {
			child := exec.Command(self, "-test.run=^TestKilledChild$")
			child.Env = append(os.Environ(), childPath+"="+path)
			child.Stderr = os.Stderr
			stdout, err := child.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())
			events := bufio.NewReader(stdout)
			seen, until := 0, 1+random.IntN(manyEvents*2/3)
			for ; seen < until; seen++ {
				if _, err := events.ReadByte(); err == io.EOF {
					break
				}
			}
			if seen == until {
				require.NoError(t, child.Process.Kill())
				kills++
			}
			io.Copy(io.Discard, events) //nolint:errcheck // it was killed
			err = child.Wait()
			if _, missing := os.Stat(path); missing == nil {
				whole = true
			} else {
				require.Error(t, err, "it ended well and there is no file")
				_, err := os.Stat(path + ".partial")
				require.NoError(t, err)
			}
			require.Less(t, kills, 200, "nothing that was done is kept")
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		requireSameBytes(t, want, got)
		requireOnly(t, dir, "model.pte")
		t.Logf("round %d: killed %d times", round, kills)
	}
}

// interrupt begins to write a file and ends the context after a number of events.
func interrupt(t *testing.T, path string, resume bool, events int64) (f codegen.File, did int64, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var n atomic.Int64
	f = manyTasks(t, func() {
		if n.Add(1) == events {
			cancel()
		}
	})
	f.Resume = resume
	err = codegen.Write(ctx, path, f)
	return f, n.Load(), err
}

// TestInterrupted: the end of the context leaves nothing, or with Resume what the next call goes on from.
func TestInterrupted(t *testing.T) {
	defer codegen.SetSizes(100, 1000)()
	_, want := write(t, manyTasks(t, func() {}))
	dir := t.TempDir()
	path := filepath.Join(dir, "model.pte")

	_, _, err := interrupt(t, path, false, 60)
	var interrupted *codegen.InterruptedError
	require.ErrorAs(t, err, &interrupted)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, path+": interrupted; nothing has been left of it")
	requireOnly(t, dir)

	_, _, err = interrupt(t, path, true, 60)
	require.EqualError(t, err, path+": interrupted; --resume goes on from what has been written")
	requireOnly(t, dir, "model.pte.partial", "model.pte.partial.journal")

	_, did, err := interrupt(t, path, true, 60)
	require.ErrorAs(t, err, &interrupted)
	require.Less(t, did, int64(70))

	last, total := int64(0), int64(0)
	f := manyTasks(t, func() {})
	f.Resume = true
	message := ""
	f.Log = func(s string) { message = s }
	f.Progress = func(written, all int64) {
		if last == 0 {
			require.Greater(t, written, all/3, "what is there counts")
		}
		last, total = written, all
	}
	require.NoError(t, codegen.Write(t.Context(), path, f))
	require.Regexp(t, `model\.pte: resumed, \d+ % have been written`, message)
	require.Equal(t, total, last)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	requireSameBytes(t, want, got)
	requireOnly(t, dir, "model.pte")

	// With nothing there, Resume begins.
	f.Progress = nil
	require.NoError(t, codegen.Write(t.Context(), path, f))
	require.Contains(t, message, "nothing to resume")
}

// TestResumeOfErrors: an error leaves with Resume what can be continued, too.
func TestResumeOfErrors(t *testing.T) {
	defer codegen.SetSizes(100, 1000)()
	path := filepath.Join(t.TempDir(), "model.pte")
	var n atomic.Int64
	f := manyTasks(t, func() { n.Add(1) })
	f.Resume = true
	f.Record.Fields[15].Make = func(context.Context) ([]byte, error) { return nil, errors.New("disk on fire") }
	require.ErrorContains(t, codegen.Write(t.Context(), path, f), "disk on fire")
	first := n.Swap(0)
	require.Greater(t, first, int64(80))
	f = manyTasks(t, func() { n.Add(1) })
	f.Resume = true
	require.NoError(t, codegen.Write(t.Context(), path, f))
	require.LessOrEqual(t, n.Load(), manyEvents-first+3)
}

// recording is a computation that notes its blocks, and those that it is told are not needed.
type recording struct {
	counted
	computed, skipped *sync.Map
}

func (r recording) Skip(i int) { r.skipped.Store(i, true) }

func (r recording) ProduceBlock(i int, emit func(output int, offset int64, p []byte) error) error {
	r.computed.Store(i, true)
	return r.counted.ProduceBlock(i, emit)
}

type recordingPart struct {
	countedPart
	r recording
}

func (p recordingPart) Group() (ir.Computation, int) { return p.r, p.output }

// TestSkippedBlocks: a computation hears of the blocks that an earlier export has written, and computes the others.
func TestSkippedBlocks(t *testing.T) {
	defer codegen.SetSizes(100, 1000)()
	path := filepath.Join(t.TempDir(), "model.pte")
	var computed, skipped sync.Map
	file := func(stop int64, cancel func()) codegen.File {
		var n atomic.Int64
		c := recording{counted{func() {
			if n.Add(1) == stop {
				cancel()
			}
		}}, &computed, &skipped}
		return codegen.File{Module: module(t, recordingPart{countedPart{c.counted, 0}, c}), Resume: true, Jobs: 2}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	require.ErrorIs(t, codegen.Write(ctx, path, file(20, cancel)), context.Canceled)
	first := count(&computed)
	require.Zero(t, count(&skipped))
	require.GreaterOrEqual(t, first, 20)
	require.Less(t, first, 50)
	require.NoError(t, codegen.Write(t.Context(), path, file(0, nil)))
	require.Equal(t, 50, count(&computed))
	require.InDelta(t, first, count(&skipped), 3)
	require.Positive(t, count(&skipped))
}

func count(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

// TestResumeRefuses: what follows from something else is not continued, and stays until it is written anew.
func TestResumeRefuses(t *testing.T) {
	defer codegen.SetSizes(100, 1000)()
	_, want := write(t, manyTasks(t, func() {}))
	for _, test := range []struct {
		name   string
		change func(*codegen.File)
		want   string
	}{
		{"value", func(f *codegen.File) { f.Identity[0].Value = "8w" }, "flag was 4w, is 8w"},
		{"another property", func(f *codegen.File) { f.Identity[0].Name = "other" },
			"other was nothing, is 4w; flag was 4w, is nothing"},
		{"bytes", func(f *codegen.File) { f.Extra[0].Bytes = []byte("SOME TEXT") }, "plan was "},
		{"record", func(f *codegen.File) { f.Record.Bytes[1] = ';' }, "plan was "},
		{"more and a value", func(f *codegen.File) {
			f.Identity[0].Value, f.Extra[0].Bytes = "8w", []byte("longer than the other text, by far")
		}, "continued: flag was 4w, is 8w; without --resume"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "model.pte")
			_, _, err := interrupt(t, path, true, 60)
			require.Error(t, err)
			before, err := os.ReadFile(path + ".partial")
			require.NoError(t, err)
			f := manyTasks(t, func() {})
			f.Resume = true
			test.change(&f)
			err = codegen.Write(t.Context(), path, f)
			var changed *codegen.ChangedError
			require.ErrorAs(t, err, &changed)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, path)
			after, err := os.ReadFile(path + ".partial")
			require.NoError(t, err)
			requireSameBytes(t, before, after)
			requireOnly(t, dir, "model.pte.partial", "model.pte.partial.journal")

			require.NoError(t, codegen.Write(t.Context(), path, manyTasks(t, func() {})))
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			requireSameBytes(t, want, got)
			requireOnly(t, dir, "model.pte")
		})
	}
}

// TestDamagedLeftovers: what cannot be trusted is written again.
func TestDamagedLeftovers(t *testing.T) {
	defer codegen.SetSizes(100, 1000)()
	_, want := write(t, manyTasks(t, func() {}))
	edit := func(t *testing.T, path string, f func([]byte) []byte) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, f(b), 0o644))
	}
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, partial, journal string)
	}{
		{"no journal", func(t *testing.T, _, journal string) { require.NoError(t, os.Remove(journal)) }},
		{"no file", func(t *testing.T, partial, _ string) { require.NoError(t, os.Remove(partial)) }},
		{"short file", func(t *testing.T, partial,
			_ string) {
			edit(t, partial, func(b []byte) []byte { return b[:len(b)-1] })
		}},
		{"torn line", func(t *testing.T, _,
			journal string) {
			edit(t, journal, func(b []byte) []byte { return b[:len(b)-4] })
		}},
		{"empty journal", func(t *testing.T, _,
			journal string) {
			edit(t, journal, func([]byte) []byte { return nil })
		}},
		{"torn header", func(t *testing.T, _,
			journal string) {
			edit(t, journal, func(b []byte) []byte { return b[:20] })
		}},
		{"another version", func(t *testing.T, _, journal string) {
			edit(t, journal, func(b []byte) []byte {
				return []byte(strings.Replace(string(b),
					"journal 2", "journal 1", 1))
			})
		}},
		{"wrong line", func(t *testing.T, partial, journal string) {
			edit(t, journal, func(b []byte) []byte { return append(b, "0 200 00000000\n"...) })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "model.pte")
			_, _, err := interrupt(t, path, true, 60)
			require.Error(t, err)
			test.damage(t, path+".partial", path+".partial.journal")
			f := manyTasks(t, func() {})
			f.Resume = true
			require.NoError(t, codegen.Write(t.Context(), path, f))
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			requireSameBytes(t, want, got)
			requireOnly(t, dir, "model.pte")
		})
	}
}

// TestOneExportAtATime: a second export of the same file ends, and does the first no harm.
func TestOneExportAtATime(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.pte")
	begun, second := make(chan struct{}), make(chan struct{})
	f := codegen.File{Jobs: 1, Module: module(t, data{"a", []int64{100}, func(p []byte, off int64) (int, error) {
		close(begun)
		<-second
		return pattern(p, off)
	}})}
	first := make(chan error)
	go func() { first <- codegen.Write(t.Context(), path, f) }()
	<-begun
	err := codegen.Write(t.Context(), path, codegen.File{Module: module(t, data{"a", []int64{100}, pattern})})
	close(second)
	require.ErrorContains(t, err, "model.pte.partial: another export is writing it")
	require.NoError(t, <-first)
	requireOnly(t, dir, "model.pte")
}

// hugePart is a weight of a PiB.
type hugePart struct{ part }

func (hugePart) Shape() []int64 { return []int64{1 << 20, 1 << 30} }

// TestDiskSpace: a file for which there is no space is not begun.
func TestDiskSpace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.pte")
	for _, resume := range []bool{false, true} {
		f := codegen.File{Resume: resume,
			Module: module(t, hugePart{part{&computation{fail: errors.New("a weight is read")}, 0}})}
		err := codegen.Write(t.Context(), path, f)
		var space *codegen.SpaceError
		require.ErrorAs(t, err, &space)
		require.GreaterOrEqual(t, space.Needed, int64(1<<50))
		require.Greater(t, space.Free, int64(0))
		require.Less(t, space.Free, space.Needed)
		require.ErrorContains(t, err, "model.pte: needs 1.0 PiB (")
		requireOnly(t, dir)
	}
}

// TestDroppedPages: those of an input are dropped once, after the last task that reads it.
func TestDroppedPages(t *testing.T) {
	if !codegen.DropsPages {
		t.Skip("this system takes no advice about pages")
	}
	defer codegen.SetSizes(50, 1<<20)()
	path := filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	a, b := data{"a", []int64{100}, pattern}, data{"b", []int64{100}, pattern}
	r := record("??", codegen.Field{Size: 1, Work: 100, Reads: "a"},
		codegen.Field{Offset: 1, Size: 1, Work: 100, Reads: "b"})
	f := codegen.File{Module: module(t, a, ir.Rows(ir.Reshape(a, 10, 10), 3, 2), b), Record: r, Inputs: []codegen.Input{
		{Provenance: "a", Path: path, Offset: 8, Size: 100}, {Provenance: "b", Path: path, Offset: 108, Size: 100},
		{Provenance: "unused", Path: path, Offset: 208, Size: 1},
		{Provenance: "c", Path: filepath.Join(t.TempDir(), "missing"), Size: 1}}}
	require.Empty(t, compact(codegen.DroppedPages(t, codegen.File{Module: f.Module})))
	all := codegen.DroppedPages(t, f)
	require.Equal(t, [][2]int64{{8, 100}, {108, 100}}, compact(all))
	// Tasks of an earlier export do not count: without the last one that reads b, the one before it is the last.
	last := len(all) - 1
	for len(all[last]) == 0 {
		last--
	}
	rest := codegen.DroppedPages(t, f, last)
	require.Equal(t, [][2]int64{{8, 100}, {108, 100}}, compact(rest))
	require.Empty(t, rest[last])
}

func compact(all [][][2]int64) (out [][2]int64) {
	for _, x := range all {
		out = append(out, x...)
	}
	return out
}

// FuzzJournal: any text is a journal up to some line, or none.
func FuzzJournal(f *testing.F) {
	header := `{"version":"etc journal 2","identity":[{"name":"a","value":"b"}]}` + "\n"
	f.Add([]byte(header + "0 3 17b7cb5b\n5 5 "))
	f.Add([]byte(header))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		const tasks = 100
		identity, done, whole := codegen.ParseJournal(text, tasks)
		require.LessOrEqual(t, done, tasks)
		require.LessOrEqual(t, whole, len(text))
		again, doneAgain, wholeAgain := codegen.ParseJournal(text[:whole], tasks)
		require.Equal(t, identity, again)
		require.Equal(t, done, doneAgain)
		require.Equal(t, whole, wholeAgain)
	})
}
