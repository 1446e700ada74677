package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// encode puts the length field in front of a header and data after it.
func encode(header string, data int) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(file, header...)
	for i := range data {
		file = append(file, byte(i))
	}
	return file
}

func open(t *testing.T, content []byte) (*File, error) {
	t.Helper()
	return NewFile("x.safetensors", bytes.NewReader(content), int64(len(content)))
}

func TestHeaderAccepted(t *testing.T) {
	tests := []struct {
		name, header string
		data         int
		tensors      []string // in file order
		metadata     map[string]string
	}{
		{name: "empty", header: `{}`},
		{name: "empty, padded", header: `{}      `},
		{name: "metadata null", header: `{"__metadata__":null,"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}`,
			data: 3, tensors: []string{"a"}},
		{name: "metadata", header: `{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"__metadata__":{"format":"pt"}}`, data: 3,
			tensors: []string{"a"}, metadata: map[string]string{"format": "pt"}},
		{name: "metadata empty", header: `{"__metadata__":{}}`, metadata: map[string]string{}},
		{name: "any order of tensors and keys",
			header: `{"b":{"shape":[2],"data_offsets":[4,8],"dtype":"I16"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`,
			data:   8, tensors: []string{"a", "b"}},
		{name: "scalar", header: `{"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}}`, data: 8,
			tensors: []string{"a"}},
		{name: "empty tensors share a position", data: 2, tensors: []string{"y", "z", "a", "w"},
			header: `{"z":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},"y":{"dtype":"F32","shape":[7,0],"data_offsets":[0,0]},"w":{"dtype":"U8","shape":[0,9223372036854775807,9],"data_offsets":[2,2]}}`},
		{name: "sub-byte", header: `{"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]},"b":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[3,6]}}`, data: 6, tensors: []string{"a", "b"}},
		{name: "escapes in a name", header: `{"a\u00e9\n":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}`, data: 1,
			tensors: []string{"aé\n"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file, err := open(t, encode(test.header, test.data))
			require.NoError(t, err)
			require.Equal(t, test.metadata, file.Metadata())
			var names []string
			position := int64(8 + len(test.header))
			for _, tensor := range file.Tensors() {
				names = append(names, tensor.Name)
				require.Equal(t, position, tensor.Offset())
				position += tensor.Size()
				found, ok := file.Tensor(tensor.Name)
				require.True(t, ok)
				require.Same(t, tensor, found)
			}
			require.Equal(t, test.tensors, names)
		})
	}
}

