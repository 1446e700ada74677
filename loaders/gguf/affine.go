package gguf

// A block type that MLX's affine form holds exactly, group by group: w = scale·code + bias.
type affine struct {
	bits, groups int // groups of 32 in a block
	codes        func(dst, block []byte)
	// params gives scale and bias of group j.
	params func(block []byte, j int) (scale, bias float32)
}

// groupSize is the number of weights that share a scale in every one of these types.
const groupSize = 32

// affines are the types that MLX's form holds exactly, with scales and biases in float32: a scale is an f16 or the
// product of one with 6 bits, a bias at most a multiple of such.
var affines = map[Type]affine{
	Q4_0: {4, 1, func(dst, block []byte) { weave(dst, block[2:18]) }, func(block []byte, _ int) (float32, float32) {
		d := half(block)
		return d, float32(-8 * d)
	}},
	Q4_1: {4, 1, func(dst, block []byte) { weave(dst, block[4:20]) }, func(block []byte, _ int) (float32, float32) {
		return half(block), half(block[2:])
	}},
	Q8_0: {8, 1, func(dst, block []byte) {
		for i, b := range block[2:34] {
			dst[i] = b ^ 0x80 // q + 128
		}
	}, func(block []byte, _ int) (float32, float32) {
		d := half(block)
		return d, float32(-128 * d)
	}},
	Q4_K: {4, 8, func(dst, block []byte) {
		for i := range 4 { // 32 bytes with the low halves of one group and the high ones of the next
			codes := block[16+32*i:][:32]
			for l := range 16 {
				dst[32*i+l] = codes[2*l]&15 | codes[2*l+1]<<4
				dst[32*i+16+l] = codes[2*l]>>4 | codes[2*l+1]&0xf0
			}
		}
	}, groupParams},
}

// weave puts codes whose byte j has code j low and code j+16 high in their order, the first of two low.
func weave(dst, codes []byte) {
	for l := range 8 {
		dst[l] = codes[2*l]&15 | codes[2*l+1]<<4
		dst[8+l] = codes[2*l]>>4 | codes[2*l+1]&0xf0
	}
}
