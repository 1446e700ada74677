package quantize

// grid maps a level y to the code clamp(floor((round(y*m/2^15) + c) / 2^fractionBits)). m is the number of codes per
// level, and c the code of level 0 plus one half for rounding, both in fixed point. round takes ties up.
type grid struct{ m, c int16 }

// fractionBits returns the number of fraction bits of a code in fixed point: as many as 16 bits leave beside twice the
// range of 4-bit codes (a scale may be as small as half the extent divided by the levels) or the range of 8-bit codes.
func fractionBits(bits int) int {
	if bits == 8 {
		return 6
	}
	return 10
}

// moments are sums over the codes q and the levels y of a group: of q, of q*q and of q*y.
type moments struct{ q, qq, qy int32 }

// gridMomentsGeneric sets dst[i] to the moments of the codes that grids[i] gives to the levels y, at most 128 of
// magnitudes up to 2^15 - 1. All is integer arithmetic without overflow, so that the order of the sums is free.
func gridMomentsGeneric(dst []moments, y []int16, grids []grid, bits int) {
	shift, limit := 15+fractionBits(bits), int32(1)<<bits-1
	for i, g := range grids {
		// Adding c before the division by 2^15 instead of after it leaves the floor as it is.
		m, c := int32(g.m), int32(g.c)<<15+1<<14
		var s moments
		for _, level := range y {
			v := int32(level)
			q := min(max((v*m+c)>>shift, 0), limit)
			s.q += q
			s.qq += q * q
			s.qy += q * v
		}
		dst[i] = s
	}
}

// toLevelsGeneric sets y to the weights w as levels, round((w - mid) * perWeight), ties to even, and returns the
// sum of the levels. Their magnitudes must be below 2^15.
func toLevelsGeneric(y []int16, w []float32, mid, perWeight float32) (sum int32) {
	for i, x := range w[:len(y)] {
		level := int16(rounded(float32((x-mid)*perWeight)) - roundBits)
		y[i] = level
		sum += int32(level)
	}
	return sum
}
