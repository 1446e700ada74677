package quantize

func gridMoments(dst []moments, y []int16, grids []grid, bits int) {
	gridMomentsGeneric(dst, y, grids, bits)
}

func toLevels(y []int16, w []float32, mid, perWeight float32) int32 {
	return toLevelsGeneric(y, w, mid, perWeight)
}
