package main

import (
	"fmt"
	"math"
	"strings"
)

// Products of rows with one vector or a few. The sums of a row stay in the lanes of registers until its end.
//
// A core that reads memory in one stream waits for it: the hardware prefetches each page by itself and no
// further ahead than some lines. Integer products of 4 rows at a time, each of them from another quarter of
// the rows, read at 1.5 times the speed of one row after the other.

func dotAVX512() *file {
	f := &file{name: "dot_avx512", arch: "amd64", about: "Products of rows with vectors, AVX-512 with VNNI."}
	f.table("scaleOfWord512", scaleOfWord(16)...)
	for _, bits := range []int{4, 8} {
		for _, format := range []string{"BF16", "F32"} {
			dotInteger512(f, bits, format)
			dotIntegerFour512(f, bits, format)
			dotQuantized512(f, bits, format)
		}
	}
	for _, format := range []string{"BF16", "F32"} {
		dotDense512(f, format)
		dotDenseFour512(f, format)
	}
	return f
}

// scaleOfWord says which scale of a register of lanes scales belongs to which 32-bit word of codes: four
// tables, for groups of 4, 8, 16 and 32 words, each of lanes·(words of a group) entries.
func scaleOfWord(lanes int) (words []uint32) {
	for _, group := range []int{4, 8, 16, 32} {
		for i := range lanes * group {
			words = append(words, uint32(i/group))
		}
	}
	return words
}

// prefetch is how far ahead of use, in bytes, weights are fetched.
const prefetch = 3072

// fourAhead and scalesAhead are the same for products of 4 rows at a time. A batch of scales belongs to some 16 times
// its bytes of codes, so that scales are fetched as early as codes are. Further ahead they displace what is still
// to be read: there are 8 streams of them.
const fourAhead, scalesAhead = 1536, 128

// floatBytes returns the size of a stored float.
func floatBytes(format string) int { return map[string]int{"BF16": 2, "F32": 4}[format] }

const (
	dotIntegerParams   = "y []float32, data, scales, biases []byte, codes []int8, codeScales, sums []float32, cols, group int"
	dotQuantizedParams = "y []float32, data, scales, biases []byte, x, sums []float32, cols, group int"
)

// dotIntegerLoop returns the comment of a dotInteger function.
func dotIntegerLoop(bits int, format, order string) string {
	return fmt.Sprintf(`multiplies rows of %d-bit codes with %s scales by a vector of 8-bit codes%s:

	for r := range y {
		y[r] = 0
		for g := range cols / group {
			dot := int32(0)
			for k := g * group; k < (g+1)*group; k++ {
				dot += int32(code(r, k)) * int32(codes[k])
			}
			y[r] += scale(r, g)*codeScales[g]*float32(dot) + bias(r, g)*sums[g]
		}
	}

Without biases bias(r, g) is -%d*scale(r, g).`, bits, format, order, 1<<(bits-1))
}

// dotQuantizedLoop returns the comment of a dotQuantized function.
func dotQuantizedLoop(bits int, format, order string) string {
	return fmt.Sprintf(`multiplies rows of %d-bit codes with %s scales by a vector%s:

	for r := range y {
		y[r] = 0
		for g := range cols / group {
			dot := float32(0)
			for k := g * group; k < (g+1)*group; k++ {
				dot += float32(code(r, k)) * x[k]
			}
			y[r] += scale(r, g)*dot + bias(r, g)*sums[g]
		}
	}

Without biases bias(r, g) is -%d*scale(r, g).`, bits, format, order, 1<<(bits-1))
}

