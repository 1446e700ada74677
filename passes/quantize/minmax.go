package quantize

import "math"

// minMaxEpsilon is the least scale that MLX starts from (mlx/backend/cpu/quantized.cpp, quantize).
const minMaxEpsilon = 1e-7

// minMaxParams returns MLX's scale and bias of a group with the finite extent lo..hi, in float32:
// the codes are computed with these, not with their rounded form. Both are without bound for
// extents beyond 1e31, which the caller refuses.
func minMaxParams(lo, hi float32, bits int) params {
	levels := float32(int(1)<<bits - 1)
	scale := max((hi-lo)/levels, minMaxEpsilon)
	edge := lo
	if abs(lo) <= abs(hi) {
		edge, scale = hi, -scale
	}
	// Codes count from the edge of larger magnitude. Stretching the scale so that the edge is a
	// whole number of steps away from zero makes zero exact too.
	steps := float32(math.RoundToEven(float64(edge / scale)))
	if steps == 0 {
		return params{scale, 0}
	}
	return params{edge / steps, edge}
}

// packAffineGeneric stores the codes clamp(round((w - bias) / scale)) as [Pack] does. Every quotient lies
// between -1 and twice the number of levels, because the scale is at least half the extent over the
// levels.
func packAffineGeneric(dst []uint32, w []float32, p params, bits int) {
	b, s := p.bias, p.scale
	if bits == 8 {
		for i := range dst {
			x := (*[4]float32)(w[4*i:])
			dst[i] = word8(rounded((x[0]-b)/s)-roundBits, rounded((x[1]-b)/s)-roundBits,
				rounded((x[2]-b)/s)-roundBits, rounded((x[3]-b)/s)-roundBits)
		}
		return
	}
	for i := range dst {
		x := (*[8]float32)(w[8*i:])
		dst[i] = word4(rounded((x[0]-b)/s)-roundBits, rounded((x[1]-b)/s)-roundBits,
			rounded((x[2]-b)/s)-roundBits, rounded((x[3]-b)/s)-roundBits,
			rounded((x[4]-b)/s)-roundBits, rounded((x[5]-b)/s)-roundBits,
			rounded((x[6]-b)/s)-roundBits, rounded((x[7]-b)/s)-roundBits)
	}
}
