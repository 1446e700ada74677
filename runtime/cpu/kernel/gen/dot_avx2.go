package main

import (
	"fmt"
	"math"
	"strings"
)

// The products of dot_avx512.go in 32-byte registers. There is no masked load of bytes: the last scales of a
// row go through the stack.

func dotAVX2() *file {
	f := &file{name: "dot_avx2", arch: "amd64", about: "Products of rows with vectors, AVX2 with FMA."}
	f.table("scaleOfWord256", scaleOfWord(8)...)
	f.table("wordOnes256", repeat(0x00010001, 8)...)
	f.table("wordSixteens256", repeat(0x00100010, 8)...)
	for _, bits := range []int{4, 8} {
		for _, format := range []string{"BF16", "F32"} {
			dotInteger256(f, bits, format)
			dotIntegerFour256(f, bits, format)
			dotQuantized256(f, bits, format)
		}
	}
	for _, format := range []string{"BF16", "F32"} {
		dotDense256(f, format)
	}
	return f
}

func repeat(word uint32, n int) []uint32 {
	words := make([]uint32, n)
	for i := range words {
		words[i] = word
	}
	return words
}

func dotInteger256(f *file, bits int, format string) {
	order := ""
	if bits == 4 {
		order = ", the even ones of 64 before the odd ones"
	}
	fn := f.function(fmt.Sprintf("dotIntegerQ%d%sAVX2", bits, format), dotIntegerParams, "",
		dotIntegerLoop(bits, format, order))
	fn.quantizedRows256(quantizedKernel{
		bits: bits, format: format, x: "codes_base", xBytes: 256 / bits,
		setUp: func() {
			fn.load("codeScales_base", "R9")
			fn.op("MOVL $0x0f0f0f0f, AX\nVMOVD AX, X15\nVPBROADCASTD X15, Y15\nVMOVDQU wordOnes256<>(SB), Y14\nVMOVDQU wordSixteens256<>(SB), Y13")
		},
		batch: func() { fn.op("VMULPS (R9)(BX*4), Y3, Y3") },
		chunk: func(i int, mask string) {
			low, high, sum, scale := y(4+i%2), y(6+i%2), y(8+i%2), y(10+i%2)
			fn.op("VPSRLD $4, %[1]s, %[2]s\nVPAND Y15, %[1]s, %[1]s\nVPAND Y15, %[2]s, %[2]s", low, high)
			if bits == 4 {
				// Sums of 4 products of at most 15·127 fit 16 bits.
				fn.op("VPMADDUBSW %d(CX), %s, %s\nVPMADDUBSW %d(CX), %s, %s\nVPADDW %s, %s, %s", 64*i, low, low,
					64*i+32, high, high, high, low, low)
				fn.op("VPMADDWD Y14, %s, %s", low, sum)
			} else {
				// Halves of codes of 8 bits.
				fn.op("VMOVDQU %d(CX), %s\nVPMADDUBSW %[2]s, %[3]s, %[3]s\nVPMADDUBSW %[2]s, %[4]s, %[4]s", 32*i, sum,
					low, high)
				fn.op("VPMADDWD Y14, %[1]s, %[1]s\nVPMADDWD Y13, %[2]s, %[2]s\nVPADDD %[1]s, %[2]s, %[3]s", low, high,
					sum)
			}
			// One sum, in the order of dotIntegerFour.
			fn.op("VCVTDQ2PS %s, %s\nVMOVDQU %d(R15), %s\nVPERMPS Y3, %s, %s\nVFMADD231PS %s, %s, Y0", sum, sum, 32*i,
				scale, scale, scale, scale, sum)
		},
		codes: func(i int) string { return y(4 + i%2) },
	})
}

