package gguf_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/gguf"
	"github.com/etc-ml/etc/loaders/inputtest"
)

func open(t *testing.T, p []byte) *gguf.Model {
	t.Helper()
	m, err := gguf.New("x.gguf", bytes.NewReader(p), int64(len(p)))
	require.NoError(t, err)
	return m
}

func floats(t *testing.T, d ir.Data) []float32 {
	t.Helper()
	p, err := ir.ReadData(d)
	require.NoError(t, err)
	out := make([]float32, ir.Elements(d.Shape()))
	switch d.DType() {
	case ir.BF16:
		numeric.BF16SliceToF32(out, p)
	case ir.F16:
		numeric.F16SliceToF32(out, p)
	default:
		require.Equal(t, ir.F32, d.DType())
		numeric.F32SliceFromBytes(out, p)
	}
	return out
}

// values are numbers of several sizes and signs, those of a group alike.
func values(rows, cols int) []float32 {
	out := make([]float32, rows*cols)
	state := uint32(7)
	for i := range out {
		state = state*1664525 + 1013904223
		out[i] = (float32(state>>8)/(1<<24) - 0.4) * float32(1+i/32%5) / 8
	}
	return out
}

// TestTypes reads matrices of every type: near to what was written, by the step of the type, and the same numbers in
// MLX's form where that is exact.
func TestTypes(t *testing.T) {
	const rows, cols = 3, 512
	want := values(rows, cols)
	tests := []struct {
		kind  string
		error float64 // largest
		exact bool
		bits  int
	}{
		{"F32", 0, false, 0}, {"F16", 3e-4, false, 0}, {"BF16", 3e-3, false, 0},
		{"Q8_0", 2e-3, true, 8}, {"Q4_0", 4e-2, true, 4}, {"Q4_1", 3e-2, true, 4}, {"Q4_K", 3e-2, true, 4},
		{"Q5_K", 2e-2, false, 0}, {"Q6_K", 1e-2, false, 0},
		{"MXFP4", 1e-1, true, 4},
	}
	for _, test := range tests {
		t.Run(test.kind, func(t *testing.T) {
			g, e := &inputtest.GGUF{}, inputtest.Encodings[test.kind]
			g.Tensor("before", 0, []int{5}, make([]byte, 20))
			g.Tensor("w", e.Number, []int{rows, cols}, e.Encode(want))
			x, ok := open(t, g.Bytes()).Tensor("w")
			require.True(t, ok)
			require.Equal(t, []int64{rows, cols}, x.Shape)
			require.Equal(t, test.kind, x.Type.String())
			got := floats(t, x.Floats())
			worst := 0.0
			for i, v := range got {
				worst = math.Max(worst, math.Abs(float64(v-want[i])))
			}
			require.LessOrEqual(t, worst, test.error)
			require.Equal(t, test.exact, x.Exact())
			pieces(t, x.Floats())
			if !test.exact {
				return
			}
			q := x.Carried()
			require.Equal(t, []int{test.bits, 32}, []int{q.Bits, q.Group})
			require.Equal(t, got, dequantized(t, q))
			for _, d := range []ir.Data{q.Packed, q.Scales, q.Biases} {
				if d != nil {
					pieces(t, d)
				}
			}
			require.Equal(t, test.kind != "Q4_K", x.Tensor("w", false).Quantized != nil)
			require.NotNil(t, x.Tensor("w", true).Quantized)
		})
	}
}

