package main

import "fmt"

// Panels for arm64, 4 rows at a time.

func packNEON() *file {
	f := &file{name: "pack_neon", arch: "arm64", about: "Panels of matrices for tiles, NEON."}
	for _, bits := range []int{4, 8} {
		packCodesNEON(f, bits)
	}
	for _, bits := range []int{4, 8} {
		packQuantizedNEON(f, bits)
	}
	for _, format := range []string{"BF16", "F32"} {
		packDenseNEON(f, format)
	}
	return f
}

// packLoopNEON: R0 panel, R1 its stride, R2 data, R3 rowBytes, R4 chunks left. For body, register w holds word
// w of 4 rows.
func (fn *function) packLoopNEON(body func()) {
	fn.loadARM64("panel_base", "R0", "stride", "R1", "data_base", "R2", "rowBytes", "R3", "chunks", "R4")
	loop, end := fn.label("loop"), fn.label("end")
	fn.op("CBZ R4, %s", end)
	fn.at(loop)
	fn.op("MOVD R2, R8")
	for r := range 4 {
		fn.loadQ(0, "R8", 4+r)
		if r < 3 {
			fn.op("ADD R3, R8")
		}
	}
	fn.op(`VZIP1 V5.S4, V4.S4, V16.S4
		VZIP2 V5.S4, V4.S4, V17.S4
		VZIP1 V7.S4, V6.S4, V18.S4
		VZIP2 V7.S4, V6.S4, V19.S4
		VZIP1 V18.D2, V16.D2, V0.D2
		VZIP2 V18.D2, V16.D2, V1.D2
		VZIP1 V19.D2, V17.D2, V2.D2
		VZIP2 V19.D2, V17.D2, V3.D2`)
	body()
	fn.op("ADD $16, R2\nSUBS $1, R4, R4\nBNE %s", loop)
	fn.at(end)
	fn.op("RET")
}

func (fn *function) storeColumn(r int) { fn.op("FMOVQ F%d, (R0)\nADD R1, R0", r) }

func packCodesNEON(f *file, bits int) {
	fn := f.function(fmt.Sprintf("packCodesQ%dNEON", bits), packCodesParams, "", packCodesDoc(bits, 4))
	fn.packLoopNEON(func() {
		if bits == 4 {
			fn.op("VMOVI $15, V31.B16")
		}
		for w := range 4 {
			if bits == 4 {
				fn.op("VUSHR $4, %[1]s, V20.B16\nVAND V31.B16, %[1]s, %[1]s", v(w))
			}
			fn.storeColumn(w)
			if bits == 4 {
				fn.storeColumn(20)
			}
		}
	})
}

// packQuantizedNEON: R9 scales, R10 biases, R11 bytes between groups, R12 group, R13 columns left of it, 24
// and 25 scales and biases.
func packQuantizedNEON(f *file, bits int) {
	fn := f.function(fmt.Sprintf("packQuantizedQ%dNEON", bits), packQuantizedParams, "", packQuantizedDoc(bits, 4))
	fn.loadARM64("scales_base", "R9", "biases_base", "R10", "scaleStride", "R11", "group", "R12")
	fn.op("LSL $2, R11\nSUB R11, R9\nSUB R11, R10\nMOVD $0, R13")
	codes := 32 / bits // in a word
	fn.packLoopNEON(func() {
		// A group begins where the one before has ended, at 32 columns or 16: at the first word of a chunk.
		same := fn.label("same")
		fn.op("CBNZ R13, %s\nADD R11, R9\nADD R11, R10\nMOVD R12, R13\nFMOVQ (R9), F24\nFMOVQ (R10), F25", same)
		fn.at(same)
		fn.op("SUB $%d, R13", 4*codes)
		fn.broadcastWord(1<<bits-1, 26)
		for w := range 4 {
			for j := range codes {
				switch j {
				case 0:
					fn.op("VAND V26.B16, %s, V20.B16", v(w))
				case codes - 1:
					fn.op("VUSHR $%d, %s, V20.S4", bits*j, v4(w))
				default:
					fn.op("VUSHR $%d, %s, V20.S4\nVAND V26.B16, V20.B16, V20.B16", bits*j, v4(w))
				}
				fn.word("SCVTF", 20, 20)
				fn.word("FMUL", 20, 20, 24)
				fn.word("FADD", 20, 20, 25)
				fn.storeColumn(20)
			}
		}
	})
}

func packDenseNEON(f *file, format string) {
	fn := f.function(fmt.Sprintf("packDense%sNEON", format), packCodesParams, "", packDenseDoc(format, 4))
	fn.packLoopNEON(func() {
		if format == "BF16" {
			fn.broadcastWord(0xffff0000, 26)
		}
		for w := range 4 {
			if format == "BF16" {
				fn.op("VSHL $16, %s, V20.S4", v4(w))
				fn.storeColumn(20)
				fn.op("VAND V26.B16, %[1]s, %[1]s", v(w))
			}
			fn.storeColumn(w)
		}
	})
}