// dotIntegerFour256 is dotInteger256 for 4 rows at a time, with the same bits, in batches of 8 groups, of 4 at the end,
// and chunks of 32 bytes of each. Registers of addresses are those of dotIntegerFour512. It is long because it is one
// assembly routine: its registers are assigned across all of it.
//
//	Y0 to Y3 sums   Y4 to Y7 scales   Y12 scaleOfWord   Y13 to Y15 constants; sums of biases on the stack
func dotIntegerFour256(f *file, bits int, format string) {
	order := ""
	if bits == 4 {
		order = ", the even ones of 64 before the odd ones"
	}
	fn := f.function(fmt.Sprintf("dotIntegerFourQ%d%sAVX2", bits, format), dotIntegerParams, "",
		dotIntegerLoop(bits, format, order)+`
The number of rows is a multiple of 4, that of groups too. Rows r, n+r, 2n+r and 3n+r, n = len(y)/4, are read
at the same time.`)
	fn.frame = 144
	const index, factor = "index-8(SP)", "factor-16(SP)"
	bias := func(n int) string { return fmt.Sprintf("bias%d-%d(SP)", n, 48+32*n) }
	size := floatBytes(format)
	fn.fourRows(bits, size)
	fn.op("SUBQ $128, AX\nLEAQ scaleOfWord256<>(SB), CX\nADDQ CX, AX\nMOVQ AX, %s", index)
	fn.op("MOVL $0x%08x, AX\nMOVL $0x%08x, BX\nTESTQ DX, DX\nCMOVQEQ BX, AX\nMOVL AX, %s", math.Float32bits(1),
		math.Float32bits(-float32(int(1)<<(bits-1))), factor)
	fn.op("MOVL $0x0f0f0f0f, AX\nVMOVD AX, X15\nVPBROADCASTD X15, Y15\nVMOVDQU wordOnes256<>(SB), Y14")
	if bits == 8 {
		fn.op("VMOVDQU wordSixteens256<>(SB), Y13")
	}
	row, full, last, done, reduce := fn.label("row"), fn.label("full"), fn.label("last"),
		fn.label("done"), fn.label("reduce")
	loadFloats := func(from string, to, groups int) {
		if groups == 8 {
			fn.loadFloats256(format, from, y(to))
		} else {
			fn.loadFloats256(format, from, x(to)) // clears the other half
		}
	}
	batch := func(groups int) {
		symmetric, scaled, chunk := fn.label("symmetric"), fn.label("scaled"), fn.label("chunk")
		fn.eachOfFour("SI", size, func(n int, from string) { loadFloats(from, 4+n, groups) })
		fn.op("MOVQ %s, AX\nVMOVUPS (AX)(BX*4), Y8\nTESTQ DX, DX\nJZ %s", fn.argument("sums_base"), symmetric)
		fn.eachOfFour("DX", size, func(n int, from string) {
			loadFloats(from, 10, groups)
			fn.op("VMOVUPS %[1]s, Y9\nVFMADD231PS Y8, Y10, Y9\nVMOVUPS Y9, %[1]s", bias(n))
		})
		fn.op("JMP %s", scaled)
		fn.at(symmetric)
		for n := range 4 {
			fn.op("VMOVUPS %[1]s, Y9\nVFMADD231PS Y8, %[2]s, Y9\nVMOVUPS Y9, %[1]s", bias(n), y(4+n))
		}
		fn.at(scaled)
		fn.op("MOVQ %s, AX\nVMOVUPS (AX)(BX*4), Y8\nMOVQ %s, R15", fn.argument("codeScales_base"), index)
		for n := range 4 {
			fn.op("VMULPS Y8, %s, %s", y(4+n), y(4+n))
		}
		// groups·group·bits/256 chunks, two at a time.
		shift := map[int]int{4: 4, 8: 3}[bits]
		if groups == 4 {
			shift++
		}
		fn.op("MOVQ %s, AX\nSHRQ $%d, AX", fn.argument("group"), shift)
		fn.at(chunk)
		for i := range 2 {
			fn.op("VMOVDQU %d(R15), Y12", 32*i)
			for n := range 4 {
				fn.chunkOfFour256(bits, i, n)
			}
		}
		fn.op("ADDQ $64, DI\nADDQ $%d, CX\nADDQ $64, R15\nDECQ AX\nJNZ %s", 2*256/bits, chunk)
	}
	fn.op("TESTQ R12, R12\nJZ %s", done)
	fn.at(row)
	fn.zero("Y0", "Y1", "Y2", "Y3")
	for n := range 4 {
		fn.op("VMOVUPS Y0, %s", bias(n))
	}
	fn.op("XORQ BX, BX\nMOVQ %s, CX", fn.argument("codes_base"))
	fn.at(full)
	fn.op("MOVQ R13, AX\nSUBQ BX, AX\nCMPQ AX, $8\nJLT %s", last)
	batch(8)
	fn.op("ADDQ $8, BX\nJMP %s", full)
	fn.at(last)
	fn.op("TESTQ AX, AX\nJZ %s", reduce)
	batch(4)
	fn.at(reduce)
	fn.op("VBROADCASTSS %s, Y8", factor)
	for n := range 4 {
		fn.op("VMOVUPS %s, Y9\nVFMADD231PS Y8, Y9, %s", bias(n), y(n))
		fn.reduce256(n, 10)
	}
	fn.storeFour(size)
	fn.op("DECQ R12\nJNZ %s", row)
	fn.at(done)
	fn.returnAMD64()
}