func dotInteger512(f *file, bits int, format string) {
	order := ""
	if bits == 4 {
		order = ", the even ones of 128 before the odd ones"
	}
	fn := f.function(fmt.Sprintf("dotIntegerQ%d%sAVX512", bits, format), dotIntegerParams, "",
		dotIntegerLoop(bits, format, order))
	fn.quantizedRows512(quantizedKernel{
		bits: bits, format: format, x: "codes_base", xBytes: 512 / bits,
		setUp: func() {
			fn.load("codeScales_base", "R9")
			if bits == 4 {
				fn.op("MOVL $0x0f0f0f0f, AX\nVPBROADCASTD AX, Z31")
			}
		},
		batch: func() { fn.op("VMULPS (R9)(BX*4), Z16, Z16") },
		chunk: func(i int, mask string) {
			codes, high, dot, scale := z(4+i), z(18+i), z(8+i), z(22+i)
			fn.loadWords512(64*i, mask, codes)
			fn.zero(dot)
			if bits == 4 {
				fn.op("VPSRLD $4, %s, %s\nVPANDD Z31, %s, %s\nVPANDD Z31, %s, %s", codes, high,
					codes, codes, high, high)
				fn.op("VPDPBUSD %d(CX), %s, %s\nVPDPBUSD %d(CX), %s, %s", 128*i, codes, dot, 128*i+64, high, dot)
			} else {
				fn.op("VPDPBUSD %d(CX), %s, %s", 64*i, codes, dot)
			}
			fn.op("VCVTDQ2PS %s, %s\nVMOVDQU32 %d(R15), %s\nVPERMPS Z16, %s, %s", dot, dot, 64*i, scale, scale, scale)
			fn.op("VFMADD231PS %s, %s, Z0", scale, dot) // in the order of dotIntegerFour
		},
	})
}

