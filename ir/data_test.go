package ir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// source is data with bytes of its own, which the tests can make fail.
type source struct {
	name  string
	dtype DType
	shape []int64
	bytes []byte
	fail  error
}

func newSource(name string, d DType, shape ...int64) *source {
	s := &source{name: name, dtype: d, shape: shape}
	s.bytes = make([]byte, DataSize(s))
	r := rand.NewPCG(uint64(len(s.bytes)), uint64(name[0]))
	for i := range s.bytes {
		s.bytes[i] = byte(r.Uint64())
	}
	return s
}

func (s *source) DType() DType       { return s.dtype }
func (s *source) Shape() []int64     { return s.shape }
func (s *source) Provenance() string { return s.name }
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if s.fail != nil {
		return 0, s.fail
	}
	return bytes.NewReader(s.bytes).ReadAt(p, off)
}

// rows takes rows of the first axis of bytes, the naive way.
func (s *source) rows(start, count int64) []byte {
	row := int64(len(s.bytes)) / s.shape[0]
	return s.bytes[start*row : (start+count)*row]
}

// TestData compares what the combinators make with bytes made at once, read whole and in odd pieces.
func TestData(t *testing.T) {
	a, b, c := newSource("a", BF16, 5, 3, 7), newSource("b", BF16, 2, 3, 7), newSource("c", BF16, 5, 3, 7)
	flip := func(dst, src []byte) {
		for i := range dst {
			dst[i] = ^src[i]
		}
	}
	flipped := func(p []byte) []byte {
		out := slices.Clone(p)
		flip(out, p)
		return out
	}
	widen := func(dst, src []byte) { // bf16 to f32
		for i := range len(src) / 2 {
			copy(dst[4*i:], []byte{0, 0, src[2*i], src[2*i+1]})
		}
	}
	widened := func(p []byte) []byte {
		out := make([]byte, 2*len(p))
		widen(out, p)
		return out
	}
	axis1 := func(s *source, start, count int64) (out []byte) {
		row := int64(len(s.bytes)) / s.shape[0] / s.shape[1]
		for i := range s.shape[0] {
			out = append(out, s.bytes[(i*s.shape[1]+start)*row:(i*s.shape[1]+start+count)*row]...)
		}
		return out
	}
	big := newSource("big", BF16, 70000, 3) // more than one piece of Map
	for _, test := range []struct {
		name       string
		data       Data
		dtype      DType
		shape      []int64
		want       []byte
		provenance string
	}{
		{"source", a, BF16, []int64{5, 3, 7}, a.bytes, "a"},
		{"bytes", Bytes(U8, []int64{3}, []byte{1, 2, 3}), U8, []int64{3}, []byte{1, 2, 3}, "bytes(u8[3],010203)"},
		{"floats", Float32s([]int64{1, 2}, 1, -2), F32, []int64{1, 2}, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0},
			"bytes(f32[1 2],0000803f000000c0)"},
		{"scalar", Float32s(nil, 0), F32, nil, make([]byte, 4), "bytes(f32[],00000000)"},
		{"empty", Bytes(F32, []int64{0, 4}, nil), F32, []int64{0, 4}, nil, "bytes(f32[0 4],)"},
		{"reshape", Reshape(a, 15, 7), BF16, []int64{15, 7}, a.bytes, "a"},
		{"reshape to the same", Reshape(a, 5, 3, 7), BF16, []int64{5, 3, 7}, a.bytes, "a"},
		{"rows", Rows(a, 1, 3), BF16, []int64{3, 3, 7}, a.rows(1, 3), "rows(a,1+3/3,42B)"},
		{"last row", Rows(a, 4, 1), BF16, []int64{1, 3, 7}, a.rows(4, 1), "rows(a,4+1/1,42B)"},
		{"no rows", Rows(a, 2, 0), BF16, []int64{0, 3, 7}, nil, "rows(a,2+0/0,42B)"},
		{"rows of rows", Rows(Rows(a, 1, 3), 1, 2), BF16, []int64{2, 3, 7}, a.rows(2, 2),
			"rows(rows(a,1+3/3,42B),1+2/2,42B)"},
		{"rows of the second axis", Axis1Rows(a, 1, 2), BF16, []int64{5, 2, 7}, axis1(a, 1, 2), "rows(a,1+2/3,14B)"},
		{"all rows of the second axis", Axis1Rows(a, 0, 3), BF16, []int64{5, 3, 7}, a.bytes, "rows(a,0+3/3,14B)"},
		{"concat", Concat(a, b, c), BF16, []int64{12, 3, 7}, slices.Concat(a.bytes, b.bytes, c.bytes), "concat(a,b,c)"},
		{"concat of one", Concat(a), BF16, []int64{5, 3, 7}, a.bytes, "a"},
		{"concat with nothing", Concat(a, Rows(b, 0, 0), c), BF16, []int64{10, 3, 7}, slices.Concat(a.bytes, c.bytes),
			"concat(a,rows(b,0+0/0,42B),c)"},
		{"stack", Stack(a, c), BF16, []int64{2, 5, 3, 7}, slices.Concat(a.bytes, c.bytes), "concat(a,c)"},
		{"stack of one", Stack(a), BF16, []int64{1, 5, 3, 7}, a.bytes, "a"},
		{"map", Map(a, BF16, "flip", flip), BF16, []int64{5, 3, 7}, flipped(a.bytes), "flip(a)"},
		{"map to a wider dtype", Map(big, F32, "f32", widen), F32, []int64{70000, 3}, widened(big.bytes), "f32(big)"},
		{"map of rows of a concat", Map(Rows(Concat(a, c), 4, 3), F32, "f32", widen), F32, []int64{3, 3, 7},
			widened(slices.Concat(a.rows(4, 1), c.rows(0, 2))), "f32(rows(concat(a,c),4+3/3,42B))"},
		{"exact", Exact(a), BF16, []int64{5, 3, 7}, a.bytes, "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.dtype, test.data.DType())
			require.Equal(t, Elements(test.shape), Elements(test.data.Shape()))
			require.Equal(t, len(test.shape), len(test.data.Shape()))
			for i, d := range test.shape {
				require.Equal(t, d, test.data.Shape()[i])
			}
			require.Equal(t, test.provenance, test.data.Provenance())
			require.EqualValues(t, len(test.want), DataSize(test.data))
			whole, err := ReadData(test.data)
			require.NoError(t, err)
			require.True(t, bytes.Equal(test.want, whole))
			requireReaderAt(t, test.want, test.data)
		})
	}
}