// dequantized computes scale·code + bias in float32, or scale times what a code of mxfp4 stands for.
func dequantized(t *testing.T, q *builder.Quantized) []float32 {
	t.Helper()
	packed, err := ir.ReadData(q.Packed)
	require.NoError(t, err)
	if q.Mode == ir.MXFP4 {
		exponents, err := ir.ReadData(q.Scales)
		require.NoError(t, err)
		out := make([]float32, 2*len(packed))
		for i := range out {
			level := [8]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[packed[i/2]>>(i%2*4)&7]
			out[i] = float32(math.Ldexp(level, int(exponents[i/32])-127))
			if packed[i/2]>>(i%2*4)&8 != 0 {
				out[i] = -out[i]
			}
		}
		return out
	}
	scales, biases := floats(t, q.Scales), floats(t, q.Biases)
	out := make([]float32, len(scales)*q.Group)
	for i := range out {
		word := binary.LittleEndian.Uint32(packed[i*q.Bits/32*4:])
		code := word >> (i * q.Bits % 32) & (1<<q.Bits - 1)
		out[i] = float32(scales[i/q.Group]*float32(code)) + biases[i/q.Group]
	}
	return out
}

// pieces reads data in pieces that do not begin where blocks do.
func pieces(t *testing.T, d ir.Data) {
	t.Helper()
	whole, err := ir.ReadData(d)
	require.NoError(t, err)
	for off := 0; off < len(whole); off += 37 {
		p := make([]byte, 101)
		n, err := d.ReadAt(p, int64(off))
		require.Equal(t, min(101, len(whole)-off), n)
		if n < 101 {
			require.ErrorIs(t, err, io.EOF)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, whole[off:off+n], p[:n])
	}
	_, err = d.ReadAt(make([]byte, 1), int64(len(whole)))
	require.ErrorIs(t, err, io.EOF)
}

// small is a file with one of everything.
func small() *inputtest.GGUF {
	g := &inputtest.GGUF{}
	g.Key("general.architecture", "x")
	g.Key("a.int", 7)
	g.Key("a.float", 0.5)
	g.Key("a.bool", true)
	g.Key("a.bools", []bool{true, false})
	g.Key("a.ints", []int{3, -1})
	g.Key("a.texts", []string{"p", "", "q"})
	g.Tensor("one", 0, []int{2, 3}, make([]byte, 24))
	g.Tensor("two", 8, []int{32}, make([]byte, 34))
	return g
}

func TestMetadata(t *testing.T) {
	m := open(t, small().Bytes())
	k := m.Keys()
	require.Equal(t, 7, k.Int("a.int", 1))
	require.Equal(t, 7, k.IntOr("a.int", 1))
	require.Equal(t, 1, k.IntOr("none", 1))
	require.Equal(t, 0.5, k.Float("a.float"))
	require.True(t, k.Bool("a.bool"))
	require.Equal(t, []bool{true, false}, k.Bools("a.bools"))
	require.Equal(t, []bool{true, true}, k.Bools("a.ints"))
	require.Equal(t, []int64{3, -1}, k.Ints("a.ints", 2))
	require.Equal(t, []int64{7, 7, 7}, k.Ints("a.int", 3))
	require.Equal(t, []string{"p", "", "q"}, k.Texts("a.texts"))
	require.NoError(t, k.Err())
	require.Equal(t, "layers.12.q.weight", first(gguf.Names{"blk.q.weight": "layers.q.weight"}.Find("blk.12.q.weight")))
	require.Equal(t, "blk.012.q.weight", first(gguf.Names{"blk.q.weight": "layers.q.weight"}.Find("blk.012.q.weight")))

	k.Int("a.texts", 1)
	k.Int("a.int", 8)
	k.Float("none")
	k.Ints("a.ints", 3)
	k.Text("a.bool")
	require.EqualError(t, k.Err(), "x.gguf: metadata a.texts: expected an integer from 1 on, found [p  q]"+
		"\nx.gguf: metadata a.int: expected an integer from 8 on, found 7"+
		"\nx.gguf: metadata none: expected a number > 0, found no such key"+
		"\nx.gguf: metadata a.ints: expected 3 integers, found 2"+
		"\nx.gguf: metadata a.bool: expected a string, found true")
}

func first[A, B any](a A, _ B) A { return a }

