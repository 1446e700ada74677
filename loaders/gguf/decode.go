package gguf

import (
	"encoding/binary"
	"math"

	"github.com/etc-ml/etc/ir/numeric"
)

// The functions below compute what ggml's reference dequantization does (ggml-quants.c, dequantize_row_*), from
// blocks as ggml-common.h lays them out. Every product is rounded to float32 by itself.

// half reads an IEEE half at the start of p.
func half(p []byte) float32 { return numeric.F16ToF32(binary.LittleEndian.Uint16(p)) }

func putFloat(p []byte, i int, v float32) {
	binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
}

// decodeQ4_0: d f16, 32 codes of 4 bits; w = d·(q-8). Byte j has code j in its low half and j+16 in its high one.
func decodeQ4_0(dst, block []byte) {
	d := half(block)
	for j, b := range block[2:18] {
		putFloat(dst, j, float32(float32(int(b&15)-8)*d))
		putFloat(dst, j+16, float32(float32(int(b>>4)-8)*d))
	}
}

// decodeQ4_1: d, m f16, 32 codes as in Q4_0; w = d·q + m.
func decodeQ4_1(dst, block []byte) {
	d, m := half(block), half(block[2:])
	for j, b := range block[4:20] {
		putFloat(dst, j, float32(float32(b&15)*d)+m)
		putFloat(dst, j+16, float32(float32(b>>4)*d)+m)
	}
}

// decodeQ8_0: d f16, 32 codes of 8 bits with a sign; w = d·q.
func decodeQ8_0(dst, block []byte) {
	d := half(block)
	for j, b := range block[2:34] {
		putFloat(dst, j, float32(float32(int8(b))*d))
	}
}

// scaleMin returns the scale and minimum of group j of 8, 6 bits each, of the 12 bytes that Q4_K and Q5_K pack them in.
func scaleMin(p []byte, j int) (scale, minimum float32) {
	if j < 4 {
		return float32(p[j] & 63), float32(p[j+4] & 63)
	}
	return float32(p[j+4]&15 | p[j-4]>>6<<4), float32(p[j+4]>>4 | p[j]>>6<<4)
}

// groupParams returns scale and bias of group j of a Q4_K or Q5_K block: w = scale·q + bias. Both products are exact.
func groupParams(block []byte, j int) (scale, bias float32) {
	s, m := scaleMin(block[4:16], j)
	return float32(half(block) * s), -float32(half(block[2:]) * m)
}

// decodeQ4_K: d, dmin f16, 12 bytes of scales, 8 groups of 32 codes of 4 bits. Two neighbouring groups share 32 bytes:
// low halves, then high ones.
func decodeQ4_K(dst, block []byte) {
	codes := block[16:144]
	for j := range 8 {
		scale, bias := groupParams(block, j)
		for l, b := range codes[j/2*32:][:32] {
			putFloat(dst, 32*j+l, float32(scale*float32(b>>(4*(j%2))&15))+bias)
		}
	}
}

// decodeQ5_K is like Q4_K, with 32 bytes of fifth bits between scales and codes: bit j of byte l belongs to code l of
// group j.
func decodeQ5_K(dst, block []byte) {
	high, codes := block[16:48], block[48:176]
	for j := range 8 {
		scale, bias := groupParams(block, j)
		for l, b := range codes[j/2*32:][:32] {
			q := b>>(4*(j%2))&15 | high[l]>>j&1<<4
			putFloat(dst, 32*j+l, float32(scale*float32(q))+bias)
		}
	}
}

// decodeQ6_K: 128 bytes of the low 4 bits, 64 of the high 2 bits, 16 signed scales, d f16; w = d·scale·(q-32), a scale
// for 16 codes. Each half of the block has four runs of 32 codes: run r has its low bits in half r/2 of bytes 32·(r%2)
// on, its high bits at position 2r.
func decodeQ6_K(dst, block []byte) {
	d := half(block[208:])
	for n := range 2 {
		low, high, scales := block[64*n:][:64], block[128+32*n:][:32], block[192+8*n:][:8]
		for r := range 4 {
			for l := range 32 {
				q := int(low[32*(r%2)+l]>>(4*(r/2))&15|high[l]>>(2*r)&3<<4) - 32
				scale := float32(d * float32(int8(scales[2*r+l/16])))
				putFloat(dst, 128*n+32*r+l, float32(scale*float32(q)))
			}
		}
	}
}

// decodeMXFP4: the exponent of a power of two, 32 codes e2m1 in the order of Q4_0.
func decodeMXFP4(dst, block []byte) {
	d := numeric.E8M0ToF32(block[0])
	for j, b := range block[1:17] {
		putFloat(dst, j, float32(d*numeric.E2M1ToF32(b&15)))
		putFloat(dst, j+16, float32(d*numeric.E2M1ToF32(b>>4)))
	}
}

var decoders = map[Type]func(dst, block []byte){Q4_0: decodeQ4_0, Q4_1: decodeQ4_1, Q8_0: decodeQ8_0,
	Q4_K: decodeQ4_K, Q5_K: decodeQ5_K,
	Q6_K: decodeQ6_K, MXFP4: decodeMXFP4}
