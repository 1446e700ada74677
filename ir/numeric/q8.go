package numeric

import "math"

// Codes of 8 bits, in which caches of attention can be kept (ir/cacherow.go): a group of numbers has a scale, and a
// code c stands for c·scale. They are symmetric, as llama.cpp's q8_0 has them, with a bfloat16 for the scale, which has
// the range of float32.

// Q8Scale returns the scale of a group: its greatest magnitude times 1/127, rounded to float32 and then up to
// bfloat16, so that no code is beyond ±127. The scale of a group with a NaN is NaN, and that of one with an infinity
// infinite: all numbers of these are read as NaN.
func Q8Scale(group []float32) uint16 {
	high := float32(0)
	for _, v := range group {
		if a := float32(math.Abs(float64(v))); a > high || a != a {
			high = a
		}
	}
	if high != high {
		return 0x7fc0
	}
	bits := math.Float32bits(float32(high * (1.0 / 127)))
	return uint16((bits + 0xffff) >> 16)
}

// Q8Code returns the code of a number by the scale of its group, to nearest with ties to even; 0 where the scale is
// none to divide by.
func Q8Code(x float32, scale uint16) int8 {
	s := BF16ToF32(scale)
	if !(s > 0 && s <= math.MaxFloat32) {
		return 0
	}
	return int8(max(-127, min(127, math.RoundToEven(float64(x/s)))))
}