// dotIntegerFour512 is dotInteger512 for 4 rows at a time, with the same bits, in batches of 16 groups and chunks of 64
// bytes of each. It is long because it is one assembly routine: its registers are assigned across all of it, as
// follows.
//
//	DI codes of row 0   R9, R8 bytes to rows 1 and 3   SI scales of row 0   DX biases of row 0, or 0
//	R10 bytes between scales of rows   CX vector at the chunk   R15 scaleOfWord at the chunk
//	R11 y   R12 rows left   R13 groups of a row   BX first group of the batch
//	Z0 to Z3 sums   Z4 to Z7 sums of biases   Z8 to Z11 scales
func dotIntegerFour512(f *file, bits int, format string) {
	order := ""
	if bits == 4 {
		order = ", the even ones of 128 before the odd ones"
	}
	fn := f.function(fmt.Sprintf("dotIntegerFourQ%d%sAVX512", bits, format), dotIntegerParams, "",
		dotIntegerLoop(bits, format, order)+`
The number of rows is a multiple of 4. Rows r, n+r, 2n+r and 3n+r, n = len(y)/4, are read at the same time.`)
	fn.frame = 16
	const index, factor = "index-8(SP)", "factor-16(SP)"
	size := floatBytes(format)
	fn.fourRows(bits, size)
	fn.op("SHLQ $1, AX\nSUBQ $256, AX\nLEAQ scaleOfWord512<>(SB), CX\nADDQ CX, AX\nMOVQ AX, %s", index)
	fn.op("MOVL $0x%08x, AX\nMOVL $0x%08x, BX", math.Float32bits(1), math.Float32bits(-float32(int(1)<<(bits-1))))
	fn.op("TESTQ DX, DX\nCMOVQEQ BX, AX\nMOVL AX, %s", factor)
	if bits == 4 {
		fn.op("MOVL $0x0f0f0f0f, AX\nVPBROADCASTD AX, Z31")
	}
	row, full, last, chunk, reduce, done := fn.label("row"), fn.label("full"), fn.label("last"), fn.label("chunk"),
		fn.label("reduce"), fn.label("done")
	loadBatch := func(mask string) {
		symmetric, scaled := fn.label("symmetric"), fn.label("scaled")
		fn.op("MOVQ %s, R14\nVMOVUPS (R14)(BX*4), Z12", fn.argument("sums_base"))
		fn.eachOfFour("SI", size, func(n int, from string) { fn.loadFloats512(format, from, mask, z(8+n)) })
		fn.op("TESTQ DX, DX\nJZ %s", symmetric)
		fn.eachOfFour("DX", size, func(n int, from string) {
			fn.loadFloats512(format, from, mask, z(16+n))
			fn.op("VFMADD231PS Z12, %s, %s", z(16+n), z(4+n))
		})
		fn.op("JMP %s", scaled)
		fn.at(symmetric)
		for n := range 4 {
			fn.op("VFMADD231PS Z12, %s, %s", z(8+n), z(4+n))
		}
		fn.at(scaled)
		fn.op("MOVQ %s, R14\nVMOVUPS (R14)(BX*4), Z12\nMOVQ %s, R15", fn.argument("codeScales_base"), index)
		for n := range 4 {
			fn.op("VMULPS Z12, %s, %s", z(8+n), z(8+n))
		}
	}
	xBytes := 512 / bits
	chunkOf := func(i int, mask string) {
		fn.op("VMOVDQU32 %d(CX), Z29", xBytes*i)
		if bits == 4 {
			fn.op("VMOVDQU32 %d(CX), Z30", xBytes*i+64)
		}
		fn.op("VMOVDQU32 %d(R15), Z28", 64*i)
		for n := range 4 {
			codes, high, dot, scale := z(12+n), z(16+n), z(20+n), z(24+n)
			if mask == "" {
				fn.op("PREFETCHT0 %d%s\nVMOVDQU32 %d%s, %s", fourAhead+64*i, rowOfFour(n), 64*i, rowOfFour(n), codes)
			} else {
				fn.op("VMOVDQU32.Z %d%s, %s, %s", 64*i, rowOfFour(n), mask, codes)
			}
			fn.zero(dot)
			if bits == 4 {
				fn.op("VPSRLD $4, %s, %s\nVPANDD Z31, %s, %s\nVPANDD Z31, %s, %s", codes, high,
					codes, codes, high, high)
				fn.op("VPDPBUSD Z29, %s, %s\nVPDPBUSD Z30, %s, %s", codes, dot, high, dot)
			} else {
				fn.op("VPDPBUSD Z29, %s, %s", codes, dot)
			}
			fn.op("VCVTDQ2PS %s, %s\nVPERMPS %s, Z28, %s\nVFMADD231PS %s, %s, %s", dot, dot, z(8+n),
				scale, scale, dot, z(n))
		}
	}
	advance := func(n int) { fn.op("ADDQ $%d, CX\nADDQ $%d, R15", n*xBytes, n*64) }

	fn.op("TESTQ R12, R12\nJZ %s", done)
	fn.at(row)
	for n := range 8 {
		fn.zero(z(n))
	}
	fn.op("XORQ BX, BX\nMOVQ %s, CX", fn.argument("codes_base"))
	fn.at(full)
	fn.op("MOVQ R13, AX\nSUBQ BX, AX\nCMPQ AX, $16\nJLT %s", last)
	loadBatch("")
	// 16 groups are 16·group·bits/512 chunks, a multiple of 4.
	fn.op("MOVQ %s, AX\nSHRQ $%d, AX", fn.argument("group"), map[int]int{4: 4, 8: 3}[bits])
	fn.at(chunk)
	chunkOf(0, "")
	chunkOf(1, "")
	fn.op("ADDQ $128, DI")
	advance(2)
	fn.op("DECQ AX\nJNZ %s\nADDQ $16, BX\nJMP %s", chunk, full)

	// The last AX groups.
	fn.at(last)
	fn.op("TESTQ AX, AX\nJZ %s\nMOVL $-1, R14\nBZHIL AX, R14, R14\nKMOVW R14, K1", reduce)
	loadBatch("K1")
	// AX is the number of words left. A chunk is 16 words; the last one may have fewer and is read under a mask. Whole
	// chunks are read without one, because each would wait for its mask to be made. They prefetch, too: a row of 8
	// groups has no chunks but these.
	fn.op("IMULQ %s, AX\nSHRQ $%d, AX", fn.argument("group"), map[int]int{4: 3, 8: 2}[bits])
	whole, part := fn.label("whole"), fn.label("part")
	fn.at(whole)
	fn.op("SUBQ $16, AX\nJLT %s", part)
	chunkOf(0, "")
	fn.op("ADDQ $64, DI")
	advance(1)
	fn.op("JMP %s", whole)
	fn.at(part)
	fn.op("ADDQ $16, AX\nJZ %s\nMOVL $-1, BX\nBZHIL AX, BX, BX\nKMOVW BX, K2", reduce)
	chunkOf(0, "K2")
	fn.op("LEAQ (DI)(AX*4), DI")

	fn.at(reduce)
	fn.op("VBROADCASTSS %s, Z12", factor)
	for n := range 4 {
		fn.op("VFMADD231PS Z12, %s, %s", z(4+n), z(n))
		fn.reduce512(n, 8+n)
	}
	fn.storeFour(size)
	fn.op("DECQ R12\nJNZ %s", row)
	fn.at(done)
	fn.returnAMD64()
}