// TestRefused: every defect is named with its place.
func TestRefused(t *testing.T) {
	good := small().Bytes()
	with := func(change func(p []byte) []byte) []byte { return change(bytes.Clone(good)) }
	at := func(offset int, value byte) []byte {
		return with(func(p []byte) []byte { p[offset] = value; return p })
	}
	tensor := func(kind uint32, shape []int, size int) []byte {
		g := &inputtest.GGUF{}
		g.Tensor("w", kind, shape, make([]byte, size))
		return g.Bytes()
	}
	alignment := &inputtest.GGUF{}
	alignment.Key("general.alignment", 48)
	twice := &inputtest.GGUF{}
	twice.Key("a", 1)
	twice.Key("a", 1)
	same := &inputtest.GGUF{}
	same.Tensor("w", 0, []int{1}, make([]byte, 4))
	same.Tensor("w", 0, []int{1}, make([]byte, 4))
	tests := []struct {
		name string
		file []byte
		err  string
	}{
		{"empty", nil, "x.gguf: the header at byte 0: expected 4 elements of 1 bytes and more, found 0 bytes up to the end of the file"},
		{"other file", at(0, 'X'), `expected "GGUF" in the first four bytes, found "XGUF"`},
		{"version 1", at(4, 1), "expected version 2 or 3, found version 1"},
		{"version 4", at(4, 4), "expected version 2 or 3, found 4"},
		{"big-endian", with(func(p []byte) []byte { copy(p[4:], []byte{0, 0, 0, 3}); return p }),
			"little-endian order, found a big-endian file"},
		{"tensors", at(15, 0x7f), "elements of 24 bytes and more"},
		{"pairs", at(23, 0x7f), "elements of 13 bytes and more"},
		{"key", at(31, 0x10), "expected a string of at most 1024 bytes"},
		{"cut in the metadata", good[:60], "up to the end of the file"},
		{"cut in the data", good[:len(good)-1],
			"x.gguf: tensor two: expected 34 bytes at offset 32 of the data, found data of 65 bytes; the file is truncated"},
		{"alignment", alignment.Bytes(), "x.gguf: general.alignment: expected a power of two, found 48"},
		{"key twice", twice.Bytes(), "x.gguf: metadata a at byte 50: expected each key once, found it a second time"},
		{"tensor twice", same.Bytes(), "expected each tensor once, found it a second time"},
		{"type", tensor(2+100, []int{32}, 18),
			"expected a tensor of type F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K, Q5_K, Q6_K or MXFP4, found type 102; requantize"},
		{"named type", tensor(20, []int{32}, 18), "found IQ4_NL"},
		{"part of a block", tensor(2, []int{2, 48}, 54),
			"expected rows of whole Q4_0 blocks of 32 elements, found rows of 48"},
		{"dims", tensor(0, []int{1, 1, 1, 1, 1}, 4), "x.gguf: tensor w at byte 37: expected 1 to 4 dims, found 5"},
		{"no rows", tensor(0, []int{0}, 0), "expected dims from 1 on, found 0"},
		{"overflow", tensor(0, []int{1 << 31, 1 << 31, 4}, 4), "expected a tensor of less than 2^60 elements"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := gguf.New("x.gguf", bytes.NewReader(test.file), int64(len(test.file)))
			require.ErrorContains(t, err, test.err)
		})
	}
}

