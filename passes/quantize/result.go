package quantize

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

// Result holds rows of a quantized matrix in MLX's form: in mode affine the weight of a code Q is
// scale*Q + bias, with the scale and the bias of the code's group; in the others scale times the small
// float that Q is.
type Result struct {
	Rows, Cols int
	Mode       ir.QuantMode
	Bits       int   // bits of one code: 4 or 8
	GroupSize  int   // columns that one stored scale covers: 32, 64 or 128; 16 in mode nvfp4
	Params     Float // format whose values Scales and Biases hold
	// Symmetric says that every bias is -scale*2^(Bits-1).
	Symmetric bool
	Packed    []uint32  // [Rows, Cols*Bits/32], see [Pack]
	Scales    []float32 // [Rows, Cols/GroupSize], values of the format Params, or of a byte
	Biases    []float32 // [Rows, Cols/GroupSize], values of the format Params; none in modes other than affine
}

// reset shapes r for rows of cols weights, keeping the memory that it has.
func (r *Result) reset(rows, cols int, s Scheme) {
	r.Rows, r.Cols, r.Mode, r.Bits, r.Params, r.Symmetric = rows, cols, s.Mode, s.Bits, s.Params, s.Method.Symmetric()
	r.GroupSize = s.StoredGroupSize(cols)
	r.Packed = resized(r.Packed, rows*s.PackedCols(cols))
	r.Scales = resized(r.Scales, rows*s.ParamCols(cols))
	biases := 0
	if s.HasBiases() {
		biases = len(r.Scales)
	}
	r.Biases = resized(r.Biases, biases)
}

// EncodeScales writes the scales of a mode other than affine to dst, a byte each.
func (r *Result) EncodeScales(dst []byte) {
	f := blockFloatOf(r.Mode)
	for i, s := range r.Scales {
		dst[i] = f.scaleCode(s)
	}
}

func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Dequantize writes the Rows*Cols weights of r to dst as float32(scale*Q) + bias, each operation
// rounded to float32, which is what MLX computes when scales and biases are cast to float32 first; in
// modes other than affine as the exact product of scale and level.
// It reports slices whose lengths do not fit the shape.
func (r *Result) Dequantize(dst []float32) error {
	if r.Bits != 4 && r.Bits != 8 || r.GroupSize <= 0 || r.GroupSize%(32/r.Bits) != 0 || r.Cols%r.GroupSize != 0 {
		return fmt.Errorf("quantized rows of %d weights with %d bits in groups of %d: expected 4 or 8 bits and whole "+
			"groups of whole words",
			r.Cols, r.Bits, r.GroupSize)
	}
	perWord := 32 / r.Bits
	groups := r.Rows * (r.Cols / r.GroupSize)
	biases := groups
	if r.Mode != ir.Affine {
		biases = 0
	}
	if len(dst) != r.Rows*r.Cols || len(r.Packed) != r.Rows*r.Cols/perWord || len(r.Scales) != groups ||
		len(r.Biases) != biases {
		return fmt.Errorf("quantized matrix [%d, %d] with %d words, %d scales and %d biases for %d weights: expected "+
			"%d, %d, %d and %d",
			r.Rows, r.Cols, len(r.Packed), len(r.Scales), len(r.Biases), len(dst),
			r.Rows*r.Cols/perWord, groups, biases, r.Rows*r.Cols)
	}
	if f := blockFloatOf(r.Mode); f != nil {
		r.dequantizeBlocks(dst, f)
		return nil
	}
	mask := uint32(1)<<r.Bits - 1
	words := r.Packed
	for g := range groups {
		scale, bias := r.Scales[g], r.Biases[g]
		for i := 0; i < r.GroupSize; i += perWord {
			word := words[0]
			words = words[1:]
			for j := range dst[:perWord] {
				dst[j] = float32(scale*float32(word&mask)) + bias
				word >>= r.Bits
			}
			dst = dst[perWord:]
		}
	}
	return nil
}

// dequantizeBlocks writes the weights of a mode without biases.
func (r *Result) dequantizeBlocks(dst []float32, f *blockFloat) {
	perWord, mask := 32/r.Bits, uint32(1)<<r.Bits-1
	for i := range dst {
		code := r.Packed[i/perWord] >> (i % perWord * r.Bits) & mask
		dst[i] = float32(r.Scales[i/r.GroupSize] * f.levels[code])
	}
}
