package main

import (
	"fmt"
	"strings"
)

// Panels, 16 rows at a time: a square of 16 rows and 16 words is turned, so that a register holds the same
// word of 16 rows, and its codes or numbers are stored for each of their columns.

func packAVX512() *file {
	f := &file{name: "pack_avx512", arch: "amd64", about: "Panels of matrices for tiles, AVX-512."}
	for _, bits := range []int{4, 8} {
		packCodes512(f, bits)
	}
	for _, bits := range []int{4, 8} {
		packQuantized512(f, bits)
	}
	for _, format := range []string{"BF16", "F32"} {
		packDense512(f, format)
	}
	for _, format := range []string{"BF16", "F32"} {
		packScales512(f, format)
	}
	return f
}

// turn512 loads word 0 to 15 of 16 rows, R9 bytes apart from SI on, and leaves word w of all rows in Z
// register turned(w). load loads a row at an address. SI stays; CX is overwritten.
func (fn *function) turn512(load func(from, to string)) {
	fn.op("MOVQ SI, CX")
	for r := range 16 {
		load("(CX)", z(r))
		if r < 15 {
			fn.op("ADDQ R9, CX")
		}
	}
	// Pairs of rows, then fours: afterwards register 16+4·b+c holds words c, c+4, c+8, c+12 of rows 4·b to
	// 4·b+3, in the four quarters.
	for b := range 4 {
		r := 4 * b
		fn.op("VPUNPCKLDQ %s, %s, %s\nVPUNPCKHDQ %s, %s, %s", z(r+1), z(r), z(16+r), z(r+1), z(r), z(17+r))
		fn.op("VPUNPCKLDQ %s, %s, %s\nVPUNPCKHDQ %s, %s, %s", z(r+3), z(r+2), z(18+r), z(r+3), z(r+2), z(19+r))
		fn.op("VPUNPCKLQDQ %s, %s, %s\nVPUNPCKHQDQ %s, %s, %s", z(18+r), z(16+r), z(r), z(18+r), z(16+r), z(r+1))
		fn.op("VPUNPCKLQDQ %s, %s, %s\nVPUNPCKHQDQ %s, %s, %s", z(19+r), z(17+r), z(r+2), z(19+r), z(17+r), z(r+3))
	}
	// Quarters of the four fours: words c and c+8, c+4 and c+12.
	for c := range 4 {
		fn.op("VSHUFI32X4 $0x88, %s, %s, %s\nVSHUFI32X4 $0xdd, %s, %s, %s", z(4+c), z(c),
			z(16+c), z(4+c), z(c), z(20+c))
		fn.op("VSHUFI32X4 $0x88, %s, %s, %s\nVSHUFI32X4 $0xdd, %s, %s, %s", z(12+c), z(8+c), z(24+c),
			z(12+c), z(8+c), z(28+c))
	}
	for c := range 4 {
		fn.op("VSHUFI32X4 $0x88, %s, %s, %s\nVSHUFI32X4 $0xdd, %s, %s, %s", z(24+c), z(16+c), z(c),
			z(24+c), z(16+c), z(8+c))
		fn.op("VSHUFI32X4 $0x88, %s, %s, %s\nVSHUFI32X4 $0xdd, %s, %s, %s", z(28+c), z(20+c), z(4+c),
			z(28+c), z(20+c), z(12+c))
	}
}

func load512(fn *function) func(from, to string) {
	return func(from, to string) { fn.op("VMOVDQU32 %s, %s", from, to) }
}

// fetchAhead makes a register point to what the next 16 rows have at the columns of the chunk at SI, and fetchLine asks
// for a line of one of them, the next one each time. The processor by itself follows the rows that are read, which end
// soon, and not those that come next. Lines that are all asked for at once would fill the buffers in which a core waits
// for memory, and the loads of the chunk would wait for them.
func (fn *function) fetchAhead(register string) {
	fn.op("MOVQ R9, %s\nSHLQ $4, %s\nADDQ SI, %s", register, register, register)
}

func (fn *function) fetchLine(register string) {
	fn.op("PREFETCHT1 (%s)\nADDQ R9, %s", register, register)
}