func TestHeaderRefused(t *testing.T) {
	const a = `"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`
	entry := func(fields string) []byte { return encode(`{"a":{`+fields+`}}`, 4) }
	tests := []struct {
		name    string
		content []byte
		message string // of the error, after the file's name
	}{
		{"no length", []byte{1, 2, 3}, `expected at least 8 bytes, the header's length, found 3 bytes`},
		{"header over the limit", binary.LittleEndian.AppendUint64(nil, MaxHeaderBytes+1),
			`expected a header of at most 100000000 bytes, found the length 100000001`},
		{"length of all ones", bytes.Repeat([]byte{0xff}, 64),
			`expected a header of at most 100000000 bytes, found the length 18446744073709551615`},
		{"truncated header", encode(`{}      `, 0)[:12],
			`expected a header of 8 bytes after the length field, found 4 bytes; the file is truncated`},
		{"LFS pointer", []byte("version https://git-lfs.github.com/spec/v1\n"),
			`found what looks like a Git LFS pointer`},
		{"no header", encode(``, 0), `expected a header that begins with {, found ""`},
		{"leading space", encode(` {}`, 0), `expected a header that begins with {, found " {}"`},
		{"array", encode(`[]`, 0), `expected a header that begins with {, found "[]"`},
		{"not UTF-8", encode("{\"a\xff\":{}}", 0), `expected a header in UTF-8`},
		{"unclosed", encode(`{`+a, 4), `expected JSON, found the end of the text`},
		{"syntax", encode(`{`+a+`,}`, 4), `expected JSON, found `},
		{"missing comma", encode(`{"a":{"dtype":"U8" "shape":[4],"data_offsets":[0,4]}}`, 4),
			`tensor "a": expected JSON, found `},
		{"text after it", encode(`{`+a+`}{}`, 4), `expected nothing but spaces after the header, found an object`},
		{"bad text after it", encode(`{`+a+`}x`, 4),
			`expected nothing but spaces after the header, found invalid character`},
		{"tensor twice", encode(`{`+a+`,`+a+`}`, 4), `expected each key of the header once, found "a" twice`},
		{"tensor twice, escaped", encode(`{`+a+`,"\u0061":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4),
			`expected each key of the header once, found "a" twice`},
		{"metadata twice", encode(`{"__metadata__":null,"__metadata__":{}}`, 0),
			`expected each key of the header once, found "__metadata__" twice`},
		{"metadata key twice", encode(`{"__metadata__":{"k":"1","k":"2"}}`, 0),
			`expected each key of __metadata__ once, found "k" twice`},
		{"metadata number", encode(`{"__metadata__":{"k":1}}`, 0),
			`expected a string for key "k" of __metadata__, found 1`},
		{"metadata array", encode(`{"__metadata__":[]}`, 0),
			`expected __metadata__ to be null or an object of strings, found an array`},
		{"entry is no object", encode(`{"a":true}`, 0), `tensor "a": expected its entry to be an object, found true`},
		{"unknown key", entry(`"dtype":"U8","shape":[4],"data_offsets":[0,4],"strides":[1]`),
			`tensor "a": expected the keys dtype, shape and data_offsets, found "strides"`},
		{"key twice", entry(`"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]`),
			`tensor "a": expected each key of its entry once, found "dtype" twice`},
		{"no dtype", entry(`"shape":[4],"data_offsets":[0,4]`), `tensor "a": expected the key dtype, found none`},
		{"no shape", entry(`"dtype":"U8","data_offsets":[0,4]`), `tensor "a": expected the key shape, found none`},
		{"no offsets", entry(`"dtype":"U8","shape":[4]`), `tensor "a": expected the key data_offsets, found none`},
		{"unknown dtype", entry(`"dtype":"bf16","shape":[2],"data_offsets":[0,4]`),
			`tensor "a": expected dtype to be one of BF16, BOOL, C64, F16, F32, F4, `},
		{"dtype null", entry(`"dtype":null,"shape":[4],"data_offsets":[0,4]`), `, found null`},
		{"shape null", entry(`"dtype":"U8","shape":null,"data_offsets":[0,4]`),
			`tensor "a": expected shape to be an array of at most 64 integers ≥ 0 of at most 63 bits, found null`},
		{"negative dim", entry(`"dtype":"U8","shape":[-4],"data_offsets":[0,4]`), `, found -4`},
		{"fraction", entry(`"dtype":"U8","shape":[4.0],"data_offsets":[0,4]`), `, found 4.0`},
		{"exponent", entry(`"dtype":"U8","shape":[4e0],"data_offsets":[0,4]`), `, found 4e0`},
		{"dim as text", entry(`"dtype":"U8","shape":["4"],"data_offsets":[0,4]`), `, found "4"`},
		{"dim over 63 bits", entry(`"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4]`),
			`, found 9223372036854775808`},
		{"nested dims", entry(`"dtype":"U8","shape":[[4]],"data_offsets":[0,4]`), `, found an array`},
		{"too many dims", entry(`"dtype":"U8","shape":[4` + strings.Repeat(",1", 64) + `],"data_offsets":[0,4]`),
			`, found more of them`},
		{"elements overflow", entry(`"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]`),
			`which overflows 64 bits`},
		{"bits overflow", entry(`"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]`),
			`which overflows 64 bits`},
		{"half a byte", entry(`"dtype":"F4","shape":[7],"data_offsets":[0,4]`),
			`tensor "a": expected a whole number of bytes, found the shape [7] of 4-bit F4 elements, 28 bits`},
		{"one offset", entry(`"dtype":"U8","shape":[4],"data_offsets":[4]`),
			`tensor "a": expected data_offsets to be [begin, end], found 1 numbers`},
		{"three offsets", entry(`"dtype":"U8","shape":[4],"data_offsets":[0,4,4]`),
			`tensor "a": expected data_offsets to be an array of at most 2 integers`},
		{"offsets backwards", entry(`"dtype":"U8","shape":[4],"data_offsets":[4,0]`),
			`tensor "a": expected data_offsets within the 4 bytes of data, begin ≤ end, found [4, 0]`},
		{"past the end", entry(`"dtype":"U8","shape":[5],"data_offsets":[0,5]`),
			`tensor "a": expected data_offsets within the 4 bytes of data, begin ≤ end, found [0, 5]`},
		{"offsets near 2⁶³", entry(`"dtype":"U8","shape":[4],"data_offsets":[9223372036854775803,9223372036854775807]`),
			`within the 4 bytes of data`},
		{"size of another dtype", entry(`"dtype":"F16","shape":[4],"data_offsets":[0,4]`),
			`tensor "a": expected 8 bytes for F16 [4], found data_offsets [0, 4], 4 bytes`},
		{"gap at the start", entry(`"dtype":"U8","shape":[3],"data_offsets":[1,4]`),
			`tensor "a": expected data_offsets from 0 on, the start of the data, found [1, 4], a gap of 1 bytes`},
		{"rest at the end", entry(`"dtype":"U8","shape":[3],"data_offsets":[0,3]`),
			`expected the file to end at byte 64, the end of tensor "a", found 1 more bytes`},
		{"data without tensors", encode(`{}`, 4),
			`expected the file to end at byte 10, the start of the data, found 4 more bytes`},
		{"gap", encode(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`, 4),
			`tensor "b": expected data_offsets from 1 on, the end of tensor "a", found [2, 4], a gap of 1 bytes`},
		{"overlap", encode(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`, 4),
			`tensor "b": expected data_offsets from 3 on, the end of tensor "a", found [2, 4], an overlap`},
		{"same bytes twice", encode(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4),
			`tensor "b": expected data_offsets from 4 on, the end of tensor "a", found [0, 4], an overlap`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := open(t, test.content)
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.Contains(t, err.Error(), test.message)
			require.True(t, strings.HasPrefix(err.Error(), "x.safetensors: "), err)
		})
	}
}

