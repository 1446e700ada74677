package quantize

import "github.com/etc-ml/etc/ir/numeric"

// The kernels of simd_arm64.s give the bits of the plain Go that each function below names.

//go:noescape
func decodeNEON(dst *float32, src *byte, n int)

//go:noescape
func patternsNEON(w *float32, n int) (above int32, below uint32)

//go:noescape
func packNEON(dst *uint32, w *float32, n, bits int, bias, scale, least, greatest float32, offset int32)

//go:noescape
func toLevelsNEON(y *int16, w *float32, n int, mid, perWeight float32) (sum int32)

//go:noescape
func gridMomentsNEON(dst *moments, y *int16, n int, grids *grid, count, shift, greatest int)

//go:noescape
func updateSumsNEON(lanes *[vectorLen]float32, w *float32, n int, scale, least, greatest float32) (squares int32)

// patterns is patternsGeneric.
func patterns(w []float32) (above int32, below uint32) {
	if len(w)%16 != 0 {
		return patternsGeneric(w)
	}
	return patternsNEON(&w[0], len(w))
}

// packAffine is packAffineGeneric.
func packAffine(dst []uint32, w []float32, p params, bits int) {
	if len(w)%32 != 0 {
		packAffineGeneric(dst, w, p, bits)
		return
	}
	_ = dst[len(w)*bits/32-1]
	packNEON(&dst[0], &w[0], len(w), bits, p.bias, p.scale, 0, float32(int(1)<<bits-1), 0)
}

// packSymmetric is packSymmetricGeneric.
func packSymmetric(dst []uint32, w, scratch []float32, scale float32, bits int) {
	if len(w)%32 != 0 {
		packSymmetricGeneric(dst, w, scratch, scale, bits)
		return
	}
	_ = dst[len(w)*bits/32-1]
	half := int32(1) << (bits - 1)
	packNEON(&dst[0], &w[0], len(w), bits, 0, scale, float32(-half), float32(half-1), half)
}

// toLevels is toLevelsGeneric.
func toLevels(y []int16, w []float32, mid, perWeight float32) int32 {
	if len(y)%16 != 0 {
		return toLevelsGeneric(y, w, mid, perWeight)
	}
	_ = w[len(y)-1]
	return toLevelsNEON(&y[0], &w[0], len(y), mid, perWeight)
}

// gridMoments is gridMomentsGeneric.
func gridMoments(dst []moments, y []int16, grids []grid, bits int) {
	if len(y)%32 != 0 {
		gridMomentsGeneric(dst, y, grids, bits)
		return
	}
	_ = dst[len(grids)-1]
	gridMomentsNEON(&dst[0], &y[0], len(y), &grids[0], len(grids), fractionBits(bits), 1<<bits-1)
}

// updateSums is updateSumsGeneric.
func updateSums(lanes *[vectorLen]float32, w []float32, scale, limit float32) (squares int32) {
	return updateSumsNEON(lanes, &w[0], len(w), scale, -limit, limit-1)
}

// decodeBF16 is numeric.BF16SliceToF32.
func decodeBF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	if n := len(dst) &^ 15; n > 0 {
		decodeNEON(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	numeric.BF16SliceToF32(dst, src)
}
