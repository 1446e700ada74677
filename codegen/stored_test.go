package codegen_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/runtime/container"
)

// withHashes appends the hashes of all that a file stores to its record.
func withHashes(f codegen.File) codegen.File {
	for _, key := range append(codegen.StoredKeys(f), codegen.StoredProgram) {
		at := len(f.Record.Bytes)
		f.Record.Bytes = append(f.Record.Bytes, strings.Repeat("?", 64)...)
		f.Record.Fields = append(f.Record.Fields, codegen.Field{Offset: at, Size: 64, Of: key})
	}
	return f
}

// requireHashes computes the hashes of a record again, from the file.
func requireHashes(t *testing.T, f codegen.File, path string) {
	t.Helper()
	c, err := container.Open(path)
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // only read
	record, ok := c.Lookup(f.Record.Key)
	require.True(t, ok)
	named, checked := map[string]bool{}, 0
	for _, field := range f.Record.Fields {
		if field.Of == "" {
			continue
		}
		stored, ok := c.Lookup(field.Of)
		if field.Of == codegen.StoredProgram {
			whole, err := os.ReadFile(path)
			require.NoError(t, err)
			stored = slices.Concat(whole[:c.Header().ProgramSize], c.SegmentBytes(1))
		} else {
			require.True(t, ok, field.Of)
		}
		sum := sha256.Sum256(stored)
		require.Equal(t, hex.EncodeToString(sum[:]), string(record[field.Offset:field.Offset+field.Size]), field.Of)
		named[field.Of] = true
		checked++
	}
	require.Equal(t, len(named), checked, "each once")
	require.Greater(t, checked, 4)
}

// TestStoredHashes: whoever writes a file, its record has the hashes of what it stores: several workers, parts.
func TestStoredHashes(t *testing.T) {
	defer codegen.SetSizes(1000, 5000)()
	for _, jobs := range []int{1, 4} {
		f := manyWeights(t)
		f.Jobs = jobs
		path, _ := write(t, f)
		requireHashes(t, f, path)
	}
	path := filepath.Join(t.TempDir(), "model.pte")
	parts := writeParts(t, func() codegen.File { return manyWeights(t) }, 4)
	require.NoError(t, codegen.Link(t.Context(), path, parts, 2, outfile.Options{}))
	requireHashes(t, manyWeights(t), path)
}

// TestStoredHashesOfWhatWasThere: hashes are of bytes that an interrupted export has written, too.
func TestStoredHashesOfWhatWasThere(t *testing.T) {
	defer codegen.SetSizes(100, 1000)()
	for _, events := range []int64{30, 100, 165} {
		path := filepath.Join(t.TempDir(), "model.pte")
		_, _, err := interrupt(t, path, true, events)
		require.Error(t, err)
		f := manyTasks(t, func() {})
		f.Resume = true
		require.NoError(t, codegen.Write(t.Context(), path, f))
		requireHashes(t, f, path)
	}
}

// TestStoredRefused: a hash of what the file does not store, or that has no room.
func TestStoredRefused(t *testing.T) {
	refused := func(f codegen.File, want string) {
		t.Helper()
		require.ErrorContains(t, codegen.Write(t.Context(), filepath.Join(t.TempDir(), "m"), f), want)
	}
	f := codegen.File{Module: module(t),
		Record: record(strings.Repeat("?", 64), codegen.Field{Size: 64, Of: "missing"})}
	refused(f, `field 0 is the SHA-256 of "missing", which is no named data of the file`)
	f.Record.Fields[0] = codegen.Field{Size: 64, Of: f.Record.Key}
	refused(f, "which is no named data of the file")
	f.Record.Fields[0] = codegen.Field{Size: 32, Of: codegen.StoredProgram}
	refused(f, "has 32 bytes, want 64")
	f.Extra, f.Record = []codegen.NamedBytes{{Key: codegen.StoredProgram}}, nil
	refused(f, "the name stands for the program")
}

// TestStoredKeys: what is stored once has one key.
func TestStoredKeys(t *testing.T) {
	a := data{"a", []int64{10}, pattern}
	f := codegen.File{Module: module(t, a, data{"b", []int64{10}, pattern}, a)}
	f.Extra = []codegen.NamedBytes{{Key: "metadata.x"}}
	require.Equal(t, []string{"c0", "c1", "metadata.x"}, codegen.StoredKeys(f))
}