// TestLongNamesAreClipped keeps a message short whatever the file says.
func TestLongNamesAreClipped(t *testing.T) {
	name := strings.Repeat("n", 1<<16)
	_, err := open(t, encode(`{"`+name+`":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"`+name+`":0}`, 1))
	require.ErrorContains(t, err, "twice")
	require.Less(t, len(err.Error()), 1000)
}

func TestReadAt(t *testing.T) {
	header := `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}}`
	file, err := open(t, encode(header, 7))
	require.NoError(t, err)
	b, ok := file.Tensor("b")
	require.True(t, ok)
	tests := []struct {
		offset int64
		length int
		want   []byte
		err    error
	}{
		{0, 3, []byte{4, 5, 6}, nil},
		{1, 2, []byte{5, 6}, nil},
		{1, 9, []byte{5, 6}, io.EOF},
		{3, 1, []byte{}, io.EOF},
		{9, 1, []byte{}, io.EOF},
		{0, 0, []byte{}, nil},
	}
	for _, test := range tests {
		p := make([]byte, test.length)
		n, err := b.ReadAt(p, test.offset)
		require.Equal(t, test.err, err, "%+v", test)
		require.Equal(t, test.want, p[:n], "%+v", test)
	}
	_, err = b.ReadAt(make([]byte, 1), -1)
	require.ErrorContains(t, err, `tensor "b": expected an offset ≥ 0, found -1`)

	all, err := io.ReadAll(b.Reader())
	require.NoError(t, err)
	require.Equal(t, []byte{4, 5, 6}, all)
}