// chunkOfFour256 adds chunk i of row n, from DI, CX and R15 on, to its sum.
func (fn *function) chunkOfFour256(bits, i, n int) {
	from := fmt.Sprintf("%d%s", 32*i, rowOfFour(n))
	if i == 0 {
		fn.op("PREFETCHT0 %d%s", fourAhead, rowOfFour(n))
	}
	fn.op("VMOVDQU %s, Y8\nVPSRLD $4, Y8, Y9\nVPAND Y15, Y8, Y8\nVPAND Y15, Y9, Y9", from)
	if bits == 4 {
		fn.op("VPMADDUBSW %d(CX), Y8, Y8\nVPMADDUBSW %d(CX), Y9, Y9\nVPADDW Y9, Y8, Y8\nVPMADDWD Y14, Y8, Y10", 64*i,
			64*i+32)
	} else {
		fn.op("VMOVDQU %d(CX), Y10\nVPMADDUBSW Y10, Y8, Y8\nVPMADDUBSW Y10, Y9, Y9", 32*i)
		fn.op("VPMADDWD Y14, Y8, Y8\nVPMADDWD Y13, Y9, Y9\nVPADDD Y8, Y9, Y10")
	}
	fn.op("VCVTDQ2PS Y10, Y10\nVPERMPS %s, Y12, Y11\nVFMADD231PS Y11, Y10, %s", y(4+n), y(n))
}