const (
	packCodesParams     = "panel []byte, stride int, data []byte, rowBytes, chunks int"
	packQuantizedParams = "panel []byte, stride int, data []byte, rowBytes, chunks int, scales, biases []float32, scaleStride, group int"
	packScalesParams    = "dst []float32, stride int, data []byte, rowBytes, groups int"
)

func packCodesDoc(bits, lanes int) string {
	order := ""
	if bits == 4 {
		order = ", of 8 codes the even ones first"
	}
	return fmt.Sprintf(`turns %[1]d rows of %[2]d-bit codes into a part of a panel, stride bytes for 4 columns%[3]s:

	for k := range chunks * %[4]d {
		for r := range %[1]d {
			panel[k/4*stride+4*r+k%%4] = code(r, k)
		}
	}`, lanes, bits, order, 32*lanes/bits)
}

// packCodes512: DI panel, BX its stride, SI data, R9 rowBytes, DX chunks left.
func packCodes512(f *file, bits int) {
	fn := f.function(fmt.Sprintf("packCodesQ%dAVX512", bits), packCodesParams, "", packCodesDoc(bits, 16))
	fn.load("panel_base", "DI", "stride", "BX", "data_base", "SI", "rowBytes", "R9", "chunks", "DX")
	loop, end := fn.label("loop"), fn.label("end")
	fn.op("TESTQ DX, DX\nJZ %s", end)
	fn.at(loop)
	fn.turn512(load512(fn))
	if bits == 4 {
		fn.op("MOVL $0x0f0f0f0f, AX\nVPBROADCASTD AX, Z31")
	}
	fn.fetchAhead("AX")
	for w := range 16 {
		fn.fetchLine("AX")
		if bits == 4 {
			fn.op("VPSRLD $4, %s, Z30\nVPANDD Z31, %s, %s\nVPANDD Z31, Z30, Z30", z(w), z(w), z(w))
		}
		fn.op("VMOVDQU32 %s, (DI)\nADDQ BX, DI", z(w))
		if bits == 4 {
			fn.op("VMOVDQU32 Z30, (DI)\nADDQ BX, DI")
		}
	}
	fn.op("ADDQ $64, SI\nDECQ DX\nJNZ %s", loop)
	fn.at(end)
	fn.returnAMD64()
}

func packQuantizedDoc(bits, lanes int) string {
	return fmt.Sprintf(`turns %[1]d rows of %[2]d-bit codes into a part of a panel of float32, stride bytes for a column:

	for k := range chunks * %[3]d {
		for r := range %[1]d {
			g := k / group * scaleStride
			panel[k*stride/4+r] = float32(code(r, k))*scales[g+r] + biases[g+r]
		}
	}

A column is written as bytes; scales and biases begin with those of the first code. Products are rounded
before biases are added, as they are where a panel is not packed here.`, lanes, bits, 32*lanes/bits)
}

// packQuantized512: DI panel, BX its stride, SI data, R9 rowBytes, DX chunks left, R10 scales, R11 biases,
// R12 bytes between groups, R13 columns left of the group, Z30 scales, Z31 biases.
func packQuantized512(f *file, bits int) {
	fn := f.function(fmt.Sprintf("packQuantizedQ%dAVX512", bits), packQuantizedParams, "", packQuantizedDoc(bits, 16))
	fn.load("panel_base", "DI", "stride", "BX", "data_base", "SI", "rowBytes", "R9", "chunks", "DX", "scales_base",
		"R10", "biases_base", "R11", "scaleStride", "R12", "group", "R13")
	fn.op("SHLQ $2, R12")
	loop, end := fn.label("loop"), fn.label("end")
	fn.op("TESTQ DX, DX\nJZ %s", end)
	fn.at(loop)
	fn.turn512(load512(fn))
	codes := 32 / bits // in a word
	fn.op("MOVL $%d, AX\nVPBROADCASTD AX, Z29", 1<<bits-1)
	fn.op("VMOVUPS (R10), Z30\nVMOVUPS (R11), Z31")
	fn.fetchAhead("AX")
	for w := range 16 {
		fn.fetchLine("AX")
		for j := range codes {
			out := z(16 + j)
			if j == 0 {
				fn.op("VPANDD Z29, %s, %s", z(w), out)
			} else {
				fn.op("VPSRLD $%d, %s, %s", bits*j, z(w), out)
				if j < codes-1 {
					fn.op("VPANDD Z29, %s, %s", out, out)
				}
			}
			fn.op("VCVTDQ2PS %s, %s\nVMULPS Z30, %s, %s\nVADDPS Z31, %s, %s\nVMOVUPS %s, (DI)\nADDQ BX, DI", out, out,
				out, out, out, out, out)
		}
		// The next group may begin after 32 columns.
		if (w+1)*codes%32 == 0 {
			same := fn.label("same")
			fn.op("SUBQ $32, R13\nJNZ %s\nMOVQ %s, R13\nADDQ R12, R10\nADDQ R12, R11", same, fn.argument("group"))
			if w < 15 {
				fn.op("VMOVUPS (R10), Z30\nVMOVUPS (R11), Z31")
			}
			fn.at(same)
		}
	}
	fn.op("ADDQ $64, SI\nDECQ DX\nJNZ %s", loop)
	fn.at(end)
	fn.returnAMD64()
}

