package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// atEachLevel runs a test at every level of this CPU.
func atEachLevel(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	before := Level()
	defer func() { require.NoError(t, SetLevel(before)) }()
	for _, level := range Levels() {
		require.NoError(t, SetLevel(level))
		t.Run(level, test)
	}
}

func TestSetLevel(t *testing.T) {
	require.Equal(t, "generic", Levels()[0])
	require.Equal(t, Levels()[len(Levels())-1], Level())
	require.ErrorContains(t, SetLevel("mmx"), `"mmx": this CPU has generic`)
	atEachLevel(t, func(t *testing.T) { require.Equal(t, t.Name(), "TestSetLevel/"+Level()) })
}

// floats are n numbers around 0, in memory that ends where reading faults.
func floats(r *rand.Rand, n int) []float32 {
	x := guarded[float32](n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// encode stores x in format, in memory that ends where reading faults.
func encode(format Format, x []float32) []byte {
	b := guarded[byte](len(x) * format.Bits() / 8)
	for i, v := range x {
		if format == BF16 {
			genericVectorFunctions.toBF16(b[2*i:], []float32{v})
		} else {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
		}
	}
	return b
}

// randomMatrix has random elements; symmetric leaves out the biases.
func randomMatrix(r *rand.Rand, format, scaleFormat Format, rows, cols, group int, symmetric bool) *Matrix {
	w := &Matrix{Format: format, Rows: rows, Cols: cols}
	if format.SmallFloats() {
		return randomSmallFloats(r, w)
	}
	if !format.Quantized() {
		w.Data = encode(format, floats(r, rows*cols))
		return w
	}
	w.Group, w.ScaleFormat = group, scaleFormat
	w.Data = guarded[byte](rows * cols * format.Bits() / 8)
	for i := range w.Data {
		w.Data[i] = byte(r.Uint32())
	}
	w.Scales = encode(scaleFormat, floats(r, rows*cols/group))
	if !symmetric {
		w.Biases = encode(scaleFormat, floats(r, rows*cols/group))
	}
	return w
}

// randomSmallFloats has any codes, and scales around 1, of which some are far off where the format is MXFP8.
func randomSmallFloats(r *rand.Rand, w *Matrix) *Matrix {
	w.Group = 32
	if w.Format == NVFP4 {
		w.Group = 16
	}
	w.Data, w.Scales = guarded[byte](w.Rows*w.rowBytes()), guarded[byte](w.Rows*w.groups())
	for i := range w.Data {
		w.Data[i] = byte(r.Uint32())
	}
	for i := range w.Scales {
		w.Scales[i] = byte(118 + r.IntN(12))
		if w.Format == NVFP4 {
			w.Scales[i] = byte(r.IntN(127))
		} else if r.IntN(100) == 0 && w.Format == MXFP8 {
			w.Scales[i] = byte(r.IntN(20))
		}
	}
	return w
}

func (w *Matrix) describe() string {
	if !w.Format.Quantized() {
		return fmt.Sprintf("%v %dx%d", w.Format, w.Rows, w.Cols)
	}
	return fmt.Sprintf("%v %dx%d group %d scales %v biases %v", w.Format, w.Rows, w.Cols, w.Group,
		w.ScaleFormat, w.Biases != nil)
}

// requireClose fails where got differs from want by more than tolerance·size, size[i] the sum of the
// magnitudes that want[i] was summed from.
func requireClose(t *testing.T, want, size []float64, got []float32, tolerance float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		if !(math.Abs(float64(got[i])-want[i]) <= tolerance*size[i]) {
			require.Failf(t, what, "element %d is %v, want %v within %g of %v", i, got[i], want[i], tolerance, size[i])
		}
	}
}
