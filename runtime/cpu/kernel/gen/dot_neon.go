package main

import (
	"fmt"
	"math"
	"strings"
)

// Products of rows with vectors for arm64, group by group. Integer ones come in two kinds: with the dot
// product instructions of Armv8.2, and without.

func dotNEON() *file {
	f := &file{name: "dot_neon", arch: "arm64", about: "Products of rows with vectors, NEON."}
	for _, bits := range []int{4, 8} {
		for _, format := range []string{"BF16", "F32"} {
			dotIntegerNEON(f, bits, format, "NEON", (*function).dotWithout)
			dotIntegerNEON(f, bits, format, "DotProd", (*function).dotWith)
			dotQuantizedNEON(f, bits, format)
		}
	}
	for _, format := range []string{"BF16", "F32"} {
		dotDenseNEON(f, format)
	}
	return f
}

// dotWith adds the sums of 4 products each of 16 signed bytes of n and m to d.
func (fn *function) dotWith(d, n, m int) { fn.word("SDOT", d, n, m) }

// dotWithout is dotWith up to the lanes of d that products come to; 15·127 twice, or 127·127 twice, fit 16
// bits. 30 is scratch.
func (fn *function) dotWithout(d, n, m int) {
	fn.word("SMULL.8H", 30, n, m)
	fn.word("SMLAL2.8H", 30, n, m)
	fn.word("SADALP", d, 30)
}

func dotIntegerNEON(f *file, bits int, format, suffix string, dot func(fn *function, d, n, m int)) {
	order := ""
	if bits == 4 {
		order = ", the even ones of 32 before the odd ones"
	}
	fn := f.function(fmt.Sprintf("dotIntegerQ%d%s%s", bits, format, suffix), dotIntegerParams, "",
		dotIntegerLoop(bits, format, order))
	fn.quantizedRowsNEON(quantizedKernel{
		bits: bits, format: format, x: "codes_base", xBytes: 128 / bits,
		setUp: func() {
			fn.loadARM64("codeScales_base", "R5")
			fn.op("VMOVI $15, V31.B16")
		},
		batch: func() { fn.zeroNEON(4, 5) },
		chunk: func(i int, mask string) {
			// Halves of bytes: codes of 4 bits, or of 8 bits whose high halves are summed apart.
			fn.loadQ(0, "R1", 16)
			fn.loadQ(0, "R10", 18)
			if bits == 4 {
				fn.loadQ(16, "R10", 19)
			}
			fn.op("VUSHR $4, V16.B16, V17.B16\nVAND V31.B16, V16.B16, V16.B16")
			dot(fn, 4, 16, 18)
			dot(fn, 5, 17, map[int]int{4: 19, 8: 18}[bits])
		},
		group: func() {
			if bits == 8 {
				fn.op("VSHL $4, V5.S4, V5.S4")
			}
			fn.op("VADD V5.S4, V4.S4, V4.S4\nFMOVS.P 4(R11), F6\nFMULS F6, F2, F2")
			fn.word("SCVTF", 4, 4)
		},
	})
}

