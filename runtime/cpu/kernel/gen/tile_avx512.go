package main

import (
	"fmt"
	"math"
	"strings"
)

// Tiles: up to 12 vectors times panels of 32 rows. The 24 sums of a tile are in registers; rows are in the
// lanes, so that every sum adds its products in the order of the columns, whatever the size of the tile.

const tileVectors512 = 12

func tileAVX512() *file {
	f := &file{name: "tile_avx512", arch: "amd64", about: "Tiles of matrix products, AVX-512 with VNNI."}
	for _, format := range []string{"BF16", "F32"} {
		tileFloat512(f, format)
	}
	f.table("magic512", math.Float32bits(magic))
	for _, format := range []string{"BF16", "F32"} {
		tileInteger512(f, format)
	}
	return f
}

const (
	tileFloatParams   = "sums []float32, stride int, panel []byte, panelBytes int, x []float32, xStride, vectors, depth int, keep float32"
	tileIntegerParams = "sums []float32, panel []byte, scales, biases []float32, codes []int8, codeStride int, codeScales, codeSums []float32, groupStride, vectors, groups, group int"
)

const tileFloatDoc = `adds the products of vectors with a panel of %s numbers, whose rows are panelBytes apart, to sums times keep, for at most %d vectors:

	for i := range vectors {
		for r := range %d {
			sums[i*stride+r] *= keep
			for k := range depth {
				sums[i*stride+r] += x[i*xStride+k] * element(k, r)
			}
		}
	}`

const tileIntegerDoc = `adds the products of vectors of 8-bit codes with a panel of codes to sums, for at most %d vectors:

	for i := range vectors {
		for g := range groups {
			for r := range %d {
				dot := int32(0)
				for k := g * group; k < (g+1)*group; k++ {
					dot += int32(codes[i*codeStride+k]) * int32(panel[(k/4*%[2]d+r)*4+k%%4])
				}
				at := g*%[2]d + r
				sums[i*%[2]d+r] += float32(dot)*scales[at]*codeScales[i*groupStride+g] + biases[at]*codeSums[i*groupStride+g]
			}
		}
	}`

// vectorAddress returns the address of vector i of up to 12 that lie a distance apart: four registers point to
// every third.
func vectorAddress(i, offset int, base []string, distance string) string {
	switch i % 3 {
	case 1:
		return fmt.Sprintf("%d(%s)(%s*1)", offset, base[i/3], distance)
	case 2:
		return fmt.Sprintf("%d(%s)(%s*2)", offset, base[i/3], distance)
	}
	return fmt.Sprintf("%d(%s)", offset, base[i/3])
}

// pointAtVectors sets base[1:] from base[0] for vectors vectors; scratch is overwritten.
func (fn *function) pointAtVectors(vectors int, base []string, distance, scratch string) {
	if vectors > 3 {
		fn.op("LEAQ (%s)(%s*2), %s", distance, distance, scratch)
	}
	for i := 1; 3*i < vectors; i++ {
		fn.op("LEAQ (%s)(%s*1), %s", base[i-1], scratch, base[i])
	}
}

// byVectors writes body for each number of vectors and a choice among them by the register that holds the
// number.
func (fn *function) byVectors(most int, register string, body func(vectors int)) {
	labels := make([]string, most+1)
	for n := most; n > 0; n-- {
		labels[n] = fn.label("vectors")
		fn.op("CMPQ %s, $%d\nJEQ %s", register, n, labels[n])
	}
	fn.returnAMD64()
	for n := most; n > 0; n-- {
		fn.at(labels[n])
		body(n)
		fn.returnAMD64()
	}
}