// fourRows sets the registers of dotIntegerFour512, R12 and addresses first, and AX to bits·group.
func (fn *function) fourRows(bits, scaleSize int) {
	fn.load("y_base", "R11", "data_base", "DI", "scales_base", "SI", "biases_base", "DX", "y_len", "R12")
	fn.op("SHRQ $2, R12")
	// A group is a power of two.
	fn.op("MOVQ %s, AX\nBSFQ AX, CX\nMOVQ %s, R13\nMOVQ R13, R9\nSHRQ CX, R13",
		fn.argument("group"), fn.argument("cols"))
	fn.op("IMULQ R12, R9")
	if bits == 4 {
		fn.op("SHRQ $1, R9")
	}
	fn.op("LEAQ (R9)(R9*2), R8\nMOVQ R13, R10\nIMULQ R12, R10\nSHLQ $%d, R10\nIMULQ $%d, AX", scaleSize/2, bits)
}

// rowOfFour returns the place of the codes of row n.
func rowOfFour(n int) string { return []string{"(DI)", "(DI)(R9*1)", "(DI)(R9*2)", "(DI)(R8*1)"}[n] }

// eachOfFour calls load for each of four rows of a weight, with the address of the row's scale or bias of group BX.
func (fn *function) eachOfFour(base string, size int, load func(n int, from string)) {
	fn.op("LEAQ (%s)(BX*%d), R14", base, size)
	for n, at := range []string{"(R14)", "(R14)(R10*1)", "(R14)(R10*2)", "(R14)(R10*2)"} {
		if n == 3 {
			fn.op("ADDQ R10, R14")
		}
		fn.op("PREFETCHT0 %d%s", scalesAhead, at)
		load(n, at)
	}
}

// storeFour stores the sums of 4 rows, registers 0 to 3, and goes on to the next ones.
func (fn *function) storeFour(scaleSize int) {
	fn.op("MOVQ %s, R14\nSHRQ $2, R14\nLEAQ (R11)(R14*4), BX", fn.argument("y_len"))
	fn.op("VMOVSS X0, (R11)\nVMOVSS X1, (R11)(R14*4)\nVMOVSS X2, (R11)(R14*8)\nVMOVSS X3, (BX)(R14*8)\nADDQ $4, R11")
	fn.op("LEAQ (SI)(R13*%[1]d), SI\nLEAQ (DX)(R13*%[1]d), BX\nTESTQ DX, DX\nCMOVQNE BX, DX", scaleSize)
}

// dotQuantized512 writes dotQuantized for AVX-512, codes of 4 or 8 bits and a format of scales. It is long because it
// is one assembly routine: its registers are assigned across all of it.
func dotQuantized512(f *file, bits int, format string) {
	order := ""
	if bits == 4 {
		order = ", whose elements spread4AVX512 has ordered and scaled"
	}
	fn := f.function(fmt.Sprintf("dotQuantizedQ%d%sAVX512", bits, format), dotQuantizedParams, "",
		dotQuantizedLoop(bits, format, order))
	fn.quantizedRows512(quantizedKernel{
		bits: bits, format: format, x: "x_base", xBytes: 4 * 512 / bits,
		setUp: func() {
			if bits == 4 {
				for j := range 7 {
					fn.op("MOVL $0x%08x, AX\nVPBROADCASTD AX, %s", 15<<(4*j), z(24+j))
				}
			}
		},
		batch: func() {},
		chunk: func(i int, mask string) {
			if bits == 4 || mask != "" {
				fn.loadWords512(64*i, mask, "Z4")
			}
			if bits == 4 {
				// Code j of a word stays where it is: x is scaled by 16^-j. The last one would be a sign.
				for j := range 8 {
					code, sum := z(8+j), z(5+j%2)
					if j < 7 {
						fn.op("VPANDD %s, Z4, %s", z(24+j), code)
					} else {
						fn.op("VPSRLD $28, Z4, %s", code)
					}
					fn.op("VCVTDQ2PS %s, %s", code, code)
					if j < 2 {
						fn.op("VMULPS %d(CX), %s, %s", 512*i+64*j, code, sum)
					} else {
						fn.op("VFMADD231PS %d(CX), %s, %s", 512*i+64*j, code, sum)
					}
				}
				fn.op("VADDPS Z6, Z5, Z5\nVMOVDQU32 %d(R15), Z7\nVPERMPS Z16, Z7, Z7\nVFMADD231PS Z7, Z5, %s", 64*i,
					z(i%2))
				return
			}
			for half := range 2 {
				sum, scale := z(5+half), z(7+half)
				for j := range 2 {
					code, from := z(9+2*half+j), 2*half+j
					if mask == "" {
						fn.op("VPMOVZXBD %d(DI), %s", 64*i+16*from, code)
					} else if from == 0 {
						fn.op("VPMOVZXBD X4, %s", code)
					} else {
						fn.op("VEXTRACTI32X4 $%d, Z4, X13\nVPMOVZXBD X13, %s", from, code)
					}
					fn.op("VCVTDQ2PS %s, %s", code, code)
					if j == 0 {
						fn.op("VMULPS %d(CX), %s, %s", 256*i+64*from, code, sum)
					} else {
						fn.op("VFMADD231PS %d(CX), %s, %s", 256*i+64*from, code, sum)
					}
				}
				fn.op("VPBROADCASTD %d(R15), %s\nVPERMPS Z16, %s, %s\nVFMADD231PS %s, %s, %s", 64*i+32*half, scale,
					scale, scale, scale, sum, z(half))
			}
		},
	})
}

