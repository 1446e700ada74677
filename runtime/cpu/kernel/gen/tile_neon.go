package main

import (
	"fmt"
	"strings"
)

// Tiles for arm64: up to 8 vectors times 8 rows, two registers of rows.

const tileVectorsNEON = 8

func tileNEON() *file {
	f := &file{name: "tile_neon", arch: "arm64", about: "Tiles of matrix products, NEON."}
	for _, format := range []string{"BF16", "F32"} {
		tileFloatNEON(f, format)
	}
	tileIntegerDotProd(f, 4)
	tileIntegerDotProd(f, 8)
	tileIntegerNEON(f, 4)
	tileIntegerNEON(f, 8)
	return f
}

// byVectorsNEON is byVectors; R7 holds the number.
func (fn *function) byVectorsNEON(most int, body func(vectors int)) {
	labels := make([]string, most+1)
	for n := most; n > 0; n-- {
		labels[n] = fn.label("vectors")
		fn.op("CMP $%d, R7\nBEQ %s", n, labels[n])
	}
	fn.op("RET")
	for n := most; n > 0; n-- {
		fn.at(labels[n])
		body(n)
		fn.op("RET")
	}
}

// tileFloatNEON: R0 sums, R1 bytes between them, R2 panel, R3 bytes between its rows, R4 x, R5 bytes between
// vectors, R6 depth left, R8 sums or x of a vector; 0 to 15 sums, 16 and 17 the panel, 18 to 25 vectors, 26 keep.
func tileFloatNEON(f *file, format string) {
	fn := f.function(fmt.Sprintf("tileFloat%sNEON", format), tileFloatParams, "",
		fmt.Sprintf(tileFloatDoc, strings.ToLower(format), tileVectorsNEON, 8))
	fn.loadARM64("sums_base", "R0", "stride", "R1", "panel_base", "R2", "panelBytes", "R3", "x_base", "R4", "xStride",
		"R5", "depth", "R6", "vectors", "R7")
	fn.op("LSL $2, R1\nLSL $2, R5\nFMOVS %s, F26\nVDUP V26.S[0], V26.S4", fn.argument("keep"))
	fn.byVectorsNEON(tileVectorsNEON, func(n int) {
		eachSum := func(op func(i int)) {
			fn.op("MOVD R0, R8")
			for i := range n {
				op(i)
				if i < n-1 {
					fn.op("ADD R1, R8")
				}
			}
		}
		eachSum(func(i int) { fn.op("FMOVQ (R8), F%d\nFMOVQ 16(R8), F%d", 2*i, 2*i+1) })
		for i := range 2 * n {
			fn.word("FMUL", i, i, 26)
		}
		for _, columns := range []int{4, 1} {
			loop, end := fn.label("loop"), fn.label("end")
			fn.at(loop)
			fn.op("CMP $%d, R6\nBLT %s\nMOVD R4, R8", columns, end)
			for i := range n {
				fn.op("%s (R8), F%d", map[int]string{4: "FMOVQ", 1: "FMOVS"}[columns], 18+i)
				if i < n-1 {
					fn.op("ADD R5, R8")
				}
			}
			for k := range columns {
				fn.loadFloatsNEON(format, 0, "R2", 16)
				fn.loadFloatsNEON(format, 4*floatBytes(format), "R2", 17)
				fn.op("ADD R3, R2")
				for i := range n {
					fn.byElement("FMLA", 2*i, 16, 18+i, k)
					fn.byElement("FMLA", 2*i+1, 17, 18+i, k)
				}
			}
			fn.op("ADD $%d, R4\nSUB $%d, R6\nB %s", 4*columns, columns, loop)
			fn.at(end)
		}
		eachSum(func(i int) { fn.op("FMOVQ F%d, (R8)\nFMOVQ F%d, 16(R8)", 2*i, 2*i+1) })
	})
}

// tileIntegerGroups writes a tileInteger function around the sums of a group, which sum leaves in registers 2·i
// and 2·i+1 for vector i: R0 sums, R1 panel, R2 and R3 scales and biases of the group, R4 and R5 code scales
// and code sums of the group, R6 groups left, R9 codes, R10 bytes between vectors, R11 bytes between their
// scales, R12 group, R8 and R13 to R15 scratch.
func (fn *function) tileIntegerGroups(most int, sum func(n int)) {
	fn.loadARM64("sums_base", "R0", "panel_base", "R1", "scales_base", "R2", "biases_base", "R3", "codeScales_base",
		"R4", "codeSums_base", "R5",
		"groups", "R6", "codes_base", "R9", "codeStride", "R10", "groupStride", "R11", "group", "R12", "vectors", "R7")
	fn.op("LSL $2, R11")
	fn.byVectorsNEON(most, func(n int) {
		group, end := fn.label("group"), fn.label("end")
		fn.op("CBZ R6, %s", end)
		fn.at(group)
		sum(n)
		fn.op("FMOVQ (R2), F24\nFMOVQ 16(R2), F25\nFMOVQ (R3), F26\nFMOVQ 16(R3), F27\nADD $32, R2\nADD $32, R3\nMOVD R4, R13\nMOVD R5, R14")
		for i := range n {
			fn.op("FMOVS (R13), F28\nFMOVS (R14), F29\nADD R11, R13\nADD R11, R14")
			for half := range 2 {
				dot, at := 2*i+half, 32*i+16*half
				fn.word("SCVTF", dot, dot)
				fn.word("FMUL", dot, dot, 24+half)
				fn.loadQ(at, "R0", 30)
				fn.byElement("FMLA", 30, dot, 28, 0)
				fn.byElement("FMLA", 30, 26+half, 29, 0)
				fn.op("FMOVQ F30, %d(R0)", at)
			}
		}
		fn.op("ADD $4, R4\nADD $4, R5\nSUBS $1, R6, R6\nBNE %s", group)
		fn.at(end)
	})
}

