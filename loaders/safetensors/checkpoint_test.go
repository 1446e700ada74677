package safetensors

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeDir writes a directory of files, each with one-byte tensors of the given names, valued by their
// position, and texts.
func writeDir(t *testing.T, tensors map[string][]string, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, list := range tensors {
		var entries []Entry
		for i, tensor := range list {
			entries = append(entries, Entry{tensor, U8, []int{1}, Bytes([]byte{byte(i)})})
		}
		require.NoError(t, WriteFile(filepath.Join(dir, name), entries, nil))
	}
	for name, text := range texts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	return dir
}

func names(tensors []*Tensor) []string {
	list := []string{}
	for _, t := range tensors {
		list = append(list, filepath.Base(t.File().Path())+":"+t.Name)
	}
	return list
}

func TestOpenCheckpoint(t *testing.T) {
	shards := map[string][]string{"s1.safetensors": {"b", "d", "x"}, "s2.safetensors": {"a", "c", "b"}}
	index := `{"metadata":{"total_size":4,"nested":[{"a":[1]}]},"weight_map":{"a":"s2.safetensors","b":"s1.safetensors","c":"s2.safetensors","d":"s1.safetensors"}}`
	tests := []struct {
		name              string
		tensors           map[string][]string
		texts             map[string]string
		listed, unlisted  []string
		fileOfA, shardDir string
	}{
		{name: "single", tensors: map[string][]string{SingleFileName: {"b", "a"}},
			listed: []string{"model.safetensors:a", "model.safetensors:b"}, unlisted: []string{},
			fileOfA: SingleFileName},
		{name: "single goes before an index",
			tensors: map[string][]string{SingleFileName: {"a"}, "s1.safetensors": {"b"}},
			texts:   map[string]string{IndexFileName: index},
			listed:  []string{"model.safetensors:a"}, unlisted: []string{}, fileOfA: SingleFileName},
		{name: "only file", tensors: map[string][]string{"weights.safetensors": {"a"}},
			texts:  map[string]string{"config.json": "{}"},
			listed: []string{"weights.safetensors:a"}, unlisted: []string{}, fileOfA: "weights.safetensors"},
		{name: "sharded", tensors: shards, texts: map[string]string{IndexFileName: index}, fileOfA: "s2.safetensors",
			listed:   []string{"s1.safetensors:b", "s1.safetensors:d", "s2.safetensors:a", "s2.safetensors:c"},
			unlisted: []string{"s1.safetensors:x", "s2.safetensors:b"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := writeDir(t, test.tensors, test.texts)
			c, err := OpenCheckpoint(dir)
			require.NoError(t, err)
			require.Equal(t, dir, c.Dir())
			require.Equal(t, test.listed, names(c.Tensors()))
			require.Equal(t, test.unlisted, names(c.Unlisted()))
			a, ok := c.Tensor("a")
			require.True(t, ok)
			require.Equal(t, test.fileOfA, filepath.Base(a.File().Path()))
			_, ok = c.Tensor("x")
			require.False(t, ok)
			_, err = io.ReadAll(a.Reader())
			require.NoError(t, err)
			require.NoError(t, c.Close())
			_, err = io.ReadAll(a.Reader())
			require.ErrorIs(t, err, os.ErrClosed)
		})
	}
}

