//go:build !amd64 && !arm64

package quantize

import "github.com/etc-ml/etc/ir/numeric"

func patterns(w []float32) (above int32, below uint32) { return patternsGeneric(w) }

func packAffine(dst []uint32, w []float32, p params, bits int) { packAffineGeneric(dst, w, p, bits) }

func packSymmetric(dst []uint32, w, scratch []float32, scale float32, bits int) {
	packSymmetricGeneric(dst, w, scratch, scale, bits)
}

func toLevels(y []int16, w []float32, mid, perWeight float32) int32 {
	return toLevelsGeneric(y, w, mid, perWeight)
}

func gridMoments(dst []moments, y []int16, grids []grid, bits int) {
	gridMomentsGeneric(dst, y, grids, bits)
}

func updateSums(lanes *[vectorLen]float32, w []float32, scale, limit float32) (squares int32) {
	return updateSumsGeneric(lanes, w, scale, limit)
}

func decodeBF16(dst []float32, src []byte) { numeric.BF16SliceToF32(dst, src) }