func dotQuantized256(f *file, bits int, format string) {
	order := ""
	if bits == 4 {
		order = ", whose elements spread4AVX2 has ordered and scaled"
	}
	fn := f.function(fmt.Sprintf("dotQuantizedQ%d%sAVX2", bits, format), dotQuantizedParams, "",
		dotQuantizedLoop(bits, format, order))
	fn.quantizedRows256(quantizedKernel{
		bits: bits, format: format, x: "x_base", xBytes: 4 * 256 / bits,
		setUp: func() {
			if bits == 4 {
				for j := range 7 {
					fn.op("MOVL $0x%08x, AX\nVMOVD AX, %s\nVPBROADCASTD %s, %s", 15<<(4*j), x(8+j), x(8+j), y(8+j))
				}
			}
		},
		batch: func() {},
		chunk: func(i int, mask string) {
			if bits == 4 {
				for j := range 8 {
					sum := y(5 + j%2)
					if j < 7 {
						fn.op("VPAND %s, Y4, Y7", y(8+j))
					} else {
						fn.op("VPSRLD $28, Y4, Y7")
					}
					fn.op("VCVTDQ2PS Y7, Y7")
					if j < 2 {
						fn.op("VMULPS %d(CX), Y7, %s", 256*i+32*j, sum)
					} else {
						fn.op("VFMADD231PS %d(CX), Y7, %s", 256*i+32*j, sum)
					}
				}
				fn.op("VADDPS Y6, Y5, Y5\nVMOVDQU %d(R15), Y7\nVPERMPS Y3, Y7, Y7\nVFMADD231PS Y7, Y5, %s", 32*i,
					y(i%2))
				return
			}
			// A chunk of 32 codes has one scale.
			for j := range 4 {
				code, sum := y(7+j), y(5+j%2)
				fn.op("VPMOVZXBD %d(DI), %s\nVCVTDQ2PS %s, %s", 32*i+8*j, code, code, code)
				if j < 2 {
					fn.op("VMULPS %d(CX), %s, %s", 128*i+32*j, code, sum)
				} else {
					fn.op("VFMADD231PS %d(CX), %s, %s", 128*i+32*j, code, sum)
				}
			}
			fn.op("VADDPS Y6, Y5, Y5\nVPBROADCASTD %d(R15), Y7\nVPERMPS Y3, Y7, Y7\nVFMADD231PS Y7, Y5, %s", 32*i,
				y(i%2))
		},
		codes: func(i int) string {
			if bits == 8 {
				return ""
			}
			return "Y4"
		},
	})
}

// loadFloats256 loads 8 float32 that are stored as bf16 or as they are.
func (fn *function) loadFloats256(format, from, to string) {
	if format == "BF16" {
		fn.op("VPMOVZXWD %s, %s\nVPSLLD $16, %s, %s", from, to, to, to)
	} else {
		fn.op("VMOVUPS %s, %s", from, to)
	}
}