// loadWords512 loads 16 words of codes, masked unless mask is "".
func (fn *function) loadWords512(offset int, mask, to string) {
	if mask == "" {
		fn.op("VMOVDQU32 %d(DI), %s", offset, to)
	} else {
		fn.op("VMOVDQU32.Z %d(DI), %s, %s", offset, mask, to)
	}
}

// quantizedKernel is what dotInteger and dotQuantized kernels differ in.
type quantizedKernel struct {
	bits   int
	format string // of scales
	x      string // the argument that holds the vector
	xBytes int    // of the vector for 64 bytes of codes
	setUp  func() // once
	batch  func() // after the scales of a batch were loaded
	// chunk uses a register of codes, the i-th from DI, CX and R15 on, to add to registers 0 and 1.
	chunk func(i int, mask string)
	// codes is the register that chunk wants the codes in, or none; AVX2.
	codes func(i int) string
	// group ends the sum of a group in register 4; NEON.
	group func()
}

// quantizedRows512 writes a function that goes through rows, batches of 16 groups and chunks of 64 bytes. It is long
// because it is one assembly routine: its registers are assigned across all of it, as follows.
//
//	DI codes        SI scales of the row   DX biases of the row, or 0   R8 vector     CX vector at the chunk
//	R9 code scales  R10 sums               R11 y                        R12 rows left R13 groups of a row
//	BX first group of the batch            R15 scaleOfWord at the chunk
//	Z0, Z1 sums     Z2 sum of biases       Z16 scales                   Z17 factor of Z2
func (fn *function) quantizedRows512(k quantizedKernel) {
	fn.frame = 8
	const index = "index-8(SP)"
	size := floatBytes(k.format)
	fn.load("y_base", "R11", "data_base", "DI", "scales_base", "SI", "biases_base", "DX", k.x, "R8",
		"sums_base", "R10", "y_len", "R12")
	// A group is a power of two.
	fn.op("MOVQ %s, AX\nBSFQ AX, CX\nMOVQ %s, R13\nSHRQ CX, R13", fn.argument("group"), fn.argument("cols"))
	// The table for groups of w words starts after 16·(4 + … + w/2) entries of 4 bytes: 64·(w - 4).
	fn.op("IMULQ $%d, AX\nSUBQ $256, AX\nLEAQ scaleOfWord512<>(SB), CX\nADDQ CX, AX\nMOVQ AX, %s", 2*k.bits, index)
	fn.op("MOVL $0x%08x, AX\nMOVL $0x%08x, BX", math.Float32bits(1), math.Float32bits(-float32(int(1)<<(k.bits-1))))
	fn.op("TESTQ DX, DX\nCMOVQEQ BX, AX\nVPBROADCASTD AX, Z17")
	k.setUp()
	row, full, last, chunk, reduce, done := fn.label("row"), fn.label("full"), fn.label("last"), fn.label("chunk"),
		fn.label("reduce"), fn.label("done")
	loadBatch := func(mask string) {
		symmetric := fn.label("symmetric")
		fn.loadFloats512(k.format, fmt.Sprintf("(SI)(BX*%d)", size), mask, "Z16")
		fn.op("VMOVAPS Z16, Z3\nTESTQ DX, DX\nJZ %s", symmetric)
		fn.loadFloats512(k.format, fmt.Sprintf("(DX)(BX*%d)", size), mask, "Z3")
		fn.at(symmetric)
		fn.op("VFMADD231PS (R10)(BX*4), Z3, Z2\nMOVQ %s, R15", index)
		k.batch()
	}
	advance := func(n int) { fn.op("ADDQ $%d, CX\nADDQ $%d, R15", n*k.xBytes, n*64) }

	fn.op("TESTQ R12, R12\nJZ %s", done)
	fn.at(row)
	fn.zero("Z0", "Z1", "Z2")
	fn.op("XORQ BX, BX\nMOVQ R8, CX")
	fn.at(full)
	fn.op("MOVQ R13, AX\nSUBQ BX, AX\nCMPQ AX, $16\nJLT %s", last)
	loadBatch("")
	// 16 groups are 16·group·bits/512 chunks, a multiple of 4.
	fn.op("MOVQ %s, AX\nSHRQ $%d, AX", fn.argument("group"), map[int]int{4: 5, 8: 4}[k.bits])
	fn.at(chunk)
	for i := range 4 {
		fn.op("PREFETCHT0 %d(DI)", prefetch+64*i)
		k.chunk(i, "")
	}
	fn.op("ADDQ $256, DI")
	advance(4)
	fn.op("DECQ AX\nJNZ %s\nADDQ $16, BX\nJMP %s", chunk, full)

	// The last AX groups.
	fn.at(last)
	fn.op("TESTQ AX, AX\nJZ %s\nMOVL $-1, R14\nBZHIL AX, R14, R14\nKMOVW R14, K1", reduce)
	loadBatch("K1")
	// AX words; the last chunk may have fewer than 16.
	fn.op("IMULQ %s, AX\nSHRQ $%d, AX", fn.argument("group"), map[int]int{4: 3, 8: 2}[k.bits])
	part := fn.label("part")
	fn.at(part)
	fn.op("MOVL $16, R14\nCMPQ AX, R14\nCMOVQLT AX, R14\nSUBQ R14, AX")
	fn.op("PREFETCHT0 %d(DI)\nMOVL $-1, BX\nBZHIL R14, BX, BX\nKMOVW BX, K2", prefetch)
	k.chunk(0, "K2")
	fn.op("LEAQ (DI)(R14*4), DI")
	advance(1)
	fn.op("TESTQ AX, AX\nJNZ %s", part)

	fn.at(reduce)
	fn.op("VFMADD231PS Z17, Z2, Z0\nVADDPS Z1, Z0, Z0")
	fn.reduce512(0, 4)
	fn.op("VMOVSS X0, (R11)\nADDQ $4, R11\nLEAQ (SI)(R13*%d), SI", size)
	fn.op("LEAQ (DX)(R13*%d), BX\nTESTQ DX, DX\nCMOVQNE BX, DX\nDECQ R12\nJNZ %s", size, row)
	fn.at(done)
	fn.returnAMD64()
}