// tileIntegerDotProd sums 16 columns at a time: 0 to 15 sums, 16 to 23 vectors, or 16 to 19 for codes of 8
// bits, whose high halves are summed in 8 to 15 for 4 vectors.
func tileIntegerDotProd(f *file, bits int) {
	most := map[int]int{4: 8, 8: 4}[bits]
	fn := f.function(fmt.Sprintf("tileIntegerQ%dDotProd", bits), tileIntegerParams, "",
		fmt.Sprintf(tileIntegerDoc, most, 8))
	fn.tileIntegerGroups(most, func(n int) {
		for i := range 2 * n {
			fn.zeroNEON(i)
			if bits == 8 {
				fn.zeroNEON(8 + i)
			}
		}
		if bits == 8 {
			fn.op("VMOVI $15, V31.B16")
		}
		loop := fn.label("loop")
		fn.op("MOVD R12, R15")
		fn.at(loop)
		fn.op("MOVD R9, R8")
		for i := range n {
			fn.loadQ(0, "R8", 16+i)
			if i < n-1 {
				fn.op("ADD R10, R8")
			}
		}
		for step := range 4 {
			fn.op("FMOVQ %d(R1), F24\nFMOVQ %d(R1), F25", 32*step, 32*step+16)
			if bits == 8 {
				fn.op("VUSHR $4, V24.B16, V26.B16\nVUSHR $4, V25.B16, V27.B16\nVAND V31.B16, V24.B16, V24.B16\nVAND V31.B16, V25.B16, V25.B16")
			}
			for i := range n {
				for half := range 2 {
					fn.byElement("SDOT", 2*i+half, 24+half, 16+i, step)
					if bits == 8 {
						fn.byElement("SDOT", 8+2*i+half, 26+half, 16+i, step)
					}
				}
			}
		}
		fn.op("ADD $128, R1\nADD $16, R9\nSUBS $16, R15, R15\nBNE %s", loop)
		if bits == 8 {
			for i := range 2 * n {
				fn.op("VSHL $4, %[1]s, %[1]s\nVADD %[1]s, %[2]s, %[2]s", v4(8+i), v4(i))
			}
		}
	})
}

// tileIntegerNEON does without the dot product: 0 to 7 sums of 4 vectors, 8 to 15 those of high halves.
func tileIntegerNEON(f *file, bits int) {
	const most = 4
	fn := f.function(fmt.Sprintf("tileIntegerQ%dNEON", bits), tileIntegerParams, "",
		fmt.Sprintf(tileIntegerDoc, most, 8))
	// dot adds the sums of 4 products for each of 4 rows of n, with the word of each lane of 20.
	dot := func(d, n int) {
		fn.word("SMULL.8H", 21, n, 20)
		fn.word("SMULL2.8H", 22, n, 20)
		fn.word("ADDP.8H", 21, 21, 22)
		fn.word("SADALP", d, 21)
	}
	fn.tileIntegerGroups(most, func(n int) {
		for i := range 2 * n {
			fn.zeroNEON(i)
			if bits == 8 {
				fn.zeroNEON(8 + i)
			}
		}
		if bits == 8 {
			fn.op("VMOVI $15, V31.B16")
		}
		loop := fn.label("loop")
		fn.op("MOVD R12, R15")
		fn.at(loop)
		fn.op("MOVD R9, R8\nFMOVQ (R1), F24\nFMOVQ 16(R1), F25")
		if bits == 8 {
			fn.op("VUSHR $4, V24.B16, V26.B16\nVUSHR $4, V25.B16, V27.B16\nVAND V31.B16, V24.B16, V24.B16\nVAND V31.B16, V25.B16, V25.B16")
		}
		for i := range n {
			fn.op("FMOVS (R8), F20\nVDUP V20.S[0], V20.S4")
			if i < n-1 {
				fn.op("ADD R10, R8")
			}
			for half := range 2 {
				dot(2*i+half, 24+half)
				if bits == 8 {
					dot(8+2*i+half, 26+half)
				}
			}
		}
		fn.op("ADD $32, R1\nADD $4, R9\nSUBS $4, R15, R15\nBNE %s", loop)
		if bits == 8 {
			for i := range 2 * n {
				fn.op("VSHL $4, %[1]s, %[1]s\nVADD %[1]s, %[2]s, %[2]s", v4(8+i), v4(i))
			}
		}
	})
}
