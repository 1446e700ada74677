package main

import (
	"fmt"
	"strings"
)

// The tiles of tile_avx512.go in 32-byte registers: up to 6 vectors of float32, or 3 of codes, times 16 rows.

const (
	tileVectors256        = 6
	tileIntegerVectors256 = 3
)

func tileAVX2() *file {
	f := &file{name: "tile_avx2", arch: "amd64", about: "Tiles of matrix products, AVX2 with FMA."}
	f.table("wordOnesTile256", repeat(0x00010001, 8)...)
	f.table("wordSixteensTile256", repeat(0x00100010, 8)...)
	f.table("lowHalves256", repeat(0x0f0f0f0f, 8)...)
	for _, format := range []string{"BF16", "F32"} {
		tileFloat256(f, format)
	}
	for _, bits := range []int{4, 8} {
		tileInteger256(f, bits)
	}
	return f
}

// tileFloat256 has the registers of tileFloat512, with Y0 to Y11 sums; Y12 is keep at first.
func tileFloat256(f *file, format string) {
	fn := f.function(fmt.Sprintf("tileFloat%sAVX2", format), tileFloatParams, "",
		fmt.Sprintf(tileFloatDoc, strings.ToLower(format), tileVectors256, 16))
	fn.load("sums_base", "DI", "stride", "SI", "panel_base", "DX", "panelBytes", "BX", "x_base", "R10", "xStride", "R9",
		"depth", "CX", "vectors", "R8")
	fn.op("SHLQ $2, SI\nSHLQ $2, R9\nVBROADCASTSS %s, Y12", fn.argument("keep"))
	base := []string{"R10", "R11"}
	fn.byVectors(tileVectors256, "R8", func(n int) {
		fn.pointAtVectors(n, base, "R9", "AX")
		eachSum := func(op func(at int, register string)) {
			fn.op("MOVQ DI, AX")
			for i := range n {
				op(0, y(2*i))
				op(32, y(2*i+1))
				if i < n-1 {
					fn.op("ADDQ SI, AX")
				}
			}
		}
		eachSum(func(at int, register string) { fn.op("VMULPS %d(AX), Y12, %s", at, register) })
		step := func(k int) {
			fn.loadFloats256(format, "(DX)", "Y12")
			fn.loadFloats256(format, fmt.Sprintf("%d(DX)", 8*floatBytes(format)), "Y13")
			fn.op("ADDQ BX, DX")
			for i := range n {
				v := y(14 + i%2)
				fn.op("VBROADCASTSS %s, %s", vectorAddress(i, 4*k, base, "R9"), v)
				fn.op("VFMADD231PS %s, Y12, %s\nVFMADD231PS %s, Y13, %s", v, y(2*i), v, y(2*i+1))
			}
		}
		loop, rest, end := fn.label("loop"), fn.label("rest"), fn.label("end")
		fn.op("SUBQ $2, CX\nJLT %s", rest)
		fn.at(loop)
		step(0)
		step(1)
		for i := range (n + 2) / 3 {
			fn.op("ADDQ $8, %s", base[i])
		}
		fn.op("SUBQ $2, CX\nJGE %s", loop)
		fn.at(rest)
		fn.op("ADDQ $2, CX\nJZ %s", end)
		step(0)
		fn.at(end)
		eachSum(func(at int, register string) { fn.op("VMOVUPS %s, %d(AX)", register, at) })
	})
}

