package main

import (
	"fmt"
	"math"
)

// A few vectors times 16 rows of a matrix. The rows are turned in registers, 16 words of each at a time, and multiplied
// there. Tiles read the turned words from a panel in memory; to write a panel and to read it again costs as much as the
// products of some eight vectors.

const fewVectors512 = 8

func fewAVX512() *file {
	f := &file{name: "few_avx512", arch: "amd64", about: "Products of a few vectors of codes, AVX-512 with VNNI."}
	f.table("magicOfFew512", math.Float32bits(magic))
	for _, bits := range []int{4, 8} {
		for _, format := range []string{"BF16", "F32"} {
			fewInteger512(f, bits, format)
		}
	}
	return f
}

const fewIntegerParams = "sums []float32, data []byte, rowBytes int, scales, biases []float32, codes []int8, codeStride int, codeScales, codeSums []float32, groupStride, vectors, groups, group int"

const fewIntegerDoc = `adds the products of vectors of 8-bit codes with 16 rows of %[1]d-bit codes, rowBytes apart, to sums, for at most %[2]d vectors%[3]s:

	for i := range vectors {
		for g := range groups {
			for r := range 16 {
				dot := int32(0)
				for k := g * group; k < (g+1)*group; k++ {
					dot += int32(codes[i*codeStride+k]) * int32(code(r, k))
				}
				at := 32*g + r
				sums[32*i+r] += float32(dot)*scales[at]*codeScales[i*groupStride+g] + biases[at]*codeSums[i*groupStride+g]
			}
		}
	}

A group is a multiple of 32 codes, and has %[4]d at most. The bits are those of tileInteger.`

// fewInteger512 has these registers. It is long because it is one assembly routine: its registers are assigned across
// all of it.
//
//	DI sums   SI rows at the chunk of 16 words   R9 rowBytes   R8, R10 scales and biases of the group
//	R11, R12, R13 vectors at the chunk   BX bytes between vectors   R14 place of the group in code scales and sums
//	R15 row to fetch   K1 words of the chunk that rows have   Z0 to Z15 words   Z16 to Z23 sums of the group
//	Z31 mask of a code of 4 bits
//
// Turning a chunk takes all 32 registers, so that no sum of a group outlives it: a group ends in the chunk that it
// begins in.
func fewInteger512(f *file, bits int, format string) {
	order := ""
	if bits == 4 {
		order = ", of whose 8 codes the even ones come first"
	}
	doc := fmt.Sprintf(fewIntegerDoc, bits, fewVectors512, order, 512/bits)
	if format == "BF16" {
		doc += "\n\nEvery scale is a bfloat16 number, and dot is below 2^22 in magnitude."
	}
	fn := f.function(fmt.Sprintf("fewIntegerQ%d%sAVX512", bits, format), fewIntegerParams, "", doc)
	fn.frame = 32
	const left, words, stride, groups = "left-8(SP)", "words-16(SP)", "stride-24(SP)", "groups-32(SP)"
	fn.load("sums_base", "DI", "data_base", "SI", "rowBytes", "R9", "scales_base", "R8", "biases_base", "R10",
		"codes_base", "R11", "codeStride", "BX", "groups", "CX", "group", "AX")
	fn.op("MOVQ CX, %s", groups)
	fn.op("MOVQ AX, %s\nIMULQ CX, AX\nSHRQ $%d, AX\nMOVQ AX, %s", left, map[int]int{4: 3, 8: 2}[bits], words)
	fn.op("MOVQ %s, AX\nSHLQ $2, AX\nMOVQ AX, %s\nXORQ R14, R14\nMOVQ %s, CX", fn.argument("groupStride"), stride,
		fn.argument("vectors"))
	base := []string{"R11", "R12", "R13"}
	codes := 32 / bits // of a word
	fn.byVectors(fewVectors512, "CX", func(n int) {
		fn.pointAtVectors(n, base, "BX", "AX")
		chunk, end := fn.label("chunk"), fn.label("end")
		sum := func(i int) string { return z(16 + i) }
		begin := func() {
			for i := range n {
				if format == "BF16" {
					fn.op("VPBROADCASTD magicOfFew512<>(SB), %s", sum(i))
				} else {
					fn.zero(sum(i))
				}
			}
		}
		fn.op("CMPQ %s, $0\nJEQ %s", groups, end)
		fn.at(chunk)
		fn.op("MOVQ %s, CX\nMOVL $16, AX\nCMPQ CX, AX\nCMOVQLT CX, AX\nSUBQ $16, %s", words, words)
		fn.op("MOVL $-1, CX\nBZHIL AX, CX, CX\nKMOVW CX, K1")
		fn.turn512(func(from, to string) { fn.op("VMOVDQU32.Z %s, K1, %s", from, to) })
		fn.fetchAhead("R15")
		fn.op("ADDQ $64, SI")
		begin()
		if bits == 4 {
			fn.op("MOVL $0x0f0f0f0f, AX\nVPBROADCASTD AX, Z31")
		}
		for w := range 16 {
			fn.fetchLine("R15")
			multiply := func(place int, register string) {
				for i := range n {
					fn.op("VPDPBUSD.BCST %s, %s, %s", vectorAddress(i, place, base, "BX"), register, sum(i))
				}
			}
			if bits == 4 {
				fn.op("VPSRLD $4, %s, Z28\nVPANDD Z31, %s, %s\nVPANDD Z31, Z28, Z28", z(w), z(w), z(w))
				multiply(8*w, z(w))
				multiply(8*w+4, "Z28")
			} else {
				multiply(4*w, z(w))
			}
			if (w+1)*codes%32 == 0 {
				same := fn.label("same")
				fn.op("SUBQ $32, %s\nJNZ %s", left, same)
				fn.endGroupOfFew512(format, n, left, stride)
				fn.op("DECQ %s\nJZ %s", groups, end)
				if w < 15 {
					begin()
				}
				fn.at(same)
			}
		}
		for i := range (n + 2) / 3 {
			fn.op("ADDQ $%d, %s", 16*codes, base[i])
		}
		fn.op("JMP %s", chunk)
		fn.at(end)
	})
}

// endGroupOfFew512 adds the sums of a group, of n vectors, to those of the rows. It overwrites the first four words of
// the chunk, which were used, and Z29.
func (fn *function) endGroupOfFew512(format string, n int, left, stride string) {
	fn.op("MOVQ %s, AX\nMOVQ AX, %s", fn.argument("group"), left)
	fn.op("VMOVUPS (R8), Z0\nVMOVUPS (R10), Z1\nADDQ $128, R8\nADDQ $128, R10")
	if format == "BF16" {
		fn.op("VMULPS.BCST magicOfFew512<>(SB), Z0, Z2")
	}
	fn.op("MOVQ %s, AX\nADDQ R14, AX\nMOVQ %s, CX\nADDQ R14, CX\nADDQ $4, R14", fn.argument("codeScales_base"),
		fn.argument("codeSums_base"))
	for i := range n {
		fn.op("VBROADCASTSS (AX), Z3\nVBROADCASTSS (CX), Z29")
		if i < n-1 {
			fn.op("ADDQ %s, AX\nADDQ %s, CX", stride, stride)
		}
		fn.addGroup512(format, z(16+i), 128*i, groupOfRows{scale: "Z0", magic: "Z2", bias: "Z1"}, "Z3", "Z29")
	}
}