func dotQuantizedNEON(f *file, bits int, format string) {
	order := ""
	if bits == 4 {
		order = ", whose elements spread4NEON has ordered and scaled"
	}
	fn := f.function(fmt.Sprintf("dotQuantizedQ%d%sNEON", bits, format), dotQuantizedParams, "",
		dotQuantizedLoop(bits, format, order))
	fn.quantizedRowsNEON(quantizedKernel{
		bits: bits, format: format, x: "x_base", xBytes: 4 * 128 / bits,
		setUp: func() {
			if bits == 4 {
				for j := range 7 {
					fn.broadcastWord(15<<(4*j), 24+j)
				}
			}
		},
		batch: func() { fn.zeroNEON(4, 5) },
		chunk: func(i int, mask string) {
			fn.loadQ(0, "R1", 16)
			if bits == 4 {
				for j := range 8 {
					code := 17 + j%2
					if j < 7 {
						fn.op("VAND V%d.B16, V16.B16, %s", 24+j, v(code))
					} else {
						fn.op("VUSHR $28, V16.S4, %s", v4(code))
					}
					fn.word("SCVTF", code, code)
					fn.loadQ(16*j, "R10", 19+j%2)
					fn.op("VFMLA %s, %s, %s", v4(19+j%2), v4(code), v4(4+j%2))
				}
				return
			}
			fn.op("VUXTL V16.B8, V17.H8\nVUXTL2 V16.B16, V18.H8")
			for j := range 4 {
				if j%2 == 0 {
					fn.op("VUXTL V%d.H4, V20.S4", 17+j/2)
				} else {
					fn.op("VUXTL2 V%d.H8, V20.S4", 17+j/2)
				}
				fn.word("SCVTF", 20, 20)
				fn.loadQ(16*j, "R10", 21)
				fn.op("VFMLA V21.S4, V20.S4, %s", v4(4+j%2))
			}
		},
		group: func() { fn.word("FADD", 4, 4, 5) },
	})
}

// quantizedRowsNEON writes a function that goes through rows, groups and chunks of 16 bytes:
//
//	R1 codes   R2 scales   R3 biases, or 0   R4 vector, R10 at the chunk   R5 code scales, R11 at the group
//	R8 sums, R12 at the group   R0 y   R6 rows left   R9 groups of a row, R13 left   R14 chunks of a group, R15 left
//	0 sum   1 sum of biases   2 scale   4, 5 sums of the group   23 factor of 1
func (fn *function) quantizedRowsNEON(k quantizedKernel) {
	fn.loadARM64("y_base", "R0", "data_base", "R1", "scales_base", "R2", "biases_base", "R3", k.x, "R4", "sums_base",
		"R8", "y_len", "R6", "cols", "R9", "group", "R14")
	fn.op("UDIV R14, R9, R9\nLSR $%d, R14, R14", map[int]int{4: 5, 8: 4}[k.bits])
	fn.op("MOVW $0x%08x, R7\nMOVW $0x%08x, R16\nCMP $0, R3\nCSEL EQ, R16, R7, R7\nFMOVS R7, F23", math.Float32bits(1),
		math.Float32bits(-float32(int(1)<<(k.bits-1))))
	k.setUp()
	row, group, chunk, symmetric, biased, done := fn.label("row"), fn.label("group"), fn.label("chunk"),
		fn.label("symmetric"), fn.label("biased"), fn.label("done")
	reduce := fn.label("reduce")
	fn.op("CBZ R6, %s", done)
	fn.at(row)
	fn.zeroNEON(0, 1)
	fn.op("MOVD R4, R10\nMOVD R5, R11\nMOVD R8, R12\nMOVD R9, R13\nCBZ R13, %s", reduce)
	fn.at(group)
	k.batch()
	fn.op("MOVD R14, R15")
	fn.at(chunk)
	fn.op("PRFM %d(R1), PLDL1KEEP", prefetch)
	k.chunk(0, "")
	fn.op("ADD $16, R1\nADD $%d, R10\nSUBS $1, R15, R15\nBNE %s", k.xBytes, chunk)
	fn.loadScalar(k.format, "R2", 2)
	fn.op("CBZ R3, %s", symmetric)
	fn.loadScalar(k.format, "R3", 3)
	fn.op("B %s", biased)
	fn.at(symmetric)
	fn.op("FMOVS F2, F3")
	fn.at(biased)
	fn.op("FMOVS.P 4(R12), F7\nFMADDS F7, F1, F3, F1")
	k.group()
	fn.byElement("FMLA", 0, 4, 2, 0)
	fn.op("SUBS $1, R13, R13\nBNE %s", group)
	fn.at(reduce)
	fn.sumLanes(0)
	fn.op("FMADDS F23, F0, F1, F0\nFMOVS.P F0, 4(R0)\nSUBS $1, R6, R6\nBNE %s", row)
	fn.at(done)
	fn.op("RET")
}

