package main

import (
	"fmt"
	"math"
)

func prepareNEON() *file {
	f := &file{name: "prepare_neon", arch: "arm64", about: "Activations for products, NEON."}
	f.table("splitEightsNEON", splitBytes(8)...)
	quantizeNEON(f)
	groupSumsNEON(f)
	spreadNEON(f)
	touchNEON(f)
	return f
}

// quantizeNEON: R0 and R1 where codes go, R2 scales, R3 sums, R4 x, R5 group, R6 groups left, R8 how far R0 and R1 go
// on for 16 codes, R9 and how much more after 32, R10 codes written, R11 the kind of block. It is long because it is
// one assembly routine: its registers are assigned across all of it.
func quantizeNEON(f *file) {
	fn := f.function("quantizeNEON", "codes []int8, scales, sums, x []float32, group, block int", "",
		fmt.Sprintf(quantizeDoc, "32"))
	fn.loadARM64("codes_base", "R0", "scales_base", "R2", "sums_base", "R3", "x_base", "R4", "x_len", "R6",
		"group", "R5", "block", "R11")
	natural, pairs, group, first, second, zero, same, end := fn.label("natural"), fn.label("pairs"), fn.label("group"),
		fn.label("first"), fn.label("second"), fn.label("zero"), fn.label("same"), fn.label("end")
	fn.op("UDIV R5, R6, R6\nMOVD $0, R10")
	fn.broadcastWord(math.Float32bits(127), 30)
	fn.broadcastWord(math.Float32bits(-127), 29)
	fn.op("MOVD $splitEightsNEON<>(SB), R12\nFMOVQ (R12), F28\nCBZ R6, %s", end)
	fn.at(group)
	fn.zeroNEON(0, 1, 25)
	fn.op("MOVD R4, R12\nMOVD R5, R13")
	fn.at(first)
	fn.loadQ(0, "R12", 2)
	fn.word("FABS", 3, 2)
	fn.word("FMAXNM", 0, 3, 0)
	fn.word("FSUB", 2, 2, 2)
	fn.word("FADD", 1, 1, 2)
	fn.op("ADD $16, R12\nSUBS $4, R13, R13\nBNE %s", first)
	fn.sumLanes(1)
	fn.word("FMAXNMV", 0, 0)
	fn.op("FDIVS F30, F0, F2\nFMOVS.P F2, 4(R2)")
	fn.zeroNEON(5)
	fn.op("FCMPS $(0.0), F0\nBEQ %s\nFDIVS F0, F30, F5", zero)
	fn.at(zero)
	fn.op("VDUP V5.S[0], V5.S4\nMOVD R5, R13")
	fn.at(second)
	for i := range 4 {
		fn.loadQ(16*i, "R4", 16+i)
		fn.word("FMUL", 16+i, 16+i, 5)
		fn.word("FMINNM", 16+i, 16+i, 30) // NaN gives the number
		fn.word("FMAXNM", 16+i, 16+i, 29)
		fn.word("FCVTNS", 16+i, 16+i)
		fn.op("VADD V%d.S4, V25.S4, V25.S4", 16+i)
	}
	fn.word("SQXTN.4H", 20, 16)
	fn.word("SQXTN2.8H", 20, 17)
	fn.word("SQXTN.4H", 21, 18)
	fn.word("SQXTN2.8H", 21, 19)
	fn.word("SQXTN.8B", 22, 20)
	fn.word("SQXTN2.16B", 22, 21)
	fn.op("CMP $1, R11\nBEQ %s\nCMP $8, R11\nBEQ %s", natural, pairs)
	// Even codes at R0, odd ones 16 further, and after 32 codes both move past the odd ones.
	fn.op(`VUZP1 V22.B16, V22.B16, V23.B16
		VUZP2 V22.B16, V22.B16, V24.B16
		FMOVD F23, (R0)
		FMOVD F24, 16(R0)
		ADD $8, R0
		ADD $16, R10
		TST $31, R10
		BNE %s
		ADD $16, R0
		B %s`, same, same)
	fn.at(pairs)
	fn.op("VTBL V28.B16, [V22.B16], V22.B16")
	fn.at(natural)
	fn.op("FMOVQ F22, (R0)\nADD $16, R0")
	fn.at(same)
	fn.op("ADD $64, R4\nSUBS $16, R13, R13\nBNE %s", second)
	fn.op(`VADDV V25.S4, V25
		VMOV V25.S[0], R13
		SCVTFWS R13, F25
		FMULS F2, F25, F25
		FADDS F1, F25, F25
		FMOVS.P F25, 4(R3)
		SUBS $1, R6, R6
		BNE %s`, group)
	fn.at(end)
	fn.op("RET")
}

