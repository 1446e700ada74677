package main

import "fmt"

// The panels of pack_avx512.go, 8 rows at a time.

func packAVX2() *file {
	f := &file{name: "pack_avx2", arch: "amd64", about: "Panels of matrices for tiles, AVX2."}
	for _, bits := range []int{4, 8} {
		packCodes256(f, bits)
	}
	for _, bits := range []int{4, 8} {
		packQuantized256(f, bits)
	}
	for _, format := range []string{"BF16", "F32"} {
		packDense256(f, format)
	}
	for _, format := range []string{"BF16", "F32"} {
		packScales256(f, format)
	}
	return f
}

// turn256 loads words 0 to 7 of 8 rows, R9 bytes apart from SI on, and leaves word w of all rows in Y
// register w; the others are overwritten, and so is CX.
func (fn *function) turn256(load func(from, to string)) {
	fn.op("MOVQ SI, CX")
	for r := range 8 {
		load("(CX)", y(r))
		if r < 7 {
			fn.op("ADDQ R9, CX")
		}
	}
	for r := 0; r < 8; r += 2 {
		fn.op("VPUNPCKLDQ %s, %s, %s\nVPUNPCKHDQ %s, %s, %s", y(r+1), y(r), y(8+r), y(r+1), y(r), y(9+r))
	}
	// Words c and c+4 of rows 0 to 3 in register c, of rows 4 to 7 in register 4+c.
	for b := range 2 {
		for c := range 2 {
			from := 8 + 4*b + c
			fn.op("VPUNPCKLQDQ %s, %s, %s\nVPUNPCKHQDQ %s, %s, %s", y(from+2), y(from), y(4*b+2*c),
				y(from+2), y(from), y(4*b+2*c+1))
		}
	}
	for c := range 4 {
		fn.op("VPERM2I128 $0x31, %s, %s, %s\nVPERM2I128 $0x20, %s, %s, %s", y(4+c), y(c), y(8+c), y(4+c), y(c), y(c))
	}
	for c := range 4 {
		fn.op("VMOVDQA %s, %s", y(8+c), y(4+c))
	}
}

// broadcast256 puts a word into all lanes.
func (fn *function) broadcast256(word uint32, register int) {
	fn.op("MOVL $0x%08x, AX\nVMOVD AX, %s\nVPBROADCASTD %s, %s", word, x(register), x(register), y(register))
}

func load256(fn *function) func(from, to string) {
	return func(from, to string) { fn.op("VMOVDQU %s, %s", from, to) }
}

// packCodes256 has the registers of packCodes512.
func packCodes256(f *file, bits int) {
	fn := f.function(fmt.Sprintf("packCodesQ%dAVX2", bits), packCodesParams, "", packCodesDoc(bits, 8))
	fn.packLoop256(func() {
		if bits == 4 {
			fn.broadcast256(0x0f0f0f0f, 9)
		}
		fn.fetchAhead("AX")
		for w := range 8 {
			fn.fetchLine("AX")
			if bits == 4 {
				fn.op("VPSRLD $4, %[1]s, Y8\nVPAND Y9, %[1]s, %[1]s\nVPAND Y9, Y8, Y8", y(w))
			}
			fn.op("VMOVDQU %s, (DI)\nADDQ BX, DI", y(w))
			if bits == 4 {
				fn.op("VMOVDQU Y8, (DI)\nADDQ BX, DI")
			}
		}
	})
}

// packLoop256 writes the loop over chunks of a packCodes or packDense function.
func (fn *function) packLoop256(body func()) {
	fn.load("panel_base", "DI", "stride", "BX", "data_base", "SI", "rowBytes", "R9", "chunks", "DX")
	loop, end := fn.label("loop"), fn.label("end")
	fn.op("TESTQ DX, DX\nJZ %s", end)
	fn.at(loop)
	fn.turn256(load256(fn))
	body()
	fn.op("ADDQ $32, SI\nDECQ DX\nJNZ %s", loop)
	fn.at(end)
	fn.returnAMD64()
}

// packQuantized256 has the registers of packQuantized512, with scales in Y12 and biases in Y13.
func packQuantized256(f *file, bits int) {
	fn := f.function(fmt.Sprintf("packQuantizedQ%dAVX2", bits), packQuantizedParams, "", packQuantizedDoc(bits, 8))
	fn.load("scales_base", "R10", "biases_base", "R11", "scaleStride", "R12", "group", "R13")
	fn.op("SHLQ $2, R12")
	fn.packLoop256(func() {
		codes := 32 / bits // in a word
		fn.broadcast256(1<<bits-1, 11)
		loadScales := func() { fn.op("VMOVUPS (R10), Y12\nVMOVUPS (R11), Y13") }
		loadScales()
		fn.fetchAhead("AX")
		for w := range 8 {
			fn.fetchLine("AX")
			for j := range codes {
				out := y(8 + j%3)
				if j == 0 {
					fn.op("VPAND Y11, %s, %s", y(w), out)
				} else {
					fn.op("VPSRLD $%d, %s, %s", bits*j, y(w), out)
					if j < codes-1 {
						fn.op("VPAND Y11, %s, %s", out, out)
					}
				}
				fn.op("VCVTDQ2PS %[1]s, %[1]s\nVMULPS Y12, %[1]s, %[1]s\nVADDPS Y13, %[1]s, %[1]s\nVMOVUPS %[1]s, (DI)\nADDQ BX, DI", out)
			}
			// The next group may begin after 32 columns.
			if (w+1)*codes%32 == 0 {
				same := fn.label("same")
				fn.op("SUBQ $32, R13\nJNZ %s\nMOVQ %s, R13\nADDQ R12, R10\nADDQ R12, R11", same, fn.argument("group"))
				if w < 7 {
					loadScales()
				}
				fn.at(same)
			}
		}
	})
}

func packDense256(f *file, format string) {
	fn := f.function(fmt.Sprintf("packDense%sAVX2", format), packCodesParams, "", packDenseDoc(format, 8))
	fn.packLoop256(func() {
		if format == "BF16" {
			fn.broadcast256(0xffff0000, 9)
		}
		fn.fetchAhead("AX")
		for w := range 8 {
			fn.fetchLine("AX")
			if format == "BF16" {
				fn.op("VPSLLD $16, %[1]s, Y8\nVMOVDQU Y8, (DI)\nADDQ BX, DI\nVPAND Y9, %[1]s, %[1]s", y(w))
			}
			fn.op("VMOVDQU %s, (DI)\nADDQ BX, DI", y(w))
		}
	})
}

// packScales256 turns whole squares of 8 groups.
func packScales256(f *file, format string) {
	fn := f.function(fmt.Sprintf("packScales%sAVX2", format), packScalesParams, "",
		`turns 8 rows of numbers, whole eights of groups:

	for g := range groups &^ 7 {
		for r := range 8 {
			dst[g*stride+r] = element(r, g)
		}
	}`)
	fn.load("dst_base", "DI", "stride", "BX", "data_base", "SI", "rowBytes", "R9", "groups", "DX")
	loop, end := fn.label("loop"), fn.label("end")
	fn.op("SHLQ $2, BX")
	fn.at(loop)
	fn.op("SUBQ $8, DX\nJLT %s", end)
	fn.turn256(func(from, to string) { fn.loadFloats256(format, from, to) })
	for w := range 8 {
		fn.op("VMOVDQU %s, (DI)\nADDQ BX, DI", y(w))
	}
	fn.op("ADDQ $%d, SI\nJMP %s", 8*floatBytes(format), loop)
	fn.at(end)
	fn.returnAMD64()
}