// tileFloat512: DI sums, SI bytes between them, DX panel, BX bytes between its rows, R9 bytes between
// vectors, R10 to R13 vectors, CX depth left, Z0 to Z23 sums, Z30 keep.
func tileFloat512(f *file, format string) {
	fn := f.function(fmt.Sprintf("tileFloat%sAVX512", format), tileFloatParams, "",
		fmt.Sprintf(tileFloatDoc, strings.ToLower(format), tileVectors512, 32))
	fn.load("sums_base", "DI", "stride", "SI", "panel_base", "DX", "panelBytes", "BX", "x_base", "R10", "xStride", "R9",
		"depth", "CX", "vectors", "R8")
	fn.op("SHLQ $2, SI\nSHLQ $2, R9\nVBROADCASTSS %s, Z30", fn.argument("keep"))
	base := []string{"R10", "R11", "R12", "R13"}
	fn.byVectors(tileVectors512, "R8", func(n int) {
		fn.pointAtVectors(n, base, "R9", "AX")
		eachSum := func(op string) {
			fn.op("MOVQ DI, AX")
			for i := range n {
				for half := range 2 {
					fn.op(op, 64*half, z(2*i+half))
				}
				if i < n-1 {
					fn.op("ADDQ SI, AX")
				}
			}
		}
		eachSum("VMULPS %d(AX), Z30, %s")
		step := func(k int) {
			fn.loadFloats512(format, "(DX)", "", "Z24")
			fn.loadFloats512(format, fmt.Sprintf("%d(DX)", 16*floatBytes(format)), "", "Z25")
			fn.op("ADDQ BX, DX")
			for i := range n {
				v := z(26 + i%4)
				fn.op("VBROADCASTSS %s, %s", vectorAddress(i, 4*k, base, "R9"), v)
				fn.op("VFMADD231PS %s, Z24, %s\nVFMADD231PS %s, Z25, %s", v, z(2*i), v, z(2*i+1))
			}
		}
		advance := func(k int) {
			for i := range (n + 2) / 3 {
				fn.op("ADDQ $%d, %s", 4*k, base[i])
			}
		}
		loop, rest, end := fn.label("loop"), fn.label("rest"), fn.label("end")
		fn.op("SUBQ $2, CX\nJLT %s", rest)
		fn.at(loop)
		step(0)
		step(1)
		advance(2)
		fn.op("SUBQ $2, CX\nJGE %s", loop)
		fn.at(rest)
		fn.op("ADDQ $2, CX\nJZ %s", end)
		step(0)
		fn.at(end)
		fn.op("MOVQ DI, AX")
		for i := range n {
			fn.op("VMOVUPS %s, (AX)\nVMOVUPS %s, 64(AX)", z(2*i), z(2*i+1))
			if i < n-1 {
				fn.op("ADDQ SI, AX")
			}
		}
	})
}

// magic is a float32 whose last mantissa bit has the value 1. Integers below 2^22 in magnitude can be added to its bit
// pattern: the result is the bit pattern of the sum as a float. So sums of products of codes need no conversion. If
// scales are bfloat16, magic·scale is exact, so that one fused operation multiplies by the scale and subtracts
// magic·scale.
const magic = 3 << 22

