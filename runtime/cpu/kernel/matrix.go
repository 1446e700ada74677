package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Format is how the elements of a stored matrix are written. All are little-endian.
type Format uint8

const (
	// Q4 and Q8 are codes of 4 or 8 bits, the first code of a row in the lowest bits of its first byte.
	// An element is scale·code + bias with a scale and a bias for each group of elements of a row; this is
	// MLX's affine layout.
	Q4 Format = iota + 1
	Q8
	// BF16 is the upper half of a float32.
	BF16
	// F32 is IEEE 754 binary32.
	F32
	// MXFP4, MXFP8 and NVFP4 are MLX's modes of small floats: codes e2m1, e4m3 and e2m1, in the order of Q4 and Q8,
	// with a scale of a byte for each group, e8m0, e8m0 and e4m3, and no biases.
	MXFP4
	MXFP8
	NVFP4
)

func (f Format) String() string {
	switch f {
	case Q4:
		return "q4"
	case Q8:
		return "q8"
	case BF16:
		return "bf16"
	case F32:
		return "f32"
	case MXFP4:
		return "mxfp4"
	case MXFP8:
		return "mxfp8"
	case NVFP4:
		return "nvfp4"
	}
	return fmt.Sprintf("format %d", uint8(f))
}

// Bits returns the size of an element or code.
func (f Format) Bits() int {
	switch f {
	case Q4, MXFP4, NVFP4:
		return 4
	case Q8, MXFP8:
		return 8
	case BF16:
		return 16
	case F32:
		return 32
	}
	return 0
}

// Quantized says whether the format has codes, scales and biases.
func (f Format) Quantized() bool { return f == Q4 || f == Q8 }

// SmallFloats says whether the format has codes that are small floats, with scales and no biases.
func (f Format) SmallFloats() bool { return f == MXFP4 || f == MXFP8 || f == NVFP4 }

// Matrix is a stored matrix [Rows, Cols], row after row, read in place: the slices may be parts of a
// mapped file, at any alignment.
type Matrix struct {
	Format     Format
	Rows, Cols int

	// Data holds the elements or codes: Rows·Cols·Format.Bits()/8 bytes.
	Data []byte

	// Group is the number of elements of a row that share a scale, for quantized formats: 32, 64 or 128, a
	// divisor of Cols; 32 for MXFP4 and MXFP8, 16 for NVFP4.
	Group int
	// Scales and Biases are [Rows, Cols/Group] in ScaleFormat, BF16 or F32. No Biases means symmetric
	// codes, whose bias is −2^(bits−1)·scale. Formats of small floats have scales of a byte and no biases.
	Scales, Biases []byte
	ScaleFormat    Format
}

// Check reports a matrix whose parts do not fit together. All functions that take a Matrix rely on it; the
// owner of a matrix calls it once.
func (w *Matrix) Check() error {
	if w.Format.Bits() == 0 {
		return fmt.Errorf("matrix has %v, want q4, q8, bf16, f32, mxfp4, mxfp8 or nvfp4", w.Format)
	}
	if w.Rows < 0 || w.Cols < 0 || w.Rows > math.MaxInt/32/max(w.Cols, 1) {
		return fmt.Errorf("matrix of %d × %d elements", w.Rows, w.Cols)
	}
	if w.Format.Quantized() {
		if w.Group != 32 && w.Group != 64 && w.Group != 128 || w.Cols%w.Group != 0 {
			return fmt.Errorf("%v matrix has groups of %d in rows of %d elements, want 32, 64 or 128 that divides them",
				w.Format, w.Group, w.Cols)
		}
		if w.ScaleFormat != BF16 && w.ScaleFormat != F32 {
			return fmt.Errorf("%v matrix has %v scales, want bf16 or f32", w.Format, w.ScaleFormat)
		}
		size := w.Rows * w.groups() * w.ScaleFormat.Bits() / 8
		if len(w.Scales) != size || len(w.Biases) != size && w.Biases != nil {
			return fmt.Errorf("%v matrix of %d × %d elements in groups of %d has %d bytes of scales and %d of "+
				"biases, want %d", w.Format, w.Rows, w.Cols, w.Group, len(w.Scales), len(w.Biases), size)
		}
	}
	if w.Format.SmallFloats() {
		group := 32
		if w.Format == NVFP4 {
			group = 16
		}
		if w.Group != group || w.Cols%32 != 0 {
			return fmt.Errorf("%v matrix has groups of %d in rows of %d elements, want %d and a multiple of 32",
				w.Format, w.Group, w.Cols, group)
		}
		if size := w.Rows * w.groups(); len(w.Scales) != size || w.Biases != nil {
			return fmt.Errorf("%v matrix of %d × %d elements has %d bytes of scales and %d of biases, want %d and none",
				w.Format, w.Rows, w.Cols, len(w.Scales), len(w.Biases), size)
		}
	}
	if size := w.Rows * w.rowBytes(); len(w.Data) != size {
		return fmt.Errorf("%v matrix of %d × %d elements has %d bytes, want %d", w.Format, w.Rows,
			w.Cols, len(w.Data), size)
	}
	return nil
}

