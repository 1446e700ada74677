package main

import (
	"fmt"
	"math"
)

// Activations in the form that products read.

func prepareAVX512() *file {
	f := &file{name: "prepare_avx512", arch: "amd64", about: "Activations for products, AVX-512."}
	f.table("splitBytes512", splitBytes(1)...)
	f.table("splitBytesOf8x512", splitBytes(8)...)
	f.table("splitBytesOf128x512", splitBytes(16)...)
	words := make([]uint32, 16)
	for i := range words {
		words[i] = uint32(8 * i)
	}
	f.table("everyEighth512", words...)
	quantize512(f)
	groupSums512(f)
	spread512(f)
	touch512(f)
	return f
}

// splitBytes is a shuffle of 16 bytes that puts the even ones of block before the odd ones; 1 keeps them.
func splitBytes(block int) []uint32 {
	words := make([]uint32, 4)
	for i := range 16 {
		to := i
		if block > 1 {
			to = i - i%block + i%block/2 + i%2*(block/2)
		}
		words[to/4] |= uint32(i) << (8 * (to % 4))
	}
	return words
}

const quantizeDoc = `rounds groups of x to 8 bits:

	for g := range len(x) / group {
		largest := float32(0)
		sums[g] = 0
		for _, v := range x[g*group : (g+1)*group] {
			largest = max(largest, |v|)
			sums[g] += v
		}
		scales[g] = largest / 127
		for k := g * group; k < (g+1)*group; k++ {
			codes[blockPlace(k, block)] = round(x[k] * (127 / largest))
		}
	}

NaN is passed over by max and gives 127. block is 1, 8 or %d.`

// quantize512: DI and R8 where codes go, SI x, R9 scales, R10 sums, R11 group, R12 how far DI and R8 go on
// for 16 codes, R13 and how much more after 128, BX codes written, DX groups left.
func quantize512(f *file) {
	fn := f.function("quantizeAVX512", "codes []int8, scales, sums, x []float32, group, block int", "", fmt.Sprintf(quantizeDoc, 128))
	fn.load("codes_base", "DI", "scales_base", "R9", "sums_base", "R10", "x_base", "SI", "x_len", "AX", "group", "R11")
	fn.op("XORQ DX, DX\nDIVQ R11\nMOVQ AX, DX")
	natural, pairs, chosen, group, end := fn.label("natural"), fn.label("of8x"), fn.label("chosen"), fn.label("group"), fn.label("end")
	fn.op("MOVQ %s, AX\nCMPQ AX, $1\nJEQ %s\nCMPQ AX, $8\nJEQ %s", fn.argument("block"), natural, pairs)
	fn.op("VMOVDQU splitBytesOf128x512<>(SB), X6\nMOVQ $8, R12\nMOVQ $64, R13\nLEAQ 64(DI), R8\nJMP %s", chosen)
	fn.at(natural)
	fn.op("VMOVDQU splitBytes512<>(SB), X6\nMOVQ $16, R12\nXORQ R13, R13\nLEAQ 8(DI), R8\nJMP %s", chosen)
	fn.at(pairs)
	fn.op("VMOVDQU splitBytesOf8x512<>(SB), X6\nMOVQ $16, R12\nXORQ R13, R13\nLEAQ 8(DI), R8")
	fn.at(chosen)
	fn.op("MOVL $0x7fffffff, AX\nVPBROADCASTD AX, Z31\nMOVL $0x%08x, AX\nVPBROADCASTD AX, Z30\nMOVL $0x%08x, AX\nVPBROADCASTD AX, Z29", math.Float32bits(127), math.Float32bits(-127))
	fn.op("XORQ BX, BX\nTESTQ DX, DX\nJZ %s", end)
	fn.at(group)
	first, second, nonzero, same := fn.label("first"), fn.label("second"), fn.label("nonzero"), fn.label("same")
	fn.zero("Z0", "Z1")
	fn.op("MOVQ SI, CX\nMOVQ R11, AX")
	fn.at(first)
	fn.op("VMOVUPS (CX), Z2\nVANDPS Z31, Z2, Z3\nVMAXPS Z0, Z3, Z0\nVADDPS Z2, Z1, Z1\nADDQ $64, CX\nSUBQ $16, AX\nJNZ %s", first)
	fn.reduce512(1, 2)
	fn.op(`VEXTRACTF64X4 $1, Z0, Y2
		VMAXPS Y2, Y0, Y0
		VEXTRACTF128 $1, Y0, X2
		VMAXPS X2, X0, X0
		VSHUFPS $0x4e, X0, X0, X2
		VMAXPS X2, X0, X0
		VSHUFPS $0xb1, X0, X0, X2
		VMAXSS X2, X0, X0
		VMOVSS X1, (R10)
		VMOVAPS X30, X4
		VDIVSS X4, X0, X3
		VMOVSS X3, (R9)
		VXORPS X2, X2, X2
		VUCOMISS X2, X0
		JEQ %s
		VDIVSS X0, X4, X2`, nonzero)
	fn.at(nonzero)
	fn.op("VBROADCASTSS X2, Z5\nMOVQ R11, AX")
	fn.at(second)
	fn.op(`VMULPS (SI), Z5, Z2
		VMINPS Z30, Z2, Z2
		VMAXPS Z29, Z2, Z2
		VCVTPS2DQ Z2, Z2
		VPMOVSDB Z2, X2
		VPSHUFB X6, X2, X2
		VMOVQ X2, (DI)
		VPEXTRQ $1, X2, (R8)
		ADDQ R12, DI
		ADDQ R12, R8
		ADDQ $64, SI
		ADDQ $16, BX
		TESTQ $127, BX
		JNZ %s
		ADDQ R13, DI
		ADDQ R13, R8`, same)
	fn.at(same)
	fn.op("SUBQ $16, AX\nJNZ %s\nADDQ $4, R9\nADDQ $4, R10\nDECQ DX\nJNZ %s", second, group)
	fn.at(end)
	fn.returnAMD64()
}