// tileInteger512: DI sums, DX panel, SI and R8 scales and biases of the group, AX and BX code scales and code sums of
// the group, R9 bytes between vectors, R10 to R13 vectors, R15 groups left, CX left of the group, Z0 to Z23 sums of the
// group. format is that of the scales before they were widened. It is long because it is one assembly routine: its
// registers are assigned across all of it.
func tileInteger512(f *file, format string) {
	doc := fmt.Sprintf(tileIntegerDoc, tileVectors512, 32)
	if format == "BF16" {
		doc += "\n\nEvery scale is a bfloat16 number, and dot is below 2^22 in magnitude."
	}
	fn := f.function("tileInteger"+format+"AVX512", tileIntegerParams, "", doc)
	fn.load("sums_base", "DI", "panel_base", "DX", "scales_base", "SI", "biases_base", "R8", "codeScales_base",
		"AX", "codeSums_base", "BX",
		"codes_base", "R10", "codeStride", "R9", "groups", "R15", "vectors", "CX")
	base := []string{"R10", "R11", "R12", "R13"}
	fn.byVectors(tileVectors512, "CX", func(n int) {
		fn.pointAtVectors(n, base, "R9", "R14")
		group, loop, end := fn.label("group"), fn.label("loop"), fn.label("end")
		fn.op("TESTQ R15, R15\nJZ %s", end)
		fn.at(group)
		if format == "BF16" {
			fn.op("VPBROADCASTD magic512<>(SB), Z28")
		}
		for i := range 2 * n {
			if format == "BF16" {
				fn.op("VMOVDQA32 Z28, %s", z(i))
			} else {
				fn.zero(z(i))
			}
		}
		fn.op("MOVQ %s, CX", fn.argument("group"))
		fn.at(loop)
		const steps = 4 // of 4 columns
		for s := range steps {
			fn.op("VMOVDQU32 %d(DX), Z24\nVMOVDQU32 %d(DX), Z25", 128*s, 128*s+64)
			for i := range n {
				v := z(26 + i%2)
				fn.op("VPBROADCASTD %s, %s", vectorAddress(i, 4*s, base, "R9"), v)
				fn.op("VPDPBUSD %s, Z24, %s\nVPDPBUSD %s, Z25, %s", v, z(2*i), v, z(2*i+1))
			}
		}
		fn.op("ADDQ $%d, DX", 128*steps)
		for i := range (n + 2) / 3 {
			fn.op("ADDQ $%d, %s", 4*steps, base[i])
		}
		fn.op("SUBQ $%d, CX\nJNZ %s", 4*steps, loop)
		// The sums of the group are complete.
		fn.op("VMOVUPS (SI), Z28\nVMOVUPS 64(SI), Z29\nVMOVUPS (R8), Z30\nVMOVUPS 64(R8), Z31\nADDQ $128, SI\nADDQ $128, R8")
		if format == "BF16" {
			fn.op("VBROADCASTSS magic512<>(SB), Z27\nVMULPS Z27, Z28, Z26\nVMULPS Z27, Z29, Z27")
		}
		fn.op("MOVQ %s, R14\nSHLQ $2, R14\nXORQ CX, CX", fn.argument("groupStride"))
		for i := range n {
			fn.op("VBROADCASTSS (AX)(CX*1), Z24\nVBROADCASTSS (BX)(CX*1), Z25\nADDQ R14, CX")
			for half := range 2 {
				dot, at := z(2*i+half), 128*i+64*half
				fn.addGroup512(format, dot, at, groupOfRows{z(28 + half), z(26 + half), z(30 + half)}, "Z24", "Z25")
			}
		}
		fn.op("ADDQ $4, AX\nADDQ $4, BX\nDECQ R15\nJNZ %s", group)
		fn.at(end)
	})
}

// groupOfRows names registers that hold a group's scales and biases of 16 rows. Where scales are bfloat16, the register
// magic holds the constant magic times the scales.
type groupOfRows struct{ scale, magic, bias string }

// addGroup512 adds a group's products to the sums of one vector with 16 rows, which stand at bytes after DI. The register
// dot holds the group's integer sums of products of codes, plus the constant magic where scales are bfloat16. The
// registers codeScale and codeSum hold the vector's scale and its sum of codes of the group, in all lanes.
func (fn *function) addGroup512(format, dot string, at int, rows groupOfRows, codeScale, codeSum string) {
	if format == "BF16" {
		fn.op("VFMSUB213PS %s, %s, %s", rows.magic, rows.scale, dot)
	} else {
		fn.op("VCVTDQ2PS %s, %s\nVMULPS %s, %s, %s", dot, dot, rows.scale, dot, dot)
	}
	fn.op("VFMADD213PS %d(DI), %s, %s\nVFMADD231PS %s, %s, %s\nVMOVUPS %s, %d(DI)", at, codeScale, dot, codeSum, rows.bias,
		dot, dot, at)
}