// requireReaderAt reads ranges of every kind and compares them with a bytes.Reader.
func requireReaderAt(t *testing.T, want []byte, got io.ReaderAt) {
	t.Helper()
	r, oracle, size := rand.New(rand.NewPCG(7, 8)), bytes.NewReader(want), len(want)
	for n := range 400 {
		off, length := r.IntN(size+3), r.IntN(min(size, 500)+3)
		switch n {
		case 0:
			off, length = 0, size
		case 1:
			off, length = size, 1
		case 2:
			off, length = 0, 0
		}
		a, b := bytes.Repeat([]byte{0xa5}, length), bytes.Repeat([]byte{0xa5}, length)
		wantN, wantErr := oracle.ReadAt(a, int64(off))
		gotN, gotErr := got.ReadAt(b, int64(off))
		require.Equal(t, wantN, gotN, "%d bytes at %d of %d", length, off, size)
		require.Equal(t, wantErr, gotErr, "%d bytes at %d of %d", length, off, size)
		require.True(t, bytes.Equal(a, b), "%d bytes at %d of %d", length, off, size)
	}
	_, err := got.ReadAt(make([]byte, 1), -1)
	require.Error(t, err)
}

// TestDataErrors: an error of a source comes through every combinator, and a short source is one.
func TestDataErrors(t *testing.T) {
	broken := newSource("broken", F32, 4, 2)
	broken.fail = errors.New("disk on fire")
	short := newSource("short", F32, 4, 2)
	short.bytes = short.bytes[:9]
	same := func(dst, src []byte) { copy(dst, src) }
	for _, src := range []*source{broken, short} {
		for name, d := range map[string]Data{
			"rows": Rows(src, 0, 4), "axis 1": Axis1Rows(src, 0, 1), "concat": Concat(newSource("a", F32, 1, 2), src),
			"stack": Stack(src, src),
			"map":   Map(src, F32, "same", same), "reshape": Reshape(src, 8),
			"nested": Map(Rows(Concat(src, src), 1, 6), F32, "same", same),
		} {
			_, err := ReadData(d)
			if src.fail != nil {
				require.ErrorIs(t, err, src.fail, name)
			} else {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
			}
			require.ErrorContains(t, err, src.name, name)
		}
	}
}

