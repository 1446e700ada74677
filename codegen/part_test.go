package codegen_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/ir"
)

// manyWeights is a file of weights of several sizes and kinds, and a record.
func manyWeights(t testing.TB) codegen.File {
	f := manyTasks(t, func() {})
	f.Record = record(strings.Repeat("?", 20))
	for i := range 20 {
		f.Record.Fields = append(f.Record.Fields,
			codegen.Field{Offset: i, Size: 1, Work: 10, Make: func(context.Context) ([]byte, error) {
				return []byte{'a' + byte(i)}, nil
			}})
	}
	var all []ir.Data
	for i := range 20 {
		all = append(all, data{fmt.Sprint("plain ", i), []int64{int64(1 + 97*i*i)},
			func(p []byte, off int64) (int, error) { return pattern(p, off+int64(i)*1000) }})
	}
	c := counted{func() {}}
	f.Module = module(t, append(all, countedPart{c, 0}, countedPart{c, 1}, part{&computation{}, 1})...)
	f.Identity = append(f.Identity, codegen.Property{Name: "place", Value: t.Name(), Local: true})
	return withHashes(f)
}

// writeParts writes all parts of a file and gives their paths.
func writeParts(t *testing.T, f func() codegen.File, parts int) (paths []string) {
	dir := t.TempDir()
	for i := 1; i <= parts; i++ {
		path := filepath.Join(dir, fmt.Sprintf("%d.part", i))
		file := f()
		file.Jobs = 1 + i%3
		require.NoError(t, codegen.WritePart(t.Context(), path, file, i, parts))
		paths = append(paths, path)
	}
	return paths
}

// TestParts: in any number, and in any order, they are linked to the very same bytes.
func TestParts(t *testing.T) {
	defer codegen.SetSizes(1000, 5000)()
	_, want := write(t, manyWeights(t))
	for _, parts := range []int{1, 2, 3, 8, 300} {
		paths := writeParts(t, func() codegen.File { return manyWeights(t) }, parts)
		largest := int64(0)
		for _, p := range paths {
			info, err := os.Stat(p)
			require.NoError(t, err)
			largest = max(largest, info.Size())
		}
		if parts == 3 {
			require.Less(t, largest, int64(len(want)*2/3), "the work is shared")
		}
		rand.New(rand.NewPCG(1, 1)).Shuffle(parts, func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		dir := t.TempDir()
		path := filepath.Join(dir, "model.pte")
		require.NoError(t, codegen.Link(t.Context(), path, paths, parts%4, outfile.Options{}))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		requireSameBytes(t, want, got)
		requireOnly(t, dir, "model.pte")
	}
}

// TestPartsAreResumed: as whole files are, and not as another part.
func TestPartsAreResumed(t *testing.T) {
	defer codegen.SetSizes(100, 1000)()
	paths := writeParts(t, func() codegen.File { return manyTasks(t, func() {}) }, 2)
	want, err := os.ReadFile(paths[1])
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "b.part")
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	f := manyTasks(t, func() {
		if n++; n == 40 {
			cancel()
		}
	})
	f.Jobs, f.Resume = 1, true
	require.ErrorIs(t, codegen.WritePart(ctx, path, f, 2, 2), context.Canceled)
	f = manyTasks(t, func() {})
	f.Resume = true
	var changed *codegen.ChangedError
	require.ErrorAs(t, codegen.WritePart(t.Context(), path, f, 1, 2), &changed)
	require.NoError(t, codegen.WritePart(t.Context(), path, f, 2, 2))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	requireSameBytes(t, want, got)
}