const dotDenseParams = "y []float32, stride int, data []byte, rowBytes, rows int, x []float32, xStride, vectors, cols int"

const dotDenseDoc = `multiplies rows of %s numbers, rowBytes apart, by vectors:

	for r := range rows {
		for i := range vectors {
			y[i*stride+r] = 0
			for k := range cols {
				y[i*stride+r] += element(r, k) * x[i*xStride+k]
			}
		}
	}`

// dotDense512 takes up to 4 vectors at a time, with two sums each, or one with four.
//
//	DI row      R8 rows left   SI x of the vectors   R9 bytes between vectors   R10 vectors left
//	DX y        BX bytes between y of vectors        CX, R15 place in the row and in x   AX elements left
func dotDense512(f *file, format string) {
	fn := f.function(fmt.Sprintf("dotDense%sAVX512", format), dotDenseParams, "",
		fmt.Sprintf(dotDenseDoc, strings.ToLower(format)))
	fn.dotDenseRows(func(vectors int) { fn.dotDenseBody512(format, vectors) })
}

// dotDenseRows writes the loops over rows and vectors. body is a row times 4 vectors or 1.
func (fn *function) dotDenseRows(body func(vectors int)) {
	fn.frame = 8
	const out = "out-8(SP)"
	fn.load("y_base", "AX", "data_base", "DI", "rows", "R8", "xStride", "R9", "stride", "BX")
	fn.op("MOVQ AX, %s", out)
	fn.op("SHLQ $2, R9\nSHLQ $2, BX")
	row, one, four, next, done := fn.label("row"), fn.label("one"), fn.label("four"), fn.label("next"), fn.label("done")
	fn.op("TESTQ R8, R8\nJZ %s", done)
	fn.at(row)
	fn.load("x_base", "SI", "vectors", "R10")
	fn.op("MOVQ %s, DX", out)
	fn.at(four)
	fn.op("CMPQ R10, $4\nJLT %s", one)
	body(4)
	fn.op("LEAQ (SI)(R9*4), SI\nLEAQ (DX)(BX*4), DX\nSUBQ $4, R10\nJMP %s", four)
	fn.at(one)
	fn.op("TESTQ R10, R10\nJZ %s", next)
	body(1)
	fn.op("ADDQ R9, SI\nADDQ BX, DX\nDECQ R10\nJMP %s", one)
	fn.at(next)
	fn.op("MOVQ %s, AX\nADDQ AX, DI\nADDQ $4, %s\nDECQ R8\nJNZ %s", fn.argument("rowBytes"), out, row)
	fn.at(done)
	fn.returnAMD64()
}

