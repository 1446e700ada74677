package kernel

import (
	"encoding/binary"
	"math"
	"sync"
)

// Formats of small floats are multiplied in two steps: some rows at a time are made rows of another format, in memory
// that the first cache holds, and the kernels of that format multiply them. What is read from memory is the small form.
//
//   - MXFP4 becomes Q8: twice a value is a whole number from −12 to 12, so the code 2v+12 with the scale s/2 and the
//     bias −6s stands for v·s, exactly. So there is an integer path.
//   - MXFP8 and NVFP4 become BF16, which holds every product of a code and a scale; there is no integer path.

// expandedFormat returns the format that rows of a format of small floats are made.
func (f Format) expandedFormat() Format {
	if f == MXFP4 {
		return Q8
	}
	return BF16
}

// expandedBytes is what an expanded row should take at most together with others.
const expandedBytes = 24 << 10

// expansion is the memory of rows that are expanded.
type expansion struct{ data, scales, biases []byte }

var expansions = sync.Pool{New: func() any { return &expansion{} }}

// matMulSmallFloats is MatMul of rows [row0, row1) of w.
func matMulSmallFloats(y []float32, stride int, w *Matrix, a *Activations, row0, row1 int) {
	e := expansions.Get().(*expansion)
	defer expansions.Put(e)
	step := 2 * blockSize // whole panels and blocks
	if a.vectors <= denseDotLimit {
		step = min(max(expandedBytes/(w.Cols*w.Format.expandedFormat().Bits()/8), 1)*4, 64) &^ 3
	}
	// Steps begin at the same rows however the rows are divided among calls, as far as a call has them.
	for row := row0; row < row1; {
		end := min(row-row%step+step, row1)
		part := e.expand(w, row, end)
		MatMul(y[row:], stride, &part, a, 0, end-row)
		row = end
	}
}

// expand returns rows [lo, hi) of w in the expanded format.
func (e *expansion) expand(w *Matrix, lo, hi int) Matrix {
	part := w.Slice(lo, hi)
	out := Matrix{Format: w.Format.expandedFormat(), Rows: hi - lo, Cols: w.Cols}
	e.data = grow(e.data, out.Rows*out.rowBytes())
	out.Data = e.data
	switch w.Format {
	case MXFP4:
		out.Group, out.ScaleFormat = w.Group, BF16
		active.expandE2M1(out.Data, part.Data)
		e.scales, e.biases = grow(e.scales, 2*len(part.Scales)), grow(e.biases, 2*len(part.Scales))
		whole := 0
		if plainScales(part.Scales) {
			whole = len(part.Scales) &^ 15
			active.halfSix(e.scales[:2*whole], e.biases[:2*whole], part.Scales[:whole])
		}
		halfSixGeneric(e.scales[2*whole:], e.biases[2*whole:], part.Scales[whole:])
		out.Scales, out.Biases = e.scales, e.biases
	case MXFP8:
		groups := w.groups()
		for r := range out.Rows {
			data, scales := out.Data[r*out.rowBytes():][:out.rowBytes()], part.Scales[r*groups:][:groups]
			if plainScales(scales) {
				active.expandE4M3(data, part.Data[r*w.Cols:][:w.Cols], scales)
			} else {
				part.expandRow(data, r)
			}
		}
	default:
		for r := range out.Rows {
			part.expandRow(out.Data[r*out.rowBytes():], r)
		}
	}
	return out
}

// plainScales reports whether all scales e8m0 are such that no product with a code is subnormal in BF16, or infinite.
func plainScales(scales []byte) bool {
	const ones = 0x0101010101010101
	beyond := uint64(0) // the upper bit of a byte: that of a scale whose bits 4 to 7 are equal, outside of 16 to 239
	for ; len(scales) >= 8; scales = scales[8:] {
		s := binary.LittleEndian.Uint64(scales)
		beyond |= ^((s<<1 ^ s) | (s<<2 ^ s) | (s<<3 ^ s)) & (0x80 * ones)
	}
	for _, s := range scales {
		beyond |= uint64(^((s<<1 ^ s) | (s<<2 ^ s) | (s<<3 ^ s)) & 0x80)
	}
	return beyond == 0
}

// expandRow writes row r in BF16: every format and scale.
func (w *Matrix) expandRow(dst []byte, r int) {
	for k := range w.Cols {
		bits := math.Float32bits(w.small(r, k))
		if bits&0x7fff_ffff <= 0x7f80_0000 { // only numbers near the least of float32 have bits to round
			bits += 0x7fff + bits>>16&1
		}
		binary.LittleEndian.PutUint16(dst[2*k:], uint16(bits>>16))
	}
}

// small is element k of row r of a format of small floats.
func (w *Matrix) small(r, k int) float32 {
	scale := w.Scales[r*w.groups()+k/w.Group]
	if w.Format == MXFP8 {
		return float32(e8m0Values[scale] * e4m3Values[w.Data[r*w.Cols+k]])
	}
	value := e2m1Values[w.Data[(r*w.Cols+k)/2]>>(4*uint(k%2))&15]
	if w.Format == NVFP4 {
		return float32(e4m3Values[scale] * value)
	}
	return float32(e8m0Values[scale] * value)
}

// e2m1Values, e4m3Values and e8m0Values are the numbers that codes and scales stand for, as MLX has them: e4m3 without
// a NaN, e8m0 with an infinity in its place.
var (
	e2m1Values = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}
	e4m3Values = func() (t [256]float32) {
		for i := range t {
			exponent, mantissa := i>>3&15, float64(i&7)
			v := math.Ldexp(1+mantissa/8, exponent-7)
			if exponent == 0 {
				v = math.Ldexp(mantissa, -9)
			}
			if i > 127 {
				v = -v
			}
			t[i] = float32(v)
		}
		return t
	}()
	e8m0Values = func() (t [256]float32) {
		for i := range t {
			t[i] = float32(math.Ldexp(1, i-127))
		}
		t[255] = float32(math.Inf(1))
		return t
	}()
	// halfScales and sixScales are half of a scale e8m0 and −6 times it, in BF16; beyond its range infinite.
	halfScales, sixScales = func() (half, six [256]uint16) {
		for i, s := range e8m0Values {
			half[i] = uint16(math.Float32bits(s/2) >> 16)
			six[i] = uint16(math.Float32bits(-6*s) >> 16)
		}
		return half, six
	}()
)

// expandE2M1Generic writes 2v+12 for each of the two codes of a byte, the lower one first.
func expandE2M1Generic(dst, src []byte) {
	for i, c := range src {
		dst[2*i], dst[2*i+1] = e2m1Codes[c&15], e2m1Codes[c>>4]
	}
}

var e2m1Codes = func() (t [16]byte) {
	for i, v := range e2m1Values {
		t[i] = byte(int(2*v) + 12)
	}
	return t
}()

// halfSixGeneric writes half of each scale e8m0 and −6 times it in BF16.
func halfSixGeneric(halves, sixes, scales []byte) {
	for i, s := range scales {
		binary.LittleEndian.PutUint16(halves[2*i:], halfScales[s])
		binary.LittleEndian.PutUint16(sixes[2*i:], sixScales[s])
	}
}

// expandE4M3Generic writes the BF16 numbers that codes in groups of 32 stand for; the scales are plain.
func expandE4M3Generic(dst, src, scales []byte) {
	for i, c := range src {
		v := float32(e8m0Values[scales[i/32]] * e4m3Values[c])
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(math.Float32bits(v)>>16))
	}
}