// quantizedRows256 writes a function that goes through rows, batches of 8 groups and chunks of 32 bytes. It is long
// because it is one assembly routine: its registers are assigned across all of it, as follows.
//
//	DI codes        SI scales of the row   DX biases of the row, or 0   R8 vector     CX vector at the chunk
//	R9 code scales  R10 sums               R11 y                        R12 rows left R13 groups of a row
//	BX first group of the batch            R15 scaleOfWord at the chunk
//	Y0, Y1 sums     Y2 sum of biases       Y3 scales
func (fn *function) quantizedRows256(k quantizedKernel) {
	fn.frame = 48
	const index, factor, last8 = "index-8(SP)", "factor-16(SP)", "last-48(SP)"
	size := floatBytes(k.format)
	fn.load("y_base", "R11", "data_base", "DI", "scales_base", "SI", "biases_base", "DX", k.x, "R8",
		"sums_base", "R10", "y_len", "R12")
	// A group is a power of two.
	fn.op("MOVQ %s, AX\nBSFQ AX, CX\nMOVQ %s, R13\nSHRQ CX, R13", fn.argument("group"), fn.argument("cols"))
	// The table for groups of w words starts after 8·(4 + … + w/2) entries of 4 bytes: 32·(w - 4).
	fn.op("IMULQ $%d, AX\nSUBQ $128, AX\nLEAQ scaleOfWord256<>(SB), CX\nADDQ CX, AX\nMOVQ AX, %s", k.bits, index)
	fn.op("MOVL $0x%08x, AX\nMOVL $0x%08x, BX\nTESTQ DX, DX\nCMOVQEQ BX, AX\nMOVL AX, %s", math.Float32bits(1),
		math.Float32bits(-float32(int(1)<<(k.bits-1))), factor)
	k.setUp()
	row, full, rest, chunk, reduce, done := fn.label("row"), fn.label("full"), fn.label("rest"), fn.label("chunk"),
		fn.label("reduce"), fn.label("done")
	loadChunk := func(i int) {
		if to := k.codes(i); to != "" {
			fn.op("VMOVDQU %d(DI), %s", 32*i, to)
		}
	}
	advance := func(n int) { fn.op("ADDQ $%d, CX\nADDQ $%d, R15", n*k.xBytes, n*32) }

	fn.op("TESTQ R12, R12\nJZ %s", done)
	fn.at(row)
	fn.zero("Y0", "Y1", "Y2")
	fn.op("XORQ BX, BX\nMOVQ R8, CX")
	fn.at(full)
	symmetric := fn.label("symmetric")
	fn.op("MOVQ R13, AX\nSUBQ BX, AX\nCMPQ AX, $8\nJLT %s", rest)
	fn.loadFloats256(k.format, fmt.Sprintf("(SI)(BX*%d)", size), "Y3")
	fn.op("VMOVAPS Y3, Y4\nTESTQ DX, DX\nJZ %s", symmetric)
	fn.loadFloats256(k.format, fmt.Sprintf("(DX)(BX*%d)", size), "Y4")
	fn.at(symmetric)
	fn.op("VFMADD231PS (R10)(BX*4), Y4, Y2\nMOVQ %s, R15", index)
	k.batch()
	// 8 groups are 8·group·bits/256 chunks, a multiple of 4.
	fn.op("MOVQ %s, AX\nSHRQ $%d, AX", fn.argument("group"), map[int]int{4: 5, 8: 4}[k.bits])
	fn.at(chunk)
	for i := range 4 {
		if i%2 == 0 {
			fn.op("PREFETCHT0 %d(DI)", prefetch+32*i)
		}
		loadChunk(i)
		k.chunk(i, "")
	}
	fn.op("ADDQ $128, DI")
	advance(4)
	fn.op("DECQ AX\nJNZ %s\nADDQ $8, BX\nJMP %s", chunk, full)

	// The last AX groups.
	fn.at(rest)
	fn.op("TESTQ AX, AX\nJZ %s", reduce)
	zeroLast := func() { fn.op("VXORPS Y4, Y4, Y4\nVMOVUPS Y4, %s", last8) }
	copyLast := func(from string) {
		loop := fn.label("copy")
		fn.op("LEAQ (%s)(BX*%d), R15\nXORQ R14, R14", from, size)
		fn.at(loop)
		if size == 2 {
			fn.op("MOVW (R15)(R14*2), CX\nMOVW CX, last-48(SP)(R14*2)")
		} else {
			fn.op("MOVL (R15)(R14*4), CX\nMOVL CX, last-48(SP)(R14*4)")
		}
		fn.op("INCQ R14\nCMPQ R14, AX\nJLT %s", loop)
	}
	symmetric = fn.label("symmetric")
	fn.op("VMOVQ CX, X5") // keep the place in the vector
	zeroLast()
	copyLast("SI")
	fn.loadFloats256(k.format, last8, "Y3")
	fn.op("VMOVAPS Y3, Y4\nTESTQ DX, DX\nJZ %s", symmetric)
	copyLast("DX")
	fn.loadFloats256(k.format, last8, "Y4")
	fn.at(symmetric)
	fn.op("VFMADD231PS (R10)(BX*4), Y4, Y2\nVMOVQ X5, CX\nMOVQ %s, R15", index)
	k.batch()
	// AX words; the last chunk may have 4 instead of 8.
	fn.op("IMULQ %s, AX\nSHRQ $%d, AX", fn.argument("group"), map[int]int{4: 3, 8: 2}[k.bits])
	part, half := fn.label("part"), fn.label("half")
	fn.at(part)
	fn.op("CMPQ AX, $8\nJLT %s\nPREFETCHT0 %d(DI)", half, prefetch)
	loadChunk(0)
	k.chunk(0, "")
	fn.op("ADDQ $32, DI")
	advance(1)
	fn.op("SUBQ $8, AX\nJMP %s", part)
	fn.at(half)
	if k.bits == 4 {
		fn.op("TESTQ AX, AX\nJZ %s\nVMOVDQU (DI), %s", reduce, "X"+k.codes(0)[1:])
		k.chunk(0, "")
		fn.op("ADDQ $16, DI")
	}

	fn.at(reduce)
	fn.op("VBROADCASTSS %s, Y4\nVFMADD231PS Y4, Y2, Y0\nVADDPS Y1, Y0, Y0", factor)
	fn.reduce256(0, 4)
	fn.op("VMOVSS X0, (R11)\nADDQ $4, R11\nLEAQ (SI)(R13*%d), SI", size)
	fn.op("LEAQ (DX)(R13*%d), BX\nTESTQ DX, DX\nCMOVQNE BX, DX\nDECQ R12\nJNZ %s", size, row)
	fn.at(done)
	fn.returnAMD64()
}

