package main

import (
	"fmt"
	"math"
)

// Rows in modes of small floats, made rows that other kernels multiply.

const (
	expandE2M1Params = "dst, src []byte"
	halfSixParams    = "halves, sixes, scales []byte"
	halfSixDoc       = `writes half of each scale e8m0 and -6 times it as bfloat16 numbers, whole 16 scales:

	for i, s := range scales {
		putBF16(halves[2*i:], 2^(s-128))
		putBF16(sixes[2*i:], -6*2^(s-127))
	}

Scales are between 10 and 246.`
	expandE4M3Params = "dst, src, scales []byte"
	fromCodesParams  = "dst []float32, codes, scales []byte"
	fromCodesDoc     = `writes the numbers that signed codes in groups of 32 with bfloat16 scales stand for:

	for i, c := range codes {
		dst[i] = float32(int8(c)) * bf16(scales[i/32*2:])
	}`
	expandE2M1Doc = `writes a byte for each of the two codes of a byte, the lower one first, from whole 16 bytes on:

	for i, c := range src {
		dst[2*i], dst[2*i+1] = uint8(2*e2m1(c&15)+12), uint8(2*e2m1(c>>4)+12)
	}`
	expandE4M3Doc = `writes the bfloat16 numbers that codes e4m3 in groups of 32 stand for:

	for i, c := range src {
		putBF16(dst[2*i:], e4m3(c) * 2^(scales[i/32]-127))
	}

Scales are between 10 and 246, so that no number that is not zero is subnormal, and none infinite.`
)

// e2m1Bytes returns the table of expandE2M1, as words.
func e2m1Bytes() (words []uint32) {
	var table [16]byte
	for i, twice := range []int{0, 1, 2, 3, 4, 6, 8, 12} {
		table[i], table[i+8] = byte(12+twice), byte(12-twice)
	}
	return tableWords(table)
}

// e4m3Subnormals has the lower bytes of the bfloat16 numbers 0 to 7 times 2^-9, then the upper ones.
func e4m3Subnormals() []uint32 {
	var table [16]byte
	for m := range 8 {
		bits := math.Float32bits(float32(m) / 512)
		table[m], table[m+8] = byte(bits>>16), byte(bits>>24)
	}
	return tableWords(table)
}

func tableWords(table [16]byte) (words []uint32) {
	for i := 0; i < 16; i += 4 {
		words = append(words, uint32(table[i])|uint32(table[i+1])<<8|uint32(table[i+2])<<16|uint32(table[i+3])<<24)
	}
	return words
}

func expandAVX2() *file {
	f := &file{name: "expand_avx2", arch: "amd64", about: "Rows of small floats, AVX2."}
	f.table("e2m1Bytes", append(e2m1Bytes(), e2m1Bytes()...)...)
	f.table("e4m3Subnormals", append(e4m3Subnormals(), e4m3Subnormals()...)...)
	expandE2M1X86(f.function("expandE2M1AVX2", expandE2M1Params, "", expandE2M1Doc))
	halfSixX86(f.function("halfSixAVX2", halfSixParams, "", halfSixDoc))
	expandE4M3X86(f.function("expandE4M3AVX2", expandE4M3Params, "", expandE4M3Doc))
	fromCodesX86(f.function("fromCodesAVX2", fromCodesParams, "", fromCodesDoc))
	return f
}

// broadcastWords puts a word of 16 bits into all lanes; AX is overwritten.
func (fn *function) broadcastWords(word int, to int) {
	fn.op("MOVL $0x%08x, AX\nVMOVD AX, %s\nVPBROADCASTD %s, %s", word<<16|word, x(to), x(to), y(to))
}

func expandE2M1X86(fn *function) {
	loop, end := fn.label("loop"), fn.label("end")
	fn.load("dst_base", "DI", "src_base", "SI", "src_len", "BX")
	fn.broadcastWords(0x0f0f, 15)
	fn.op("VMOVDQU e2m1Bytes<>(SB), Y14")
	fn.at(loop)
	fn.op("SUBQ $16, BX\nJLT %s", end)
	// A byte becomes a word, whose upper byte has the upper code then.
	fn.op("PREFETCHT0 %d(SI)\nVPMOVZXBW (SI), Y0\nVPSLLW $4, Y0, Y1\nVPOR Y1, Y0, Y0\nVPAND Y15, Y0, Y0\nVPSHUFB Y0, Y14, Y0\nVMOVDQU Y0, (DI)", prefetch)
	fn.op("ADDQ $16, SI\nADDQ $32, DI\nJMP %s", loop)
	fn.at(end)
	fn.returnAMD64()
}