const groupSumsDoc = `sums groups of x:

	for g := range len(x) / group {
		sums[g] = 0
		for _, v := range x[g*group : (g+1)*group] {
			sums[g] += v
		}
	}`

func groupSums512(f *file) {
	fn := f.function("groupSumsAVX512", "sums, x []float32, group int", "", groupSumsDoc)
	fn.load("sums_base", "DI", "x_base", "SI", "x_len", "DX", "group", "R8")
	group, loop, end := fn.label("group"), fn.label("loop"), fn.label("end")
	fn.at(group)
	fn.op("SUBQ R8, DX\nJLT %s", end)
	fn.zero("Z0")
	fn.op("MOVQ R8, AX")
	fn.at(loop)
	fn.op("VADDPS (SI), Z0, Z0\nADDQ $64, SI\nSUBQ $16, AX\nJNZ %s", loop)
	fn.reduce512(0, 1)
	fn.op("VMOVSS X0, (DI)\nADDQ $4, DI\nJMP %s", group)
	fn.at(end)
	fn.returnAMD64()
}

func spreadDoc(lanes int) string {
	return fmt.Sprintf(`orders x for dotQuantized with 4-bit codes, %[2]d elements at a time: element j of every 8 meets
code j of a 32-bit word of codes, which is left in its place and so is 16^j times as large, except the last:

	for c := range len(x) / %[2]d {
		for j := range 8 {
			for l := range %[1]d {
				dst[%[2]d*c+%[1]d*j+l] = x[%[2]d*c+8*l+j] * [...]float32{1, 0x1p-4, 0x1p-8, 0x1p-12, 0x1p-16, 0x1p-20, 0x1p-24, 1}[j]
			}
		}
	}`, lanes, 8*lanes)
}

func spread512(f *file) {
	fn := f.function("spread4AVX512", "dst, x []float32", "", spreadDoc(16))
	fn.load("dst_base", "DI", "x_base", "SI", "x_len", "DX")
	loop, end := fn.label("loop"), fn.label("end")
	fn.op("VMOVDQU32 everyEighth512<>(SB), Z1\nMOVL $0x%08x, AX\nVPBROADCASTD AX, Z3", math.Float32bits(1.0/16))
	fn.at(loop)
	fn.op("SUBQ $128, DX\nJLT %s\nMOVL $0x%08x, AX\nVPBROADCASTD AX, Z4", end, math.Float32bits(1))
	for j := range 8 {
		fn.op("KXNORW K1, K1, K1\nVGATHERDPS %d(SI)(Z1*4), K1, Z2", 4*j)
		if j < 7 {
			fn.op("VMULPS Z4, Z2, Z2\nVMULPS Z3, Z4, Z4")
		}
		fn.op("VMOVUPS Z2, %d(DI)", 64*j)
	}
	fn.op("ADDQ $512, SI\nADDQ $512, DI\nJMP %s", loop)
	fn.at(end)
	fn.returnAMD64()
}

const touchDoc = `reads whole blocks of %[1]d bytes of data and gives the exclusive or of their 64-bit words:

	for len(data) >= %[1]d {
		for range %[2]d {
			ret ^= binary.LittleEndian.Uint64(data)
			data = data[8:]
		}
	}`

func touch512(f *file) {
	fn := f.function("touchAVX512", "data []byte", "uint64", fmt.Sprintf(touchDoc, 256, 32))
	fn.load("data_base", "SI", "data_len", "DX")
	loop, end := fn.label("loop"), fn.label("end")
	fn.zero("Z0", "Z1", "Z2", "Z3")
	fn.at(loop)
	fn.op("SUBQ $256, DX\nJLT %s", end)
	for i := range 4 {
		fn.op("PREFETCHT0 %d(SI)\nVPXORQ %d(SI), %s, %s", prefetch+64*i, 64*i, z(i), z(i))
	}
	fn.op("ADDQ $256, SI\nJMP %s", loop)
	fn.at(end)
	fn.op(`VPXORQ Z1, Z0, Z0
		VPXORQ Z3, Z2, Z2
		VPXORQ Z2, Z0, Z0
		VEXTRACTI64X4 $1, Z0, Y1
		VPXOR Y1, Y0, Y0
		VEXTRACTI128 $1, Y0, X1
		VPXOR X1, X0, X0
		VPSHUFD $0x4e, X0, X1
		VPXOR X1, X0, X0
		VMOVQ X0, AX
		MOVQ AX, %s`, fn.argument("ret"))
	fn.returnAMD64()
}
