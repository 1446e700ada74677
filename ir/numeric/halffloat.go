package numeric

import (
	"encoding/binary"
	"math"
)

// Bit patterns of float32 that the 16-bit conversions compare against.
const (
	float32SignMask  = 0x8000_0000
	float32Infinity  = 0x7f80_0000
	float32QuietNaN  = 0x7fc0_0000
	float16Infinity  = 0x7c00
	float16QuietBit  = 0x0200
	float16ExpBias   = 112                         // bias of float32 (127) less that of float16 (15)
	float16MinNormal = (float16ExpBias + 1) << 23  // 2^-14
	float16Overflow  = (float16ExpBias + 31) << 23 // 2^16
	float16SubHalf   = (float16ExpBias + 14) << 23 // 0.5, whose last bit is 2^-24 = float16's least step
	twoTo112         = 5192296858534827628530496329220096.0
)

// BF16ToF32 widens the bfloat16 with bit pattern b. It is exact, and NaN
// payloads, signalling ones too, keep their bits.
func BF16ToF32(b uint16) float32 {
	return math.Float32frombits(uint32(b) << 16)
}

// F32ToBF16 rounds x to bfloat16, to nearest with ties to even. Values beyond
// the largest finite bfloat16 by half a step or more become infinite,
// subnormals are kept, and a NaN keeps its sign and the upper bits of its
// payload with the quiet bit set.
func F32ToBF16(x float32) uint16 {
	bits := math.Float32bits(x)
	if bits&^float32SignMask > float32Infinity {
		return uint16(bits>>16) | 0x0040
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// RoundBF16 returns the bfloat16 nearest to x, as a float32; see [F32ToBF16].
func RoundBF16(x float32) float32 {
	return BF16ToF32(F32ToBF16(x))
}

// F16ToF32 widens the IEEE 754 binary16 number with bit pattern h. It is exact;
// a signalling NaN comes out quiet, as from the conversion instructions of
// x86-64 and arm64.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	magnitude := uint32(h & 0x7fff)
	if magnitude >= float16Infinity {
		bits := uint32(float32Infinity) | magnitude<<13
		if magnitude > float16Infinity {
			bits |= float32QuietNaN
		}
		return math.Float32frombits(sign | bits)
	}
	// The shifted pattern read as a float32 is the value times 2^-112, for
	// subnormals too; multiplying by a power of two is exact.
	return math.Float32frombits(sign | math.Float32bits(float32(math.Float32frombits(magnitude<<13)*twoTo112)))
}

// F32ToF16 rounds x to IEEE 754 binary16, to nearest with ties to even. Values
// of magnitude 65520 and above become infinite, those below 2^-14 round to
// float16's subnormals or zero, and a NaN keeps its sign and the upper bits of
// its payload with the quiet bit set.
func F32ToF16(x float32) uint16 {
	bits := math.Float32bits(x)
	sign := uint16(bits >> 16 & 0x8000)
	magnitude := bits &^ float32SignMask
	switch {
	case magnitude >= float16Overflow:
		if magnitude > float32Infinity {
			return sign | float16Infinity | float16QuietBit | uint16(magnitude>>13&0x3ff)
		}
		return sign | float16Infinity
	case magnitude < float16MinNormal:
		// Adding 0.5 leaves the count of 2^-24 steps in the low bits, rounded by
		// the addition itself.
		sum := math.Float32frombits(magnitude) + 0.5
		return sign | uint16(math.Float32bits(sum)-float16SubHalf)
	default:
		// A carry out of the mantissa moves into the exponent, up to infinity.
		rounded := magnitude - float16ExpBias<<23 + 0xfff + magnitude>>13&1
		return sign | uint16(rounded>>13)
	}
}

// RoundF16 returns the binary16 number nearest to x, as a float32; see
// [F32ToF16].
func RoundF16(x float32) float32 {
	return F16ToF32(F32ToF16(x))
}

// BF16SliceToF32 widens the len(dst) little-endian bfloat16 values of src into
// dst. Like the functions of encoding/binary it panics when src holds fewer
// than 2*len(dst) bytes.
func BF16SliceToF32(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for len(dst) >= 4 && len(src) >= 8 {
		four := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(four) << 16)
		dst[1] = math.Float32frombits(uint32(four) & 0xffff_0000)
		dst[2] = math.Float32frombits(uint32(four>>32) << 16)
		dst[3] = math.Float32frombits(uint32(four>>32) & 0xffff_0000)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// F32SliceToBF16 rounds the values of src to little-endian bfloat16 in dst; see
// [F32ToBF16]. It panics when dst holds fewer than 2*len(src) bytes.
func F32SliceToBF16(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for _, x := range src {
		binary.LittleEndian.PutUint16(dst, F32ToBF16(x))
		dst = dst[2:]
	}
}

// RoundBF16Slice stores the bfloat16 values nearest to those of src in dst,
// which may be src itself. It panics when dst is shorter than src.
func RoundBF16Slice(dst, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = RoundBF16(x)
	}
}

// F16SliceToF32 widens the len(dst) little-endian binary16 values of src into
// dst; see [F16ToF32]. It panics when src holds fewer than 2*len(dst) bytes.
func F16SliceToF32(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = F16ToF32(binary.LittleEndian.Uint16(src))
		src = src[2:]
	}
}

// F32SliceToF16 rounds the values of src to little-endian binary16 in dst; see
// [F32ToF16]. It panics when dst holds fewer than 2*len(src) bytes.
func F32SliceToF16(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for _, x := range src {
		binary.LittleEndian.PutUint16(dst, F32ToF16(x))
		dst = dst[2:]
	}
}

// RoundF16Slice stores the binary16 values nearest to those of src in dst,
// which may be src itself. It panics when dst is shorter than src.
func RoundF16Slice(dst, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = RoundF16(x)
	}
}

// F32SliceFromBytes reads the len(dst) little-endian float32 values of src into
// dst. It panics when src holds fewer than 4*len(dst) bytes.
func F32SliceFromBytes(dst []float32, src []byte) {
	src = src[:4*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src))
		src = src[4:]
	}
}

// F32SliceToBytes writes the values of src as little-endian float32 to dst. It
// panics when dst holds fewer than 4*len(src) bytes.
func F32SliceToBytes(dst []byte, src []float32) {
	dst = dst[:4*len(src)]
	for _, x := range src {
		binary.LittleEndian.PutUint32(dst, math.Float32bits(x))
		dst = dst[4:]
	}
}