// halfSixX86: an exponent lies 7 bits up; −6 is −1.5 times 4.
func halfSixX86(fn *function) {
	loop, end := fn.label("loop"), fn.label("end")
	fn.load("halves_base", "DI", "sixes_base", "DX", "scales_base", "SI", "scales_len", "BX")
	fn.broadcastWords(0x0080, 15)
	fn.broadcastWords(0x8000+2<<7+0x40, 14)
	fn.at(loop)
	fn.op("SUBQ $16, BX\nJLT %s", end)
	fn.op("VPMOVZXBW (SI), Y0\nVPSLLW $7, Y0, Y0\nVPSUBW Y15, Y0, Y1\nVPADDW Y14, Y0, Y0\nVMOVDQU Y1, (DI)\nVMOVDQU Y0, (DX)")
	fn.op("ADDQ $16, SI\nADDQ $32, DI\nADDQ $32, DX\nJMP %s", loop)
	fn.at(end)
	fn.returnAMD64()
}

// expandE4M3X86: Y10 and Y11 what is added to the exponents of normal and of subnormal numbers.
func expandE4M3X86(fn *function) {
	loop, end := fn.label("loop"), fn.label("end")
	fn.load("dst_base", "DI", "src_base", "SI", "scales_base", "R8", "scales_len", "BX")
	fn.broadcastWords(0x007f, 15)
	fn.broadcastWords(0x0008, 14)
	fn.broadcastWords(0x0800, 13)
	fn.op("VMOVDQU e4m3Subnormals<>(SB), Y12\nVPXOR Y9, Y9, Y9")
	fn.at(loop)
	fn.op("SUBQ $1, BX\nJLT %s", end)
	fn.op("MOVBLZX (R8), AX\nSUBL $7, AX\nSHLL $7, AX\nVMOVD AX, X10\nVPBROADCASTW X10, Y10")
	fn.op("SUBL $%d, AX\nVMOVD AX, X11\nVPBROADCASTW X11, Y11", (127-7)<<7)
	fn.op("PREFETCHT0 %d(SI)", prefetch)
	for half := range 2 {
		fn.op("VPMOVZXBW %d(SI), Y0\nVPAND Y15, Y0, Y1\nVPXOR Y1, Y0, Y0\nVPSLLW $8, Y0, Y0", 16*half)
		fn.op("VPSLLW $4, Y1, Y2\nVPADDW Y10, Y2, Y2")
		fn.op("VPSLLW $8, Y1, Y3\nVPOR Y1, Y3, Y3\nVPADDW Y13, Y3, Y3\nVPSHUFB Y3, Y12, Y3\nVPADDW Y11, Y3, Y3")
		fn.op("VPCMPGTW Y1, Y14, Y4\nVPBLENDVB Y4, Y3, Y2, Y2\nVPCMPEQW Y9, Y1, Y4\nVPANDN Y2, Y4, Y2\nVPOR Y0, Y2, Y2")
		fn.op("VMOVDQU Y2, %d(DI)", 32*half)
	}
	fn.op("ADDQ $32, SI\nADDQ $64, DI\nADDQ $1, R8\nJMP %s", loop)
	fn.at(end)
	fn.returnAMD64()
}

func fromCodesX86(fn *function) {
	loop, end := fn.label("loop"), fn.label("end")
	fn.load("dst_base", "DI", "codes_base", "SI", "scales_base", "R8", "scales_len", "BX")
	fn.at(loop)
	fn.op("SUBQ $2, BX\nJLT %s", end)
	fn.op("MOVWLZX (R8), AX\nSHLL $16, AX\nVMOVD AX, X15\nVPBROADCASTD X15, Y15")
	for i := range 4 {
		fn.op("VPMOVSXBD %d(SI), Y%d\nVCVTDQ2PS Y%[2]d, Y%[2]d\nVMULPS Y15, Y%[2]d, Y%[2]d\nVMOVUPS Y%[2]d, %[3]d(DI)",
			8*i, i, 32*i)
	}
	fn.op("ADDQ $32, SI\nADDQ $128, DI\nADDQ $2, R8\nJMP %s", loop)
	fn.at(end)
	fn.returnAMD64()
}

func expandNEON() *file {
	f := &file{name: "expand_neon", arch: "arm64", about: "Rows of small floats, NEON."}
	f.table("e2m1Bytes", e2m1Bytes()...)
	f.table("e4m3Subnormals", e4m3Subnormals()...)
	expandE2M1NEON(f.function("expandE2M1NEON", expandE2M1Params, "", expandE2M1Doc))
	halfSixNEON(f.function("halfSixNEON", halfSixParams, "", halfSixDoc))
	expandE4M3NEON(f.function("expandE4M3NEON", expandE4M3Params, "", expandE4M3Doc))
	return f
}