func packDenseDoc(format string, lanes int) string {
	return fmt.Sprintf(`turns %[1]d rows of %[2]s numbers into a part of a panel of float32, stride bytes for a column:

	for k := range chunks * %[3]d {
		for r := range %[1]d {
			panel[k*stride/4+r] = element(r, k)
		}
	}

A column is written as bytes.`, lanes, strings.ToLower(format), 4*lanes/floatBytes(format))
}

// packDense512 has the registers of packCodes512.
func packDense512(f *file, format string) {
	fn := f.function(fmt.Sprintf("packDense%sAVX512", format), packCodesParams, "", packDenseDoc(format, 16))
	fn.load("panel_base", "DI", "stride", "BX", "data_base", "SI", "rowBytes", "R9", "chunks", "DX")
	loop, end := fn.label("loop"), fn.label("end")
	fn.op("TESTQ DX, DX\nJZ %s", end)
	fn.at(loop)
	fn.turn512(load512(fn))
	if format == "BF16" {
		fn.op("MOVL $0xffff0000, AX\nVPBROADCASTD AX, Z31")
	}
	fn.fetchAhead("AX")
	for w := range 16 {
		fn.fetchLine("AX")
		if format == "BF16" {
			fn.op("VPSLLD $16, %s, Z30\nVMOVDQU32 Z30, (DI)\nADDQ BX, DI\nVPANDD Z31, %s, %s", z(w), z(w), z(w))
		}
		fn.op("VMOVDQU32 %s, (DI)\nADDQ BX, DI", z(w))
	}
	fn.op("ADDQ $64, SI\nDECQ DX\nJNZ %s", loop)
	fn.at(end)
	fn.returnAMD64()
}

func packScalesDoc(format string, lanes int) string {
	return fmt.Sprintf(`turns %[1]d rows of %[2]s numbers, writing groups rounded up to a multiple of %[1]d:

	for g := range groups {
		for r := range %[1]d {
			dst[g*stride+r] = element(r, g)
		}
	}

What is written beyond groups is zero.`, lanes, strings.ToLower(format))
}

// packScales512: DI dst, BX bytes between its rows, SI data, R9 rowBytes, DX groups left.
func packScales512(f *file, format string) {
	fn := f.function(fmt.Sprintf("packScales%sAVX512", format), packScalesParams, "", packScalesDoc(format, 16))
	fn.load("dst_base", "DI", "stride", "BX", "data_base", "SI", "rowBytes", "R9", "groups", "DX")
	loop, end := fn.label("loop"), fn.label("end")
	fn.op("SHLQ $2, BX")
	fn.at(loop)
	fn.op("TESTQ DX, DX\nJLE %s", end)
	fn.op("MOVL $16, AX\nCMPQ DX, AX\nCMOVQLT DX, AX\nMOVL $-1, CX\nBZHIL AX, CX, CX\nKMOVW CX, K1")
	fn.turn512(func(from, to string) { fn.loadFloats512(format, from, "K1", to) })
	fn.fetchAhead("AX")
	for w := range 16 {
		fn.fetchLine("AX")
		fn.op("VMOVDQU32 %s, (DI)\nADDQ BX, DI", z(w))
	}
	fn.op("ADDQ $%d, SI\nSUBQ $16, DX\nJMP %s", 16*floatBytes(format), loop)
	fn.at(end)
	fn.returnAMD64()
}