// Slice is rows [lo, hi) of w, sharing its memory: an expert of a stack, a part of a fused projection.
func (w *Matrix) Slice(lo, hi int) Matrix {
	s := *w
	s.Rows = hi - lo
	s.Data = w.Data[lo*w.rowBytes() : hi*w.rowBytes()]
	if w.Format.hasScales() {
		n := w.scaleBytes()
		s.Scales = w.Scales[lo*n : hi*n]
		if w.Biases != nil {
			s.Biases = w.Biases[lo*n : hi*n]
		}
	}
	return s
}

// Bytes is what one pass over rows rows of w reads.
func (w *Matrix) Bytes(rows int) int {
	n := w.rowBytes()
	if w.Format.hasScales() {
		n += w.scaleBytes()
		if w.Biases != nil {
			n += w.scaleBytes()
		}
	}
	return rows * n
}

// Row writes the elements of row r to dst [Cols]: the look-up of an embedding.
func (w *Matrix) Row(dst []float32, r int) {
	if len(dst) != w.Cols || r < 0 || r >= w.Rows {
		panic(fmt.Sprintf("kernel: row %d of a matrix of %d × %d elements to %d elements", r, w.Rows, w.Cols, len(dst)))
	}
	w.elements(dst, r, 0)
}

// elements writes elements [at, at+len(dst)) of row r.
func (w *Matrix) elements(dst []float32, r, at int) {
	data := w.Data[r*w.rowBytes():]
	switch w.Format {
	case BF16:
		FromBF16(dst, data[2*at:2*(at+len(dst))])
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*(at+i):]))
		}
	case MXFP4, MXFP8, NVFP4:
		for i := range dst {
			dst[i] = w.small(r, at+i)
		}
	default:
		for i := range dst {
			scale, bias := w.scale(r, (at+i)/w.Group)
			dst[i] = float32(scale*float32(w.code(r, at+i))) + bias
		}
	}
}

func (f Format) hasScales() bool { return f.Quantized() || f.SmallFloats() }

func (w *Matrix) groups() int   { return w.Cols / w.Group }
func (w *Matrix) rowBytes() int { return w.Cols * w.Format.Bits() / 8 }

// scaleBytes returns the size of the scales of a row.
func (w *Matrix) scaleBytes() int {
	if w.Format.SmallFloats() {
		return w.groups()
	}
	return w.groups() * w.ScaleFormat.Bits() / 8
}

// bitsIndex and scaleIndex choose among the functions of an implementation.
func (w *Matrix) bitsIndex() int {
	if w.Format == Q8 {
		return 1
	}
	return 0
}

func (w *Matrix) scaleIndex() int { return floatIndex(w.ScaleFormat) }

func floatIndex(f Format) int {
	if f == F32 {
		return 1
	}
	return 0
}

// code is element k of row r before scaling.
func (w *Matrix) code(r, k int) byte {
	if w.Format == Q8 {
		return w.Data[r*w.Cols+k]
	}
	return w.Data[(r*w.Cols+k)/2] >> (4 * uint(k%2)) & 15
}

// scale returns the scale and bias of group g of row r.
func (w *Matrix) scale(r, g int) (scale, bias float32) {
	at := r*w.groups() + g
	scale = stored(w.Scales, w.ScaleFormat, at)
	if w.Biases == nil {
		return scale, symmetricBias(w.Format.Bits(), scale)
	}
	return scale, stored(w.Biases, w.ScaleFormat, at)
}

// symmetricBias is the bias of codes without stored biases; the product is exact.
func symmetricBias(bits int, scale float32) float32 { return -float32(int(1)<<(bits-1)) * scale }

// stored reads element at of data in format BF16 or F32.
func stored(data []byte, f Format, at int) float32 {
	if f == BF16 {
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*at:])) << 16)
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*at:]))
}