// TestReadAtOfAFileThatShrank: a tensor whose file was cut after Open is an error, never zeros or a clean end.
func TestReadAtOfAFileThatShrank(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	header := `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`
	require.NoError(t, os.WriteFile(path, encode(header, 4), 0o666))
	file, err := Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	require.NoError(t, os.Truncate(path, int64(8+len(header)+1)))
	tensor, _ := file.Tensor("a")
	n, err := tensor.ReadAt(make([]byte, 4), 0)
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, path+`: tensor "a" at byte 1`)
}

func TestOpenErrors(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "none.safetensors"))
	require.ErrorIs(t, err, fs.ErrNotExist)

	dir := t.TempDir()
	_, err = Open(dir)
	var format *FormatError
	require.ErrorAs(t, err, &format)
	require.ErrorContains(t, err, dir+": expected a regular file")
}

// failing is a source whose reads fail from the given position on.
type failing struct {
	content []byte
	from    int64
}

var errDisk = errors.New("disk on fire")

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from {
		return 0, errDisk
	}
	return copy(p, f.content[off:]), nil
}

func TestReadErrorsAreNoFormatErrors(t *testing.T) {
	content := encode(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)
	for _, from := range []int64{4, 20, int64(len(content)) - 2} {
		file, err := NewFile("x", failing{content, from}, int64(len(content)))
		if from > 20 {
			require.NoError(t, err)
			_, err = io.ReadAll(file.Tensors()[0].Reader())
		}
		require.ErrorIs(t, err, errDisk)
		var format *FormatError
		require.False(t, errors.As(err, &format))
	}
}

// FuzzHeader: whatever the header, opening either gives an error or tensors that cover the data exactly.
func FuzzHeader(f *testing.F) {
	reference, err := os.ReadFile(filepath.Join("testdata", "reference_header.bin"))
	require.NoError(f, err)
	f.Add(reference[8:], 1<<16)
	f.Add([]byte(`{"__metadata__":null,"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"b":{"dtype":"F4","shape":[2],"data_offsets":[8,9]}}  `), 9)
	f.Add([]byte(`{"__metadata__":{"k":"v"},"z":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`), 0)
	f.Add([]byte(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`), 0)
	f.Fuzz(func(t *testing.T, header []byte, dataSize int) {
		if dataSize < 0 || dataSize > 1<<20 {
			return
		}
		content := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		content = append(append(content, header...), make([]byte, dataSize)...)
		file, err := NewFile("fuzz", bytes.NewReader(content), int64(len(content)))
		if err != nil {
			var format *FormatError
			require.ErrorAs(t, err, &format)
			return
		}
		position := int64(8 + len(header))
		for _, tensor := range file.Tensors() {
			require.Equal(t, position, tensor.Offset())
			require.Equal(t, tensor.Elements()*int64(tensor.DType.Bits()), 8*tensor.Size())
			position += tensor.Size()
			data, err := io.ReadAll(tensor.Reader())
			require.NoError(t, err)
			require.Len(t, data, int(tensor.Size()))
		}
		require.Equal(t, int64(len(content)), position)

		// What was read can be written, and reads back the same.
		var entries []Entry
		for _, tensor := range file.Tensors() {
			entries = append(entries, Entry{tensor.Name, tensor.DType, tensor.Shape, From(tensor.Reader())})
		}
		var written bytes.Buffer
		require.NoError(t, Write(&written, entries, file.Metadata()))
		again, err := NewFile("again", bytes.NewReader(written.Bytes()), int64(written.Len()))
		require.NoError(t, err)
		require.Equal(t, file.Metadata(), again.Metadata())
		require.Len(t, again.Tensors(), len(file.Tensors()))
	})
}
