package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every level makes the same bytes of rows of small floats: of all codes, with every scale.
func TestExpand(t *testing.T) {
	codes := guarded[byte](256)
	for i := range codes {
		codes[i] = byte(i)
	}
	defer release()
	atEachLevel(t, func(t *testing.T) {
		want, got := make([]byte, 512), guarded[byte](512)
		expandE2M1Generic(want, codes)
		active.expandE2M1(got, codes)
		require.Equal(t, want, got)
		active.expandE2M1(got[:32], codes[:16])
		active.expandE2M1(nil, nil)
		halves, sixes := guarded[byte](2*224), guarded[byte](2*224)
		wantHalves, wantSixes := make([]byte, 2*224), make([]byte, 2*224)
		plain := guarded[byte](224)
		copy(plain, codes[16:240])
		require.True(t, plainScales(plain))
		halfSixGeneric(wantHalves, wantSixes, plain)
		active.halfSix(halves, sixes, plain)
		require.Equal(t, wantHalves, halves)
		require.Equal(t, wantSixes, sixes)
		scales := guarded[byte](8)
		for first := 10; first <= 246; first += 8 {
			for i := range scales {
				scales[i] = byte(min(first+i, 246))
			}
			expandE4M3Generic(want, codes, scales)
			active.expandE4M3(got, codes, scales)
			require.Equal(t, want, got, "scales from %d on", first)
		}
		active.expandE4M3(got[:64], codes[:32], scales[:1])
		active.expandE4M3(nil, nil, nil)
	})
	for s := range 256 { // in any place of a list
		list := []byte{127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127}
		list[s%11] = byte(s)
		require.Equal(t, s >= 16 && s < 240, plainScales(list), s)
	}
	for i, c := range codes { // the numbers themselves
		require.Equal(t, byte(12+2*e2m1Values[c&15]), e2m1Codes[c&15])
		require.Equal(t, byte(i), c)
	}
}

// Rows that are expanded hold the numbers of the matrix, whatever the scales.
func TestExpandedRows(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for _, format := range []Format{MXFP4, MXFP8, NVFP4} {
		w := randomSmallFloats(r, &Matrix{Format: format, Rows: 9, Cols: 256})
		for i := range w.Scales {
			if format != NVFP4 {
				w.Scales[i] = byte(r.IntN(240)) // more, times the largest code, is beyond float32
			}
		}
		require.NoError(t, w.Check())
		want, got := make([]float32, w.Cols), make([]float32, w.Cols)
		atEachLevel(t, func(t *testing.T) {
			var e expansion
			part := e.expand(w, 2, 9)
			require.NoError(t, part.Check())
			for i := range part.Rows {
				w.Row(want, 2+i)
				part.Row(got, i)
				for k := range want {
					if math.Abs(float64(want[k])) < 0x1p-126 { // subnormal in BF16, which rounds it
						require.InDelta(t, want[k], got[k], 0x1p-134)
						continue
					}
					require.Equal(t, want[k], got[k], "%v, row %d, column %d", format, 2+i, k)
				}
			}
		})
	}
	release()
}

// The numbers are those of the OCP Microscaling Formats, with MLX's reading of what these call NaN.
func TestSmallFloatValues(t *testing.T) {
	w := Matrix{Format: MXFP4, Rows: 1, Cols: 32, Group: 32, Data: make([]byte, 16), Scales: []byte{128}}
	binary.LittleEndian.PutUint64(w.Data, 0xfedcba9876543210)
	require.NoError(t, w.Check())
	row := make([]float32, 32)
	w.Row(row, 0)
	require.Equal(t, []float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}, row[:16])
	eight := Matrix{Format: MXFP8, Rows: 1, Cols: 32, Group: 32, Data: make([]byte, 32), Scales: []byte{126}}
	copy(eight.Data, []byte{0x7e, 0x01, 0x38, 0xb8, 0x7f})
	require.NoError(t, eight.Check())
	eight.Row(row, 0)
	require.Equal(t, []float32{224, 0x1p-10, 0.5, -0.5, 240, 0}, row[:6])
	nv := Matrix{Format: NVFP4, Rows: 1, Cols: 32, Group: 16, Data: make([]byte, 16), Scales: []byte{0x38, 0x7e}}
	nv.Data[0], nv.Data[8] = 0x72, 0x0f
	require.NoError(t, nv.Check())
	nv.Row(row, 0)
	require.Equal(t, []float32{1, 6, -6 * 448, 0}, []float32{row[0], row[1], row[16], row[17]})

	for _, c := range []struct {
		want string
		set  func(w *Matrix)
	}{
		{"mxfp8 matrix has groups of 64 in rows of 32 elements, want 32", func(w *Matrix) { w.Group = 64 }},
		{"0 bytes of scales and 0 of biases, want 1", func(w *Matrix) { w.Scales = nil }},
		{"1 bytes of scales and 1 of biases, want 1 and none", func(w *Matrix) { w.Biases = make([]byte, 1) }},
		{"31 bytes, want 32", func(w *Matrix) { w.Data = w.Data[:31] }},
	} {
		w := eight
		c.set(&w)
		require.ErrorContains(t, w.Check(), c.want)
	}
}
