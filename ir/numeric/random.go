package numeric

// UniformFromBits maps a random word to a float32 in [0, 1), as MLX's
// random::uniform does with bounds 0 and 1: float32(word) / float32(2^32-1), at
// most the greatest float32 below 1. The divisor rounds to 2^32, so the result
// is float32(word) scaled by a power of two.
func UniformFromBits(word uint32) float32 {
	const belowOne = 0x1.fffffep-1
	return min(float32(float32(word)*0x1p-32), belowOne)
}

// GumbelFromUniform maps u in [0, 1) to -log(-log(u)) with each logarithm
// rounded to float32, as a float32 graph or MLX's random::gumbel does. u = 0
// gives -Inf. Where MLX's float32 logarithm is not the nearest float32 the
// results differ by a rounding.
func GumbelFromUniform(u float32) float32 {
	return -Log32(-Log32(u))
}

// FillUniform fills dst with the uniform draw of len(dst) elements of key: each
// word of [FillWords] through [UniformFromBits].
func FillUniform(dst []float32, key [2]uint32) {
	fillFromWords(dst, key, UniformFromBits)
}

// FillGumbel fills dst with the draw of len(dst) elements from the standard
// Gumbel distribution of key: each element of [FillUniform] through
// [GumbelFromUniform].
func FillGumbel(dst []float32, key [2]uint32) {
	fillFromWords(dst, key, func(word uint32) float32 {
		return GumbelFromUniform(UniformFromBits(word))
	})
}

// fillFromWords stores value of each word of the draw [FillWords] describes,
// without a buffer for the words.
func fillFromWords(dst []float32, key [2]uint32, value func(uint32) float32) {
	upper := (len(dst) + 1) / 2
	pairs := len(dst) / 2
	for i := range pairs {
		block := Threefry2x32(key, [2]uint32{uint32(i), uint32(upper + i)})
		dst[i], dst[upper+i] = value(block[0]), value(block[1])
	}
	if pairs < upper {
		dst[pairs] = value(Threefry2x32(key, [2]uint32{uint32(pairs), 0})[0])
	}
}