func expandE2M1NEON(fn *function) {
	loop, end := fn.label("loop"), fn.label("end")
	fn.loadARM64("dst_base", "R0", "src_base", "R1", "src_len", "R2")
	fn.op("VMOVI $15, V31.B16\nMOVD $e2m1Bytes<>(SB), R3\nVLD1 (R3), [V30.B16]")
	fn.at(loop)
	fn.op("SUBS $16, R2, R2\nBLT %s", end)
	fn.op("VLD1.P 16(R1), [V0.B16]\nVUSHR $4, V0.B16, V1.B16\nVAND V31.B16, V0.B16, V0.B16")
	fn.op("VTBL V0.B16, [V30.B16], V0.B16\nVTBL V1.B16, [V30.B16], V1.B16")
	fn.op("VZIP1 V1.B16, V0.B16, V2.B16\nVZIP2 V1.B16, V0.B16, V3.B16\nVST1.P [V2.B16, V3.B16], 32(R0)\nB %s", loop)
	fn.at(end)
	fn.op("RET")
}

// halfSixNEON is as halfSixX86.
func halfSixNEON(fn *function) {
	loop, end := fn.label("loop"), fn.label("end")
	fn.loadARM64("halves_base", "R0", "sixes_base", "R4", "scales_base", "R1", "scales_len", "R2")
	fn.op("MOVD $0x80, R7\nVDUP R7, V31.H8\nMOVD $%d, R7\nVDUP R7, V30.H8", 0x8000+2<<7+0x40)
	fn.at(loop)
	fn.op("SUBS $16, R2, R2\nBLT %s", end)
	fn.op("VLD1.P 16(R1), [V0.B16]\nVUSHLL2 $7, V0.B16, V1.H8\nVUSHLL $7, V0.B8, V0.H8")
	fn.op("VSUB V31.H8, V0.H8, V2.H8\nVSUB V31.H8, V1.H8, V3.H8\nVADD V30.H8, V0.H8, V0.H8\nVADD V30.H8, V1.H8, V1.H8")
	fn.op("VST1.P [V2.B16, V3.B16], 32(R0)\nVST1.P [V0.B16, V1.B16], 32(R4)\nB %s", loop)
	fn.at(end)
	fn.op("RET")
}

// expandE4M3NEON: V20 and V21 what is added to the exponents of normal and of subnormal numbers.
func expandE4M3NEON(fn *function) {
	loop, end := fn.label("loop"), fn.label("end")
	fn.loadARM64("dst_base", "R0", "src_base", "R1", "scales_base", "R3", "scales_len", "R2")
	for _, c := range []struct{ word, to int }{{0x7f, 31}, {0x78, 30}, {0x0800, 29}} {
		fn.op("MOVD $%d, R7\nVDUP R7, V%d.H8", c.word, c.to)
	}
	fn.op("MOVD $e4m3Subnormals<>(SB), R7\nVLD1 (R7), [V28.B16]")
	fn.at(loop)
	fn.op("SUBS $1, R2, R2\nBLT %s", end)
	fn.op("MOVBU.P 1(R3), R7\nSUB $7, R7\nLSL $7, R7\nVDUP R7, V20.H8\nMOVD $%d, R8\nSUB R8, R7\nVDUP R7, V21.H8",
		(127-7)<<7)
	fn.op("VLD1.P 32(R1), [V0.B16, V1.B16]")
	for i := range 4 {
		from, to := fmt.Sprintf("V%d.B8", i/2), 2+i
		if i%2 == 0 {
			fn.op("VUSHLL $0, %s, V%d.H8", from, to)
		} else {
			fn.op("VUSHLL2 $0, V%d.B16, V%d.H8", i/2, to)
		}
		fn.op("VAND V31.B16, %s, V16.B16\nVEOR V16.B16, %s, V17.B16\nVSHL $8, V17.H8, V17.H8", v(to), v(to))
		fn.op("VSHL $4, V16.H8, V18.H8\nVADD V20.H8, V18.H8, V18.H8")
		fn.op("VSHL $8, V16.H8, V19.H8\nVORR V16.B16, V19.B16, V19.B16\nVADD V29.H8, V19.H8, V19.H8")
		fn.op("VTBL V19.B16, [V28.B16], V19.B16\nVADD V21.H8, V19.H8, V19.H8")
		fn.op("VCMTST V30.H8, V16.H8, %[2]s\nVBSL V19.B16, V18.B16, %[1]s", v(to), fmt.Sprintf("V%d.H8", to))
		fn.op("VCMTST V16.H8, V16.H8, V18.H8\nVAND V18.B16, %[1]s, %[1]s\nVORR V17.B16, %[1]s, %[1]s", v(to))
	}
	fn.op("VST1.P [V2.B16, V3.B16, V4.B16, V5.B16], 64(R0)\nB %s", loop)
	fn.at(end)
	fn.op("RET")
}
