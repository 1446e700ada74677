package safetensors

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteBytes(t *testing.T) {
	one := func(name string, dtype DType, shape []int, data ...byte) Entry {
		return Entry{Name: name, DType: dtype, Shape: shape, Data: Bytes(data)}
	}
	tests := []struct {
		name     string
		entries  []Entry
		metadata map[string]string
		want     string // the file without its length field
	}{
		{"nothing", nil, nil, `{}      `},
		{"metadata only", nil, map[string]string{"framework": "pt"}, `{"__metadata__":{"framework":"pt"}}     `},
		{"metadata sorted", nil, map[string]string{"b": "2", "a": "<\"\\é>"},
			`{"__metadata__":{"a":"<\"\\é>","b":"2"}}       `},
		{"alignment, then name", []Entry{
			one("b", U8, []int{1}, 'b'), one("a", U8, []int{}, 'a'), one("z", F32, []int{1, 1}, 'z', 'z', 'z', 'z'),
			one("e", I64, []int{0, 5}),
		}, nil, `{"e":{"dtype":"I64","shape":[0,5],"data_offsets":[0,0]},"z":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},` +
			`"a":{"dtype":"U8","shape":[],"data_offsets":[4,5]},"b":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}}  zzzzab`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, Write(&out, test.entries, test.metadata))
			require.Equal(t, test.want, string(out.Bytes()[8:]))
			slices.Reverse(test.entries)
			var reversed bytes.Buffer
			require.NoError(t, Write(&reversed, test.entries, test.metadata))
			require.Equal(t, out.Bytes(), reversed.Bytes(), "the order of entries must not matter")
			file, err := NewFile("out", bytes.NewReader(out.Bytes()), int64(out.Len()))
			require.NoError(t, err)
			require.Len(t, file.Tensors(), len(test.entries))
		})
	}
}

// TestWriteAsReference compares with a header that the reference implementation wrote (a shard with F32 and
// BF16 tensors; only length field and header are kept in testdata).
func TestWriteAsReference(t *testing.T) {
	reference, err := os.ReadFile(filepath.Join("testdata", "reference_header.bin"))
	require.NoError(t, err)
	f := &File{path: "reference", byName: map[string]*Tensor{}}
	require.NoError(t, f.parseHeader(reference[8:]))
	var size int64
	var entries []Entry
	for _, tensor := range f.Tensors() {
		size = max(size, tensor.end)
		entries = append(entries, Entry{tensor.Name, tensor.DType, tensor.Shape, Bytes(nil)})
	}
	require.NoError(t, f.checkLayout(int64(len(reference)), size))
	plan, err := planFile(entries, f.Metadata())
	require.NoError(t, err)
	require.Equal(t, string(reference), string(plan.header))
}

func TestWriteRefuses(t *testing.T) {
	byteOf := func(name string) Entry { return Entry{name, U8, []int{1}, Bytes([]byte{1})} }
	tests := []struct {
		name     string
		entries  []Entry
		metadata map[string]string
		message  string
	}{
		{"name twice", []Entry{byteOf("a"), byteOf("a")}, nil, `tensor "a": expected each name once, found it twice`},
		{"metadata's name", []Entry{byteOf("__metadata__")}, nil, `expected a name, found the key of the metadata`},
		{"name not UTF-8", []Entry{byteOf("\xff")}, nil, `expected names and metadata in UTF-8`},
		{"metadata not UTF-8", nil, map[string]string{"k": "\xff"}, `expected names and metadata in UTF-8`},
		{"dtype", []Entry{{"a", "F80", []int{1}, Bytes(nil)}}, nil, `expected a dtype of BF16, BOOL, `},
		{"negative dim", []Entry{{"a", U8, []int{-1}, Bytes(nil)}}, nil, `expected dims ≥ 0, found [-1]`},
		{"rank", []Entry{{"a", U8, make([]int, 65), Bytes(nil)}}, nil, `expected at most 64 dims, found 65`},
		{"overflow", []Entry{{"a", U8, []int{math.MaxInt, 2}, Bytes(nil)}}, nil, `overflows 64 bits`},
		{"half a byte", []Entry{{"a", F4, []int{3}, Bytes(nil)}}, nil, `12 bits`},
		{"no data", []Entry{{"a", U8, []int{1}, nil}}, nil, `expected data, found none`},
		{"too little data", []Entry{{"a", U8, []int{3}, Bytes([]byte{1})}}, nil,
			`tensor "a": expected 3 bytes of data, found 1`},
		{"too much data", []Entry{{"a", U8, []int{1}, Bytes([]byte{1, 2})}}, nil,
			`tensor "a": expected 1 more bytes of data at most, found 2`},
		{"source fails", []Entry{{"a", U8, []int{1}, func(io.Writer) error { return errDisk }}}, nil,
			`tensor "a": disk on fire`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.ErrorContains(t, Write(io.Discard, test.entries, test.metadata), test.message)

			dir := t.TempDir()
			path := filepath.Join(dir, "out.safetensors")
			require.NoError(t, os.WriteFile(path, []byte("before"), 0o666))
			err := WriteFile(path, test.entries, test.metadata)
			require.ErrorContains(t, err, path+": ")
			require.ErrorContains(t, err, test.message)
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, "before", string(content), "the old file must stay")
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, left, 1, "no temporary file may stay")
		})
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.safetensors")
	big := bytes.Repeat([]byte{1, 2, 3, 4}, 1<<19) // more than the buffer
	entries := []Entry{{"big", U32, []int{1 << 19}, From(bytes.NewReader(big))},
		{"small", U8, []int{1}, Bytes([]byte{7})}}
	require.NoError(t, WriteFile(path, entries, map[string]string{"format": "pt"}))
	file, err := Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	tensor, _ := file.Tensor("big")
	got, err := io.ReadAll(tensor.Reader())
	require.NoError(t, err)
	require.Equal(t, big, got)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)

	err = WriteFile(filepath.Join(dir, "none", "out.safetensors"), nil, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// full is a writer that has no room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestWriteError(t *testing.T) {
	big := Entry{"a", U8, []int{1 << 21}, From(io.LimitReader(zeros{}, 1<<21))}
	require.ErrorContains(t, Write(full{}, []Entry{big}, nil), "no space left")
	require.ErrorContains(t, Write(full{}, nil, nil), "no space left")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