// pointAtRowVectors sets registers to the vectors, R9 bytes apart from SI on.
func (fn *function) pointAtRowVectors(vectors int) []string {
	registers := []string{"R11", "R12", "R13", "R15"}[:vectors]
	fn.op("MOVQ SI, R11")
	for i := 1; i < vectors; i++ {
		fn.op("LEAQ (%s)(R9*1), %s", registers[i-1], registers[i])
	}
	return registers
}

// storeRowVectors stores sums, BX bytes apart from DX on.
func (fn *function) storeRowVectors(vectors int, sum func(i int) string) {
	for i, address := range []string{"(DX)", "(DX)(BX*1)", "(DX)(BX*2)", "(AX)"}[:vectors] {
		if i == 3 {
			fn.op("LEAQ (DX)(BX*2), AX\nADDQ BX, AX")
		}
		fn.op("VMOVSS %s, %s", sum(i), address)
	}
}

// dotDenseBody512 is one row times vectors vectors.
func (fn *function) dotDenseBody512(format string, vectors int) {
	size := floatBytes(format)
	unroll := map[int]int{1: 4, 4: 2}[vectors]        // registers of the row at a time
	sum := func(i, u int) int { return i*unroll + u } // Z0 to Z7 at most
	for i := range vectors * unroll {
		fn.zero(z(i))
	}
	registers := fn.pointAtRowVectors(vectors)
	advance := func(n int) {
		for _, r := range registers {
			fn.op("ADDQ $%d, %s", 4*n, r)
		}
		fn.op("ADDQ $%d, CX", size*n)
	}
	whole, part, last, reduce := fn.label("whole"), fn.label("part"), fn.label("last"), fn.label("reduce")
	fn.op("MOVQ DI, CX\nMOVQ %s, AX\nSUBQ $%d, AX\nJLT %s", fn.argument("cols"), 16*unroll, part)
	fn.at(whole)
	for u := range unroll {
		fn.op("PREFETCHT0 %d(CX)", prefetch+16*size*u)
		fn.loadFloats512(format, fmt.Sprintf("%d(CX)", 16*size*u), "", z(8+u))
		for i, r := range registers {
			fn.op("VFMADD231PS %d(%s), %s, %s", 64*u, r, z(8+u), z(sum(i, u)))
		}
	}
	advance(16 * unroll)
	fn.op("SUBQ $%d, AX\nJGE %s", 16*unroll, whole)
	fn.at(part)
	fn.op("ADDQ $%d, AX", 16*unroll)
	fn.at(last)
	fn.op("TESTQ AX, AX\nJLE %s\nMOVL $-1, R14\nBZHIL AX, R14, R14\nKMOVW R14, K1", reduce)
	fn.loadFloats512(format, "(CX)", "K1", "Z8")
	for i, r := range registers {
		fn.op("VMOVUPS.Z (%s), K1, Z9\nVFMADD231PS Z9, Z8, %s", r, z(sum(i, 0)))
	}
	advance(16)
	fn.op("SUBQ $16, AX\nJMP %s", last)
	fn.at(reduce)
	for i := range vectors {
		for u := 1; u < unroll; u++ {
			fn.op("VADDPS %s, %s, %s", z(sum(i, u)), z(sum(i, 0)), z(sum(i, 0)))
		}
		fn.reduce512(sum(i, 0), 8+i)
	}
	fn.storeRowVectors(vectors, func(i int) string { return x(sum(i, 0)) })
}