// TestLinkRefuses: parts that do not go together, by name.
func TestLinkRefuses(t *testing.T) {
	defer codegen.SetSizes(1000, 5000)()
	a := writeParts(t, func() codegen.File { return manyWeights(t) }, 3)
	other := writeParts(t, func() codegen.File {
		f := manyWeights(t)
		f.Identity[0].Value = "8w"
		return f
	}, 3)
	plan := writeParts(t, func() codegen.File {
		f := manyWeights(t)
		f.Extra[0].Bytes = []byte("a text as long")[:len(f.Extra[0].Bytes)]
		return f
	}, 3)
	two := writeParts(t, func() codegen.File { return manyWeights(t) }, 2)
	damaged := func(name string, f func(b []byte) []byte) string {
		b, err := os.ReadFile(a[1])
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, f(b), 0o644))
		return path
	}
	flipped := damaged("flipped.part", func(b []byte) []byte { b[len(b)-100] ^= 1; return b })
	cut := damaged("cut.part", func(b []byte) []byte { return b[:len(b)-1] })
	empty := damaged("empty.part", func([]byte) []byte { return nil })
	for _, test := range []struct {
		name  string
		parts []string
		want  string
	}{
		{"missing", []string{a[0], a[2]}, "part 2 of 3 is missing"},
		{"one", []string{a[2]}, "part 1, 2 of 3 is missing"},
		{"twice", []string{a[0], a[1], a[2], a[1]}, a[1] + ": is part 2 of 3, as " + a[1] + " is"},
		{"other flag", []string{a[0], other[1], a[2]},
			other[1] + ": is of another export than " + a[0] + ": flag was 4w, is 8w"},
		{"other plan", []string{a[0], a[1], plan[2]},
			plan[2] + ": is of another export than " + a[0] + ": part 3 of 3"},
		{"other number", []string{a[0], two[1], a[2]},
			two[1] + ": is of another export than " + a[0] + ": part 2 of 2"},
		{"flipped", []string{a[0], flipped, a[2]}, flipped + ": damaged: its root hash is "},
		{"cut", []string{a[0], cut, a[2]}, cut + ": expected "},
		{"empty", []string{a[0], empty, a[2]}, empty + ": expected a part file, found 0 bytes"},
		{"no part", []string{a[0], "part_test.go", a[2]},
			`part_test.go: expected a part file, which begins with "etcpart1", found "package `},
		{"nothing", nil, "no parts to link"},
	} {
		dir := t.TempDir()
		err := codegen.Link(t.Context(), filepath.Join(dir, "model.pte"), test.parts, 2, outfile.Options{})
		require.ErrorContains(t, err, test.want, test.name)
		requireOnly(t, dir)
	}
	require.ErrorIs(t, codegen.Link(t.Context(), filepath.Join(t.TempDir(), "m"), []string{"missing.part"}, 1,
		outfile.Options{}), os.ErrNotExist)
	for _, n := range [][2]int{{0, 2}, {3, 2}, {1, 0}, {1, 1 << 20}} {
		require.ErrorContains(t, codegen.WritePart(t.Context(), filepath.Join(t.TempDir(), "m"), manyWeights(t), n[0],
			n[1]), "want one of 1 to")
	}
}

// FuzzPartHeader: any bytes are a part or an error, in bounded memory.
func FuzzPartHeader(f *testing.F) {
	add := func(text string, ranges int) {
		b := binary.LittleEndian.AppendUint64([]byte("etcpart1"), uint64(len(text)))
		b = append(b, text...)
		b = append(b, make([]byte, (len(b)+4095)/4096*4096-len(b)+ranges+32)...)
		f.Add(b)
	}
	add(`{"plan":"a","identity":[],"size":100,"part":1,"parts":2,"extents":[[0,10],[20,5]]}`, 15)
	add(`{"plan":"a","identity":[],"size":100,"part":1,"parts":2,"extents":[[0,10],[5,5]]}`, 15)
	add(`{"plan":"a","identity":[],"size":9223372036854775807,"part":1,"parts":2,"extents":[[1,9223372036854775807]]}`,
		0)
	f.Fuzz(func(t *testing.T, b []byte) {
		extents, start, err := codegen.ReadPartHeader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		at := start
		for _, e := range extents {
			at += e[1]
		}
		require.EqualValues(t, len(b)-32, at)
		require.True(t, slices.IsSortedFunc(extents,
			func(a, b [2]int64) int { return int(min(max(a[0]-b[0], -1), 1)) }))
	})
}