func TestShards(t *testing.T) {
	shard := func(no, count int, names ...string) []byte {
		g := &inputtest.GGUF{}
		g.Key("split.no", no)
		g.Key("split.count", count)
		g.Key("split.tensors.count", 3)
		for _, n := range names {
			g.Tensor(n, 0, []int{1}, make([]byte, 4))
		}
		return g.Bytes()
	}
	tests := []struct {
		name   string
		shards map[string][]byte
		open   string
		err    string
	}{
		{"whole", map[string][]byte{"m-00001-of-00002.gguf": shard(0, 2, "a", "b"),
			"m-00002-of-00002.gguf": shard(1, 2, "c")}, "m-00001-of-00002.gguf", ""},
		{"second", map[string][]byte{"m-00002-of-00002.gguf": shard(1, 2, "c")}, "m-00002-of-00002.gguf",
			"split.no: expected 0: the first shard, which names the model, found 1"},
		{"renamed", map[string][]byte{"m.gguf": shard(0, 2, "a")}, "m.gguf",
			"expected the file name NAME-00001-of-00002.gguf, by which the other shards are found, found m.gguf"},
		{"missing", map[string][]byte{"m-00001-of-00002.gguf": shard(0, 2, "a")}, "m-00001-of-00002.gguf",
			"expected 2 shards, m-00002-of-00002.gguf among them, found no such file"},
		{"other", map[string][]byte{"m-00001-of-00002.gguf": shard(0, 2, "a"),
			"m-00002-of-00002.gguf": shard(0, 2, "c")}, "m-00001-of-00002.gguf", "split.no: expected 1, found 0"},
		{"twice", map[string][]byte{"m-00001-of-00002.gguf": shard(0, 2, "a"),
			"m-00002-of-00002.gguf": shard(1, 2, "a")}, "m-00001-of-00002.gguf",
			"tensor a: expected each tensor in one shard, found it in m-00001-of-00002.gguf too"},
		{"too few", map[string][]byte{"m-00001-of-00002.gguf": shard(0, 2, "a"),
			"m-00002-of-00002.gguf": shard(1, 2, "c")}, "m-00001-of-00002.gguf",
			"expected 3 tensors in all shards, found 2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, p := range test.shards {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), p, 0o666))
			}
			m, err := gguf.Open(filepath.Join(dir, test.open))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Len(t, m.Tensors(), 3)
			require.NoError(t, m.Close())
		})
	}
}

// TestOverlap: a tensor may not begin inside of another.
func TestOverlap(t *testing.T) {
	p := small().Bytes()
	at := bytes.Index(p, []byte("two")) + 3 + 4 + 8 + 4 // dims, a dim, the type
	p[at] = 0
	_, err := gguf.New("x.gguf", bytes.NewReader(p), int64(len(p)))
	require.EqualError(t, err, "x.gguf: tensor two: expected an offset from 24 on, where the tensor before ends, found 0")
	p[at] = 40
	_, err = gguf.New("x.gguf", bytes.NewReader(p), int64(len(p)))
	require.EqualError(t, err, "x.gguf: tensor two: expected an offset that is a multiple of the alignment 32, found 40")
}

// FuzzModel: no file makes a panic, and what is read stays within the file.
func FuzzModel(f *testing.F) {
	f.Add(small().Bytes())
	for _, e := range inputtest.Encodings {
		g := &inputtest.GGUF{}
		g.Key("tokenizer.ggml.model", "gemma4")
		g.Key("tokenizer.ggml.tokens", []string{"a", "b", "ab"})
		g.Key("tokenizer.ggml.token_type", []int{1, 3, 1})
		g.Key("tokenizer.ggml.merges", []string{"a b"})
		g.Key("tokenizer.ggml.bos_token_id", 1)
		g.Tensor("w", e.Number, []int{1, 256}, e.Encode(values(1, 256)))
		f.Add(g.Bytes())
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		m, err := gguf.New("x.gguf", bytes.NewReader(p), int64(len(p)))
		if err != nil {
			return
		}
		m.Text() //nolint:errcheck // only that it ends
		total := int64(0)
		for _, x := range m.Tensors() {
			total += x.Size()
			if x.Size() > 1<<16 {
				continue
			}
			if _, err := ir.ReadData(x.Floats()); err != nil {
				t.Fatal(err)
			}
			if x.Exact() {
				if _, err := ir.ReadData(x.Carried().Packed); err != nil {
					t.Fatal(err)
				}
			}
		}
		if total > int64(len(p)) {
			t.Fatalf("tensors of %d bytes in a file of %d", total, len(p))
		}
	})
}