// dotDense256 has the registers of dotDense512.
func dotDense256(f *file, format string) {
	fn := f.function(fmt.Sprintf("dotDense%sAVX2", format), dotDenseParams, "",
		fmt.Sprintf(dotDenseDoc, strings.ToLower(format)))
	fn.dotDenseRows(func(vectors int) { fn.dotDenseBody256(format, vectors) })
}

// dotDenseBody256 is one row times vectors vectors, 1 or 4. It is long because it is one assembly routine: its
// registers are assigned across all of it.
func (fn *function) dotDenseBody256(format string, vectors int) {
	size := floatBytes(format)
	unroll := map[int]int{1: 4, 4: 2}[vectors] // registers of the row at a time
	sum := func(i, u int) int { return i*unroll + u }
	for i := range vectors * unroll {
		fn.zero(y(i))
	}
	registers := fn.pointAtRowVectors(vectors)
	advance := func(n int) {
		for _, r := range registers {
			fn.op("ADDQ $%d, %s", 4*n, r)
		}
		fn.op("ADDQ $%d, CX", size*n)
	}
	whole, part, one, reduce, last, end := fn.label("whole"), fn.label("part"), fn.label("one"), fn.label("reduce"),
		fn.label("last"), fn.label("end")
	fn.op("MOVQ DI, CX\nMOVQ %s, AX\nSUBQ $%d, AX\nJLT %s", fn.argument("cols"), 8*unroll, part)
	fn.at(whole)
	for u := range unroll {
		fn.op("PREFETCHT0 %d(CX)", prefetch+8*size*u)
		fn.loadFloats256(format, fmt.Sprintf("%d(CX)", 8*size*u), y(8+u))
		for i, r := range registers {
			fn.op("VFMADD231PS %d(%s), %s, %s", 32*u, r, y(8+u), y(sum(i, u)))
		}
	}
	advance(8 * unroll)
	fn.op("SUBQ $%d, AX\nJGE %s", 8*unroll, whole)
	fn.at(part)
	fn.op("ADDQ $%d, AX", 8*unroll)
	fn.at(one)
	fn.op("SUBQ $8, AX\nJLT %s", reduce)
	fn.loadFloats256(format, "(CX)", "Y8")
	for i, r := range registers {
		fn.op("VFMADD231PS (%s), Y8, %s", r, y(sum(i, 0)))
	}
	advance(8)
	fn.op("JMP %s", one)
	fn.at(reduce)
	for i := range vectors {
		for u := 1; u < unroll; u++ {
			fn.op("VADDPS %s, %s, %s", y(sum(i, u)), y(sum(i, 0)), y(sum(i, 0)))
		}
		fn.reduce256(sum(i, 0), 8+i)
	}
	// The last elements one by one.
	fn.op("ADDQ $8, AX")
	fn.at(last)
	fn.op("TESTQ AX, AX\nJLE %s", end)
	if format == "BF16" {
		fn.op("MOVWLZX (CX), R14\nSHLL $16, R14\nVMOVD R14, X8")
	} else {
		fn.op("VMOVSS (CX), X8")
	}
	for i, r := range registers {
		fn.op("VFMADD231SS (%s), X8, %s", r, x(sum(i, 0)))
	}
	advance(1)
	fn.op("DECQ AX\nJMP %s", last)
	fn.at(end)
	fn.storeRowVectors(vectors, func(i int) string { return x(sum(i, 0)) })
}