const dotDenseFourParams = "y []float32, data []byte, x []float32"

// dotDenseFour512 is dotDense512 for one vector and 4 rows at a time, with the same bits. Registers of
// addresses are those of dotIntegerFour512.
//
//	Z0 to Z15 sums, 4 of each row   Z16 to Z19 elements of a row   Z28 to Z31 elements of the vector
func dotDenseFour512(f *file, format string) {
	fn := f.function(fmt.Sprintf("dotDenseFour%sAVX512", format), dotDenseFourParams, "",
		fmt.Sprintf(`multiplies rows of %s numbers, one after the other in data, by a vector:

	for r := range y {
		y[r] = 0
		for k := range x {
			y[r] += element(r, k) * x[k]
		}
	}

The number of rows is a multiple of 4. Rows r, n+r, 2n+r and 3n+r, n = len(y)/4, are read at the same time.`, strings.ToLower(format)))
	size := floatBytes(format)
	fn.load("y_base", "R11", "data_base", "DI", "x_base", "SI", "y_len", "R12", "x_len", "R13")
	fn.op("SHRQ $2, R12\nMOVQ R13, R9\nIMULQ R12, R9\nSHLQ $%d, R9\nLEAQ (R9)(R9*2), R8", size/2)
	row, whole, part, last, reduce, done := fn.label("row"), fn.label("whole"), fn.label("part"), fn.label("last"),
		fn.label("reduce"), fn.label("done")
	fn.op("TESTQ R12, R12\nJZ %s", done)
	fn.at(row)
	for i := range 16 {
		fn.zero(z(i))
	}
	fn.op("MOVQ SI, CX\nMOVQ R13, AX\nSUBQ $64, AX\nJLT %s", part)
	fn.at(whole)
	for u := range 4 {
		fn.op("VMOVUPS %d(CX), %s", 64*u, z(28+u))
	}
	for n := range 4 {
		for u := range 4 {
			if 16*size*u%64 == 0 {
				fn.op("PREFETCHT0 %d%s", fourAhead+16*size*u, rowOfFour(n))
			}
			fn.loadFloats512(format, fmt.Sprintf("%d%s", 16*size*u, rowOfFour(n)), "", z(16+u))
			fn.op("VFMADD231PS %s, %s, %s", z(28+u), z(16+u), z(4*n+u))
		}
	}
	fn.op("ADDQ $%d, DI\nADDQ $256, CX\nSUBQ $64, AX\nJGE %s", 64*size, whole)
	fn.at(part)
	fn.op("ADDQ $64, AX")
	fn.at(last)
	fn.op("TESTQ AX, AX\nJLE %s\nMOVL $-1, R14\nBZHIL AX, R14, R14\nKMOVW R14, K1\nVMOVUPS.Z (CX), K1, Z28", reduce)
	for n := range 4 {
		fn.loadFloats512(format, rowOfFour(n), "K1", z(16+n))
		fn.op("VFMADD231PS Z28, %s, %s", z(16+n), z(4*n))
	}
	fn.op("MOVL $16, R14\nCMPQ AX, R14\nCMOVQLT AX, R14\nLEAQ (DI)(R14*%d), DI\nADDQ $64, CX\nSUBQ $16, AX\nJMP %s",
		size, last)
	fn.at(reduce)
	for n := range 4 {
		for u := 1; u < 4; u++ {
			fn.op("VADDPS %s, %s, %s", z(4*n+u), z(4*n), z(4*n))
		}
		fn.reduce512(4*n, 4*n+1)
	}
	fn.op("MOVQ %s, R14\nSHRQ $2, R14\nLEAQ (R11)(R14*4), BX", fn.argument("y_len"))
	fn.op("VMOVSS X0, (R11)\nVMOVSS X4, (R11)(R14*4)\nVMOVSS X8, (R11)(R14*8)\nVMOVSS X12, (BX)(R14*8)\nADDQ $4, R11\nDECQ R12\nJNZ %s", row)
	fn.at(done)
	fn.returnAMD64()
}