// dotDenseNEON: R0 y of the row, R1 row, R2 rows left, R3 x of the vectors, R4 bytes between vectors, R5
// vectors left, R6 elements left, R8 y of the vectors, R9 bytes between y of vectors, R10 place in the row,
// R11 to R14 in the vectors.
func dotDenseNEON(f *file, format string) {
	fn := f.function(fmt.Sprintf("dotDense%sNEON", format), dotDenseParams, "",
		fmt.Sprintf(dotDenseDoc, strings.ToLower(format)))
	fn.loadARM64("y_base", "R0", "data_base", "R1", "rows", "R2", "xStride", "R4", "stride", "R9",
		"rowBytes", "R15", "cols", "R16")
	fn.op("LSL $2, R4\nLSL $2, R9")
	row, one, four, next, done := fn.label("row"), fn.label("one"), fn.label("four"), fn.label("next"), fn.label("done")
	fn.op("CBZ R2, %s", done)
	fn.at(row)
	fn.loadARM64("x_base", "R3", "vectors", "R5")
	fn.op("MOVD R0, R8")
	fn.at(four)
	fn.op("CMP $4, R5\nBLT %s", one)
	fn.dotDenseBodyNEON(format, 4)
	fn.op("ADD R4<<2, R3\nSUB $4, R5\nB %s", four)
	fn.at(one)
	fn.op("CBZ R5, %s", next)
	fn.dotDenseBodyNEON(format, 1)
	fn.op("ADD R4, R3\nSUB $1, R5\nB %s", one)
	fn.at(next)
	fn.op("ADD R15, R1\nADD $4, R0\nSUBS $1, R2, R2\nBNE %s", row)
	fn.at(done)
	fn.op("RET")
}

func (fn *function) dotDenseBodyNEON(format string, vectors int) {
	unroll := map[int]int{1: 4, 4: 2}[vectors]
	size := floatBytes(format)
	sum := func(i, u int) int { return i*unroll + u }
	for i := range vectors * unroll {
		fn.zeroNEON(i)
	}
	fn.op("MOVD R1, R10\nMOVD R3, R11\nMOVD R16, R6")
	for i := 1; i < vectors; i++ {
		fn.op("ADD R4, R%d, R%d", 10+i, 11+i)
	}
	for _, n := range []int{4 * unroll, 4, 1} {
		loop, end := fn.label("loop"), fn.label("end")
		fn.at(loop)
		fn.op("CMP $%d, R6\nBLT %s", n, end)
		if n == 4*unroll {
			fn.op("PRFM %d(R10), PLDL1KEEP", prefetch)
		}
		for u := range max(n/4, 1) {
			if n > 1 {
				fn.loadFloatsNEON(format, 4*size*u, "R10", 16)
			} else if format == "F32" {
				fn.op("FMOVS (R10), F16")
			} else {
				fn.op("MOVHU (R10), R7\nLSLW $16, R7, R7\nFMOVS R7, F16")
			}
			for i := range vectors {
				if n > 1 {
					fn.loadQ(16*u, fmt.Sprintf("R%d", 11+i), 17)
				} else {
					fn.op("FMOVS (R%d), F17", 11+i)
				}
				fn.op("VFMLA V17.S4, V16.S4, %s", v4(sum(i, u)))
			}
		}
		fn.op("ADD $%d, R10\nSUB $%d, R6", n*size, n)
		for i := range vectors {
			fn.op("ADD $%d, R%d", 4*n, 11+i)
		}
		fn.op("B %s", loop)
		fn.at(end)
	}
	for i := range vectors {
		for u := 1; u < unroll; u++ {
			fn.word("FADD", sum(i, 0), sum(i, 0), sum(i, u))
		}
		fn.sumLanes(sum(i, 0))
		fn.op("FMOVS F%d, (R8)\nADD R9, R8", sum(i, 0))
	}
}