func TestOpenCheckpointRefuses(t *testing.T) {
	index := func(weightMap string) map[string]string {
		return map[string]string{IndexFileName: `{"weight_map":` + weightMap + `}`}
	}
	shard := map[string][]string{"s1.safetensors": {"a"}}
	tests := []struct {
		name    string
		tensors map[string][]string
		texts   map[string]string
		message string
	}{
		{"empty directory", nil, nil, `expected model.safetensors or model.safetensors.index.json, found no *.safetensors file`},
		{"several files", map[string][]string{"s1.safetensors": {"a"}, "s2.safetensors": {"b"}}, nil,
			`expected model.safetensors.index.json, which says what is in each file, found 2 files without it: s1.safetensors, s2.safetensors`},
		{"broken single file", shard, map[string]string{SingleFileName: "x"},
			SingleFileName + `: expected at least 8 bytes`},
		{"broken shard", nil, map[string]string{IndexFileName: `{"weight_map":{"a":"s1.safetensors"}}`,
			"s1.safetensors": ""}, `s1.safetensors: expected at least 8 bytes`},
		{"missing shard", shard, index(`{"a":"s1.safetensors","b":"s2.safetensors","c":"s2.safetensors"}`),
			`expected shard s2.safetensors, which holds 2 of its tensors, found no such file; the download is incomplete`},
		{"missing tensor", shard, index(`{"a":"s1.safetensors","b":"s1.safetensors"}`),
			`tensor "b": expected it in shard s1.safetensors, found no tensor of that name there`},
		{"tensor twice", shard, index(`{"a":"s1.safetensors","a":"s1.safetensors"}`),
			`expected each key of weight_map once, found "a" twice`},
		{"weight_map twice", shard, map[string]string{IndexFileName: `{"weight_map":{"a":"s1.safetensors"},"weight_map":{}}`}, `expected each key of the index once, found "weight_map" twice`},
		{"no weight_map", shard, map[string]string{IndexFileName: `{"metadata":{}}`},
			`expected a weight_map with the shard of every tensor, found none`},
		{"empty weight_map", shard, index(`{}`), `expected a weight_map with the shard of every tensor, found none`},
		{"weight_map array", shard, index(`[]`), `expected weight_map to be an object, found an array`},
		{"index array", shard, map[string]string{IndexFileName: `[]`},
			`expected the index to be an object, found an array`},
		{"index cut", shard, map[string]string{IndexFileName: `{"metadata":{"a":[`},
			`expected JSON, found the end of the text`},
		{"index not UTF-8", shard, map[string]string{IndexFileName: "{\"\xff\":1}"}, `expected JSON in UTF-8`},
		{"text after the index", shard, map[string]string{IndexFileName: `{"weight_map":{"a":"s1.safetensors"}} 1`},
			`expected nothing but spaces after the index, found 1`},
		{"number", shard, index(`{"a":1}`),
			`tensor "a": expected the name of a *.safetensors file in the index's own directory, found 1`},
		{"parent", shard, index(`{"a":"../s1.safetensors"}`), `found "../s1.safetensors"`},
		{"absolute", shard, index(`{"a":"/tmp/s1.safetensors"}`), `found "/tmp/s1.safetensors"`},
		{"subdirectory", shard, index(`{"a":"x/s1.safetensors"}`), `found "x/s1.safetensors"`},
		{"backslash", shard, index(`{"a":"..\\s1.safetensors"}`), `found "..\\s1.safetensors"`},
		{"drive", shard, index(`{"a":"C:s1.safetensors"}`), `found "C:s1.safetensors"`},
		{"other kind of file", shard, index(`{"a":"config.json"}`), `found "config.json"`},
		{"NUL", shard, index(`{"a":"s1\u0000.safetensors"}`), `found "s1\x00.safetensors"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := writeDir(t, test.tensors, test.texts)
			_, err := OpenCheckpoint(dir)
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.ErrorContains(t, err, test.message)
			require.ErrorContains(t, err, dir)
		})
	}
	_, err := OpenCheckpoint(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzIndex: an index names files of its own directory or is refused.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":1},"weight_map":{"a":"m-00001-of-00002.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../m.safetensors"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), IndexFileName)
		require.NoError(t, os.WriteFile(path, text, 0o666))
		shardOf, err := readIndex(path)
		if err != nil {
			var format *FormatError
			require.ErrorAs(t, err, &format)
			return
		}
		for _, shard := range shardOf {
			require.Equal(t, filepath.Base(shard), shard)
			require.NotContains(t, shard, "\\")
		}
	})
}