// TestDataMistakes: a caller that asks for what cannot be is told at once.
func TestDataMistakes(t *testing.T) {
	a := newSource("a", F32, 2, 3)
	require.PanicsWithValue(t, "ir: 3 bytes for f32[2], want 8", func() { Bytes(F32, []int64{2}, make([]byte, 3)) })
	require.PanicsWithValue(t, "ir: reshape of [2 3] to [7]", func() { Reshape(a, 7) })
	require.PanicsWithValue(t, "ir: concat of f32[2 3] and bf16[2 3]", func() { Concat(a, newSource("b", BF16, 2, 3)) })
	require.PanicsWithValue(t, "ir: concat of f32[2 3] and f32[2 4]", func() { Concat(a, newSource("b", F32, 2, 4)) })
}

// TestProvenanceTellsDataApart: equal provenance means equal bytes, so that a file can hold them once.
func TestProvenanceTellsDataApart(t *testing.T) {
	a := newSource("a", F32, 6, 4)
	b := newSource("b", F32, 6, 4)
	seen := map[string][]byte{}
	var all []Data
	for start := range int64(4) {
		for count := range 6 - start {
			all = append(all, Rows(a, start, count+1))
		}
		all = append(all, Axis1Rows(a, start, 1), Axis1Rows(Reshape(a, 3, 8), start, 2),
			Axis1Rows(Reshape(a, 2, 3, 4), min(start, 2), 1), Rows(Reshape(a, 24), start, 3))
	}
	all = append(all, a, b, Concat(a, b), Concat(b, a), Stack(a, b), Stack(a, a), Reshape(a, 24), Exact(a),
		Bytes(F32, nil, make([]byte, 4)), Bytes(I32, nil, make([]byte, 4)),
		Map(a, F32, "f", func(dst, src []byte) { copy(dst, src) }),
		Map(a, F32, "zero", func(dst, src []byte) { clear(dst) }))
	for _, d := range all {
		p, err := ReadData(d)
		require.NoError(t, err)
		if known, ok := seen[d.Provenance()]; ok {
			require.True(t, bytes.Equal(known, p), d.Provenance())
		}
		seen[d.Provenance()] = p
	}
	require.Greater(t, len(seen), 30)
}

func TestExact(t *testing.T) {
	a := Float32s(nil, 1)
	require.True(t, IsExact(Exact(a)))
	require.False(t, IsExact(a))
	require.False(t, IsExact(Reshape(Exact(a), 1)), "a view of exact data is not marked: mark the view")
}

// TestDataIsConcurrent: workers read pieces of one Data at the same time (run with -race).
func TestDataIsConcurrent(t *testing.T) {
	src := newSource("a", BF16, 1000, 3)
	d := Map(Concat(Rows(src, 500, 500), src), BF16, "swap", func(dst, src []byte) {
		for i := 0; i < len(src); i += 2 {
			binary.BigEndian.PutUint16(dst[i:], binary.LittleEndian.Uint16(src[i:]))
		}
	})
	want, err := ReadData(d)
	require.NoError(t, err)
	failed := make(chan error, 8)
	for w := range 8 {
		go func() {
			for off := int64(w); off < DataSize(d); off += 701 {
				p := make([]byte, min(301, DataSize(d)-off))
				if _, err := d.ReadAt(p, off); err != nil && err != io.EOF ||
					!bytes.Equal(p, want[off:off+int64(len(p))]) {
					failed <- fmt.Errorf("offset %d: %v", off, err)
					return
				}
			}
			failed <- nil
		}()
	}
	for range 8 {
		require.NoError(t, <-failed)
	}
}
