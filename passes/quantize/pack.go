package quantize

// Pack stores codes, each below 2^bits, in words of 32/bits codes, the first one in the low bits:
// the layout of MLX's affine mode. bits is 4 or 8; len(codes) must be a multiple of 32/bits and
// dst must hold len(codes)*bits/32 words.
func Pack(dst []uint32, codes []uint8, bits int) {
	perWord := 32 / bits
	for i := range dst[:len(codes)/perWord] {
		var word uint32
		for j, code := range codes[i*perWord : (i+1)*perWord] {
			word |= uint32(code) << (j * bits)
		}
		dst[i] = word
	}
}

// Unpack is the inverse of [Pack]: it reads the len(dst) codes of words, bits (4 or 8) each.
func Unpack(dst []uint8, words []uint32, bits int) {
	perWord := 32 / bits
	mask := uint32(1)<<bits - 1
	for i := range dst {
		dst[i] = uint8(words[i/perWord] >> (i % perWord * bits) & mask)
	}
}

// Adding roundBias to a float32 of magnitude below 2^22 leaves the value, rounded to the nearest
// integer with ties to even, in the low bits of the sum's pattern, above roundBits.
const (
	roundBias = 3 << 22 // 1.5 * 2^23
	roundBits = 0x4b400000
)

// roundToEven returns x, of magnitude below 2^22, rounded to the nearest integer, ties to even.
func roundToEven(x float32) float32 { return x + roundBias - roundBias }
