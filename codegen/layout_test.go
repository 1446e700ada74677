package codegen_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/container"
)

// segmentOf gives the segment of a key.
func segmentOf(t testing.TB, f *container.File, key string) int {
	t.Helper()
	for _, n := range f.NamedData() {
		if n.Key == key {
			return n.Segment
		}
	}
	require.Fail(t, "no named data", key)
	return 0
}

// requireLayout checks what holds for every file: segments are in order and apart, large ones begin at
// pages and the others at 128 bytes, what is between them is zeros.
func requireLayout(t testing.TB, f *container.File, file []byte) {
	t.Helper()
	base := int64(f.Header().SegmentBase)
	require.Zero(t, base%(16<<10), "the base is a multiple of 16 KiB")
	end := int64(f.Header().ProgramSize)
	zeros := func(from, to int64) {
		require.True(t, from <= to, "segments are in order and do not overlap")
		require.True(t, len(bytes.Trim(file[from:to], "\x00")) == 0, "nothing lies between segments")
	}
	segments := f.Segments()
	require.Zero(t, segments[0].Size, "the constant segment is empty")
	require.Equal(t, base, segments[0].Offset)
	for i, s := range segments {
		require.Zero(t, s.Offset%128, "segment %d", i)
		if s.Size >= 64<<10 {
			require.Zero(t, s.Offset%(16<<10), "segment %d of %d bytes", i, s.Size)
		}
		zeros(end, s.Offset)
		end = s.Offset + s.Size
	}
	require.EqualValues(t, len(file), end, "nothing lies behind the last segment")
	require.EqualValues(t, len(file), f.Size())
}

// TestLayout: alignment around the limits, and the record at the end.
func TestLayout(t *testing.T) {
	var all []ir.Data
	for i, size := range []int64{1, 127, 128, 129, 64<<10 - 1, 64 << 10, 64<<10 + 1, 3, 200 << 10, 0, 5, 64 << 10} {
		all = append(all, data{fmt.Sprint(i), []int64{size},
			func(p []byte, off int64) (int, error) { return pattern(p, off+int64(i)*999) }})
	}
	path, file := write(t, codegen.File{Module: module(t, all...),
		Extra: []codegen.NamedBytes{{Key: "metadata.a", Bytes: []byte("A")}, {Key: "metadata.empty"},
			{Key: "metadata.b", Bytes: make([]byte, 70000)}},
		Record: &codegen.Record{Key: "etc.build", Bytes: []byte("[??]"),
			Fields: []codegen.Field{{Offset: 1, Size: 2,
				Make: func(context.Context) ([]byte, error) { return []byte("at"), nil }}}}})
	p := open(t, path)
	requireLayout(t, p.File, file)
	require.True(t, strings.HasSuffix(string(file), "[at]"), "the record comes last")
	names := []string{}
	for _, n := range p.File.NamedData() {
		names = append(names, n.Key)
	}
	require.Equal(t, "metadata.a metadata.empty metadata.b etc.build", strings.Join(names[len(all):], " "))
	for i, d := range all {
		got, ok := p.File.Lookup(fmt.Sprintf("c%d", i))
		require.True(t, ok)
		want, err := ir.ReadData(d)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	}
}

// TestLayoutOfCheckpoints: the same for real models, with tied and quantized weights.
func TestLayoutOfCheckpoints(t *testing.T) {
	for _, name := range checkpoints {
		c := openCheckpoint(t, name)
		for _, recipe := range []passes.Recipe{{}, passes.DefaultRecipe(minMax(4, 64), minMax(8, 64))} {
			path, file := write(t, codegen.File{Module: compile(t, c, loaders.Options{},
				passes.Options{Recipe: recipe})})
			p := open(t, path)
			requireLayout(t, p.File, file)
		}
	}
}

// TestEqualWeightsAreStoredOnce: by provenance, whatever they are called and however they are shaped.
func TestEqualWeightsAreStoredOnce(t *testing.T) {
	w := data{"w", []int64{100 << 10}, pattern}
	other := data{"other", []int64{100 << 10}, pattern} // the same bytes of another source
	m := module(t, w, ir.Reshape(w, 10, 10<<10), other, ir.Rows(ir.Reshape(w, 10, 10<<10), 0, 10),
		ir.Float32s(nil, 1), ir.Float32s(nil, 1), ir.Float32s([]int64{1}, 1), ir.Float32s(nil, 2))
	path, file := write(t, codegen.File{Module: m})
	p := open(t, path)
	requireLayout(t, p.File, file)
	segment := func(i int) int { return segmentOf(t, p.File, fmt.Sprintf("c%d", i)) }
	require.Equal(t, segment(0), segment(1))
	require.Equal(t, segment(4), segment(5), "constants in memory are the same by their content")
	apart := []int{segment(0), segment(2), segment(4), segment(7)}
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(apart))), 4)
	require.Less(t, len(file), 400<<10)
	requireSameConstants(t, m, lifted(t, p, "forward"))

	// A tied lm_head is the embedding itself: no large weight of a real model stands twice.
	dense := compile(t, openCheckpoint(t, "gemma4-chat"), loaders.Options{}, passes.Options{})
	seen := map[string]bool{}
	for _, c := range dense.Constants {
		if ir.DataSize(c.Data) > 1<<10 {
			require.False(t, seen[c.Data.Provenance()], c.Name)
			seen[c.Data.Provenance()] = true
		}
	}
}

// TestOffsetsAreKnownFirst: the plan of a file reads no weight.
func TestOffsetsAreKnownFirst(t *testing.T) {
	m := module(t, data{"w", []int64{1 << 20, 1 << 20}, func([]byte, int64) (int, error) {
		require.Fail(t, "a weight is read")
		return 0, nil
	}})
	l, err := codegen.Plan(codegen.File{Module: m})
	require.NoError(t, err)
	require.Greater(t, l.Size, int64(1<<40))
}
