package numeric

import "math"

// The small floats of the OCP Microscaling Formats (MX) Specification 1.0, as MLX reads and writes them: e2m1 with 4
// bits, e4m3 with 8, and the scale e8m0, a power of two.

// e2m1Values are the magnitudes of e2m1.
var e2m1Values = [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}

// E2M1ToF32 returns the value of the lower four bits of code: 0, ½, 1, 1½, 2, 3, 4, 6 and their negatives.
func E2M1ToF32(code uint8) float32 {
	v := e2m1Values[code&7]
	if code&8 != 0 {
		return -v
	}
	return v
}

// F32ToE2M1 returns the e2m1 nearest to x, ties to even; what is beyond 6, and NaN, becomes 6. A zero keeps its sign.
func F32ToE2M1(x float32) uint8 {
	bits := math.Float32bits(x)
	sign := uint8(bits >> 28 & 8)
	bits &^= float32SignMask
	switch {
	case bits >= 0x40a0_0000: // 5, which is even at 4, and NaN
		if bits == 0x40a0_0000 {
			return sign | 6
		}
		return sign | 7
	case bits < 0x3f80_0000: // below 1, steps of ½
		const magic = 0x1p22 // whose last bit is ½
		return sign | uint8(math.Float32bits(float32(math.Float32frombits(bits)+magic))&3)
	}
	bits += 1<<21 - 1 + bits>>22&1
	return sign | uint8(bits>>22-(127-1)<<1)
}

// E4M3ToF32 returns the value of an e4m3. Like MLX it knows no NaN: 0x7f is 480.
func E4M3ToF32(code uint8) float32 {
	v := float32(F16ToF32(uint16(code&127)<<7) * 256)
	if code&128 != 0 {
		return -v
	}
	return v
}

// F32ToE4M3 returns the e4m3 nearest to x, ties to even; what is beyond 448, and NaN, becomes 448. A zero keeps its
// sign.
func F32ToE4M3(x float32) uint8 {
	bits := math.Float32bits(x)
	sign := uint8(bits >> 24 & 128)
	bits &^= float32SignMask
	switch {
	case bits >= 0x43e0_0000: // 448
		return sign | 0x7e
	case bits < 0x3c80_0000: // below 2⁻⁶, steps of 2⁻⁹
		const magic = 0x1p14 // whose last bit is 2⁻⁹
		return sign | uint8(math.Float32bits(float32(math.Float32frombits(bits)+magic))&15)
	}
	bits += 1<<19 - 1 + bits>>20&1
	return sign | uint8(bits>>20-(127-7)<<3)
}

// E8M0ToF32 returns the power of two 2^(code−127). Like MLX it knows no NaN: 255 is infinity.
func E8M0ToF32(code uint8) float32 {
	if code == 0 {
		return math.Float32frombits(1 << 22)
	}
	return math.Float32frombits(uint32(code) << 23)
}

// F32ToE8M0 rounds x, which is not negative, to a power of two, 2^round(log2(x)), limited to the format's range. As in
// MLX (mlx/backend/metal/kernels/fp8.h) the logarithm is rounded to float32, and halves are rounded away from zero; 0
// becomes 2⁻¹²⁷, infinity and NaN become 255.
func F32ToE8M0(x float32) uint8 {
	bits := math.Float32bits(x)
	if bits >= float32Infinity {
		return 255
	}
	const (
		root = 0x3504f3 // the mantissa of √2
		near = 0x40     // within which the rounding of the logarithm counts
	)
	exponent, mantissa := int32(bits>>23), int32(bits&0x7fffff)
	switch {
	case exponent == 0: // below 2⁻¹²⁶, with another mantissa
		if x == 0 {
			return 0
		}
	case mantissa > root+near:
		return uint8(min(exponent+1, 254))
	case mantissa < root-near:
		return uint8(exponent)
	}
	n := math.Round(float64(float32(Log2(float64(x)))))
	return uint8(min(max(n, -127), 127) + 127)
}