// tileInteger256: DI sums, DX panel, SI and R8 scales and biases of the group, AX and BX code scales and code sums of
// the group, R9 bytes between vectors, R10 vectors, R15 groups left, CX left of the group, Y0 to Y5 sums of the group,
// Y6 to Y11 sums of 32 codes in 16 bits. It is long because it is one assembly routine: its registers are assigned
// across all of it.
func tileInteger256(f *file, bits int) {
	fn := f.function(fmt.Sprintf("tileIntegerQ%dAVX2", bits), tileIntegerParams, "",
		fmt.Sprintf(tileIntegerDoc, tileIntegerVectors256, 16))
	fn.load("sums_base", "DI", "panel_base", "DX", "scales_base", "SI", "biases_base", "R8", "codeScales_base",
		"AX", "codeSums_base", "BX",
		"codes_base", "R10", "codeStride", "R9", "groups", "R15", "vectors", "CX")
	base := []string{"R10"}
	fn.byVectors(tileIntegerVectors256, "CX", func(n int) {
		group, loop, end := fn.label("group"), fn.label("loop"), fn.label("end")
		fn.op("TESTQ R15, R15\nJZ %s", end)
		fn.at(group)
		for i := range 2 * n {
			fn.zero(y(i))
		}
		fn.op("MOVQ %s, CX", fn.argument("group"))
		fn.at(loop)
		if bits == 4 {
			// 8 products of two terms, 15·127 at most each, fit 16 bits.
			for step := range 8 {
				fn.op("VMOVDQU %d(DX), Y12\nVMOVDQU %d(DX), Y13", 64*step, 64*step+32)
				for i := range n {
					fn.op("VPBROADCASTD %s, Y14", vectorAddress(i, 4*step, base, "R9"))
					for half := range 2 {
						if step == 0 {
							fn.op("VPMADDUBSW Y14, %s, %s", y(12+half), y(6+2*i+half))
						} else {
							fn.op("VPMADDUBSW Y14, %s, Y15\nVPADDW Y15, %s, %s", y(12+half),
								y(6+2*i+half), y(6+2*i+half))
						}
					}
				}
			}
			for i := range 2 * n {
				fn.op("VPMADDWD wordOnesTile256<>(SB), %[1]s, %[1]s\nVPADDD %[1]s, %[2]s, %[2]s", y(6+i), y(i))
			}
			fn.op("ADDQ $512, DX\nADDQ $32, R10\nSUBQ $32, CX\nJNZ %s", loop)
		} else {
			// Halves of codes of 8 bits, Y8 to Y11.
			for step := range 4 {
				for half := range 2 {
					fn.op("VMOVDQU %d(DX), %s\nVPSRLD $4, %[2]s, %[3]s", 64*step+32*half, y(8+half), y(10+half))
					fn.op("VPAND lowHalves256<>(SB), %[1]s, %[1]s\nVPAND lowHalves256<>(SB), %[2]s, %[2]s", y(8+half),
						y(10+half))
				}
				for i := range n {
					fn.op("VPBROADCASTD %s, Y14", vectorAddress(i, 4*step, base, "R9"))
					for half := range 2 {
						fn.op("VPMADDUBSW Y14, %s, Y15\nVPMADDWD wordOnesTile256<>(SB), Y15, Y15\nVPADDD Y15, %[2]s, %[2]s", y(8+half), y(2*i+half))
						fn.op("VPMADDUBSW Y14, %s, Y13\nVPMADDWD wordSixteensTile256<>(SB), Y13, Y13\nVPADDD Y13, %[2]s, %[2]s", y(10+half), y(2*i+half))
					}
				}
			}
			fn.op("ADDQ $256, DX\nADDQ $16, R10\nSUBQ $16, CX\nJNZ %s", loop)
		}
		// The sums of the group are complete.
		fn.op("VMOVUPS (SI), Y8\nVMOVUPS 32(SI), Y9\nVMOVUPS (R8), Y10\nVMOVUPS 32(R8), Y11\nADDQ $64, SI\nADDQ $64, R8")
		fn.op("MOVQ %s, R14\nSHLQ $2, R14\nXORQ CX, CX", fn.argument("groupStride"))
		for i := range n {
			fn.op("VBROADCASTSS (AX)(CX*1), Y12\nVBROADCASTSS (BX)(CX*1), Y13\nADDQ R14, CX")
			for half := range 2 {
				dot, at := y(2*i+half), 64*i+32*half
				fn.op("VCVTDQ2PS %s, %s\nVMULPS %s, %s, %s", dot, dot, y(8+half), dot, dot)
				fn.op("VFMADD213PS %d(DI), Y12, %s\nVFMADD231PS Y13, %s, %s\nVMOVUPS %s, %d(DI)", at, dot,
					y(10+half), dot, dot, at)
			}
		}
		fn.op("ADDQ $4, AX\nADDQ $4, BX\nDECQ R15\nJNZ %s", group)
		fn.at(end)
	})
}