func groupSumsNEON(f *file) {
	fn := f.function("groupSumsNEON", "sums, x []float32, group int", "", groupSumsDoc)
	fn.loadARM64("sums_base", "R0", "x_base", "R1", "x_len", "R2", "group", "R3")
	group, loop, end := fn.label("group"), fn.label("loop"), fn.label("end")
	fn.at(group)
	fn.op("SUBS R3, R2, R2\nBLT %s\nMOVD R3, R4", end)
	fn.zeroNEON(0)
	fn.at(loop)
	fn.loadQ(0, "R1", 1)
	fn.word("FADD", 0, 0, 1)
	fn.op("ADD $16, R1\nSUBS $4, R4, R4\nBNE %s", loop)
	fn.sumLanes(0)
	fn.op("FMOVS.P F0, 4(R0)\nB %s", group)
	fn.at(end)
	fn.op("RET")
}

// spreadNEON turns squares: elements 0 to 3, and 4 to 7, of four eights.
func spreadNEON(f *file) {
	fn := f.function("spread4NEON", "dst, x []float32", "", spreadDoc(4))
	fn.loadARM64("dst_base", "R0", "x_base", "R1", "x_len", "R2")
	for j := range 6 {
		fn.broadcastWord(math.Float32bits(float32(math.Ldexp(1, -4*(j+1)))), 26+j)
	}
	loop, end := fn.label("loop"), fn.label("end")
	fn.at(loop)
	fn.op("SUBS $32, R2, R2\nBLT %s", end)
	for half := range 2 {
		for r := range 4 {
			fn.loadQ(32*r+16*half, "R1", 4+r)
		}
		fn.op(`VZIP1 V5.S4, V4.S4, V16.S4
			VZIP2 V5.S4, V4.S4, V17.S4
			VZIP1 V7.S4, V6.S4, V18.S4
			VZIP2 V7.S4, V6.S4, V19.S4
			VZIP1 V18.D2, V16.D2, V0.D2
			VZIP2 V18.D2, V16.D2, V1.D2
			VZIP1 V19.D2, V17.D2, V2.D2
			VZIP2 V19.D2, V17.D2, V3.D2`)
		for j := range 4 {
			if at := 4*half + j; at > 0 && at < 7 {
				fn.word("FMUL", j, j, 25+at)
			}
			fn.op("FMOVQ F%d, %d(R0)", j, 64*half+16*j)
		}
	}
	fn.op("ADD $128, R0\nADD $128, R1\nB %s", loop)
	fn.at(end)
	fn.op("RET")
}

func touchNEON(f *file) {
	fn := f.function("touchNEON", "data []byte", "uint64", fmt.Sprintf(touchDoc, 256, 32))
	fn.loadARM64("data_base", "R0", "data_len", "R1")
	loop, end := fn.label("loop"), fn.label("end")
	fn.zeroNEON(0, 1, 2, 3)
	fn.at(loop)
	fn.op("SUBS $256, R1, R1\nBLT %s\nPRFM %d(R0), PLDL1KEEP\nPRFM %d(R0), PLDL1KEEP", end, prefetch, prefetch+128)
	for i := range 16 {
		fn.loadQ(16*i, "R0", 4+i%4)
		fn.op("VEOR %s, %s, %s", v(4+i%4), v(i%4), v(i%4))
	}
	fn.op("ADD $256, R0\nB %s", loop)
	fn.at(end)
	fn.op("VEOR V1.B16, V0.B16, V0.B16\nVEOR V3.B16, V2.B16, V2.B16\nVEOR V2.B16, V0.B16, V0.B16\nVMOV V0.D[0], R2\nVMOV V0.D[1], R3\nEOR R3, R2, R2\nMOVD R2, %s", fn.argument("ret"))
	fn.op("RET")
}
