package main

import "fmt"

// Activations in the form that products read.

func prepareAVX512() *file {
	f := &file{name: "prepare_avx512", arch: "amd64", about: "Activations for products, AVX-512."}
	return prepareX86(f, "AVX512", true)
}

func prepareAVX2() *file {
	f := &file{name: "prepare_avx2", arch: "amd64", about: "Activations for products, AVX2."}
	return prepareX86(f, "AVX2", false)
}

func prepareX86(f *file, suffix string, wide bool) *file {
	use := func(fn *function) *x86 { return &x86{fn: fn, file: f, wide: wide} }
	lanes := use(nil).lanes()
	f.table("keepBytes"+suffix, splitBytes(1)...)
	f.table("splitEights"+suffix, splitBytes(8)...)
	f.table("splitBytes"+suffix, splitBytes(16)...)
	words := make([]uint32, lanes)
	for i := range words {
		words[i] = uint32(8 * i)
	}
	f.table("everyEighth"+suffix, words...)
	quantizeX86(use(f.function("quantize"+suffix, "codes []int8, scales, sums, x []float32, group, block int", "",
		fmt.Sprintf(quantizeDoc, "a power of two from 32 on"))), suffix)
	groupSumsX86(use(f.function("groupSums"+suffix, "sums, x []float32, group int", "", groupSumsDoc)))
	spreadX86(use(f.function("spread4"+suffix, "dst, x []float32", "", spreadDoc(lanes))), suffix)
	touchX86(use(f.function("touch"+suffix, "data []byte", "uint64", fmt.Sprintf(touchDoc, 256, 32))))
	return f
}

// splitBytes returns a shuffle of 16 bytes that puts the even ones of block before the odd ones; 1 keeps them.
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
		largest, nan, total := float32(0), float32(0), 0
		for _, v := range x[g*group : (g+1)*group] {
			largest = max(largest, |v|)
			nan += v - v
		}
		scales[g] = largest / 127
		for k := g * group; k < (g+1)*group; k++ {
			code := round(x[k] * (127 / largest))
			codes[blockPlace(k, block)] = code
			total += code
		}
		sums[g] = float32(total)*scales[g] + nan
	}

NaN is passed over by max and gives 127; nan, which is 0 for finite numbers, keeps it. block is 1, 8 or %s.`

// quantizeX86: DI and R8 where codes go, SI x, R9 scales, R10 sums, R11 group, R12 how far DI and R8 go on for 16
// codes, R13 and how much more after a block, R15 block less one, BX codes written, DX groups left. It is long because
// it is one assembly routine: its registers are assigned across all of it.
func quantizeX86(s *x86, suffix string) {
	fn := s.fn
	fn.load("codes_base", "DI", "scales_base", "R9", "sums_base", "R10", "x_base", "SI", "x_len", "AX", "group", "R11")
	fn.op("XORQ DX, DX\nDIVQ R11\nMOVQ AX, DX")
	natural, pairs, chosen, group, end := fn.label("natural"), fn.label("pairs"), fn.label("chosen"),
		fn.label("group"), fn.label("end")
	fn.op("MOVQ %s, AX\nLEAQ -1(AX), R15\nCMPQ AX, $1\nJEQ %s\nCMPQ AX, $8\nJEQ %s", fn.argument("block"), natural,
		pairs)
	fn.op("VMOVDQU splitBytes%s<>(SB), X6\nMOVQ $8, R12\nMOVQ AX, R13\nSHRQ $1, R13\nLEAQ (DI)(R13*1), R8\nJMP %s",
		suffix, chosen)
	fn.at(natural)
	fn.op("VMOVDQU keepBytes%s<>(SB), X6\nMOVQ $16, R12\nXORQ R13, R13\nLEAQ 8(DI), R8\nJMP %s", suffix, chosen)
	fn.at(pairs)
	fn.op("VMOVDQU splitEights%s<>(SB), X6\nMOVQ $16, R12\nXORQ R13, R13\nLEAQ 8(DI), R8", suffix)
	fn.at(chosen)
	fn.op("XORQ BX, BX\nTESTQ DX, DX\nJZ %s", end)
	const largest, nan, inverse, most, least, total = vec(0), vec(1), vec(5), vec(7), vec(8), vec(9)
	s.move(most, constant("codeMost"))
	s.move(least, constant("codeLeast"))
	fn.at(group)
	first, second, zero, same := fn.label("first"), fn.label("second"), fn.label("zero"), fn.label("same")
	s.zero(largest)
	s.zero(nan)
	s.zero(total)
	fn.op("MOVQ SI, CX\nMOVQ R11, AX")
	fn.at(first)
	s.loadFrom("(CX)", 2, false)
	s.abs(3, 2)
	s.number(largest, 3, largest)
	fn.op("VSUBPS %[1]s, %[1]s, %[1]s", s.reg(2))
	s.add(nan, nan, vec(2))
	fn.op("ADDQ $%d, CX\nSUBQ $%d, AX\nJNZ %s", 4*s.lanes(), s.lanes(), first)
	s.reduceAdd(nan, 2)
	s.reduceMax(largest, 2)
	fn.op(`VDIVSS X7, X0, X3
		VMOVSS X3, (R9)
		VXORPS X2, X2, X2
		VUCOMISS X2, X0
		JEQ %s
		VDIVSS X0, X7, X2`, zero)
	fn.at(zero)
	fn.op("VBROADCASTSS X2, %s\nMOVQ R11, AX", s.reg(inverse))
	fn.at(second)
	// round multiplies a vector, bounds it, NaN to most, and rounds it.
	round := func(at int, v vec) {
		fn.op("VMULPS %d(SI), %s, %s", at, s.reg(inverse), s.reg(v))
		fn.op("VMINPS %[2]s, %[1]s, %[1]s\nVMAXPS %[3]s, %[1]s, %[1]s\nVCVTPS2DQ %[1]s, %[1]s\nVPADDD %[1]s, %[4]s, %[4]s", s.reg(v), s.reg(most), s.reg(least), s.reg(total))
	}
	round(0, 2)
	if s.wide {
		fn.op("VPMOVSDB Z2, X2")
	} else {
		round(32, 3)
		fn.op("VPACKSSDW Y3, Y2, Y2\nVPERMQ $0xd8, Y2, Y2\nVEXTRACTI128 $1, Y2, X3\nVPACKSSWB X3, X2, X2")
	}
	fn.op(`VPSHUFB X6, X2, X2
		VMOVQ X2, (DI)
		VPEXTRQ $1, X2, (R8)
		ADDQ R12, DI
		ADDQ R12, R8
		ADDQ $64, SI
		ADDQ $16, BX
		TESTQ R15, BX
		JNZ %s
		ADDQ R13, DI
		ADDQ R13, R8`, same)
	fn.at(same)
	fn.op("SUBQ $16, AX\nJNZ %s", second)
	if s.wide {
		fn.op("VEXTRACTI64X4 $1, Z9, Y2\nVPADDD Y2, Y9, Y9")
	}
	fn.op(`VEXTRACTI128 $1, Y9, X2
		VPADDD X2, X9, X9
		VPSHUFD $0x4e, X9, X2
		VPADDD X2, X9, X9
		VPSHUFD $0xb1, X9, X2
		VPADDD X2, X9, X9
		VCVTDQ2PS X9, X9
		VMULSS (R9), X9, X9
		VADDSS X1, X9, X9
		VMOVSS X9, (R10)
		ADDQ $4, R9
		ADDQ $4, R10
		DECQ DX
		JNZ %s`, group)
	fn.at(end)
	s.end()
}

const groupSumsDoc = `sums groups of x:

	for g := range len(x) / group {
		sums[g] = 0
		for _, v := range x[g*group : (g+1)*group] {
			sums[g] += v
		}
	}`

func groupSumsX86(s *x86) {
	fn := s.fn
	fn.load("sums_base", "DI", "x_base", "SI", "x_len", "DX", "group", "R8")
	group, loop, end := fn.label("group"), fn.label("loop"), fn.label("end")
	fn.at(group)
	fn.op("SUBQ R8, DX\nJLT %s", end)
	s.zero(0)
	fn.op("MOVQ R8, AX")
	fn.at(loop)
	fn.op("VADDPS (SI), %[1]s, %[1]s\nADDQ $%[2]d, SI\nSUBQ $%[3]d, AX\nJNZ %[4]s", s.reg(0),
		4*s.lanes(), s.lanes(), loop)
	s.reduceAdd(0, 1)
	fn.op("VMOVSS X0, (DI)\nADDQ $4, DI\nJMP %s", group)
	fn.at(end)
	s.end()
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

func spreadX86(s *x86, suffix string) {
	fn, block := s.fn, 8*s.lanes()
	fn.load("dst_base", "DI", "x_base", "SI", "x_len", "DX")
	loop, end := fn.label("loop"), fn.label("end")
	fn.op("VMOVUPS everyEighth%s<>(SB), %s", suffix, s.reg(1))
	s.move(3, constant("sixteenth"))
	fn.at(loop)
	fn.op("SUBQ $%d, DX\nJLT %s", block, end)
	s.move(4, constant("one"))
	for j := range 8 {
		if s.wide {
			fn.op("KXNORW K1, K1, K1\nVGATHERDPS %d(SI)(Z1*4), K1, Z2", 4*j)
		} else {
			fn.op("VPCMPEQD Y5, Y5, Y5\nVGATHERDPS Y5, %d(SI)(Y1*4), Y2", 4*j)
		}
		if j < 7 {
			s.mul(2, 2, vec(4))
			s.mul(4, 4, vec(3))
		}
		s.storeTo(fmt.Sprintf("%d(DI)", 4*s.lanes()*j), 2, false)
	}
	fn.op("ADDQ $%d, SI\nADDQ $%d, DI\nJMP %s", 4*block, 4*block, loop)
	fn.at(end)
	s.end()
}

const touchDoc = `reads whole blocks of %[1]d bytes of data and gives the exclusive or of their 64-bit words:

	for len(data) >= %[1]d {
		for range %[2]d {
			ret ^= binary.LittleEndian.Uint64(data)
			data = data[8:]
		}
	}`

// touchX86 reads the quarters of data at the same time, see dot_avx512.go.
func touchX86(s *x86) {
	fn, xor := s.fn, "VPXOR"
	if s.wide {
		xor = "VPXORQ"
	}
	fn.load("data_base", "SI", "data_len", "DX")
	fn.op("SHRQ $2, DX\nLEAQ (DX)(DX*2), CX\nMOVQ DX, AX")
	loop, end := fn.label("loop"), fn.label("end")
	for i := range vec(4) {
		s.zero(i)
	}
	fn.at(loop)
	fn.op("SUBQ $64, AX\nJLT %s", end)
	for i, quarter := range []string{"(SI)", "(SI)(DX*1)", "(SI)(DX*2)", "(SI)(CX*1)"} {
		for at := 0; at < 64; at += 4 * s.lanes() {
			fn.op("%s %d%s, %[4]s, %[4]s", xor, at, quarter, s.reg(vec(i)))
		}
	}
	fn.op("ADDQ $64, SI\nJMP %s", loop)
	fn.at(end)
	for _, pair := range [][2]vec{{0, 1}, {2, 3}, {0, 2}} {
		fn.op("%s %s, %s, %s", xor, s.reg(pair[1]), s.reg(pair[0]), s.reg(pair[0]))
	}
	if s.wide {
		fn.op("VEXTRACTI64X4 $1, Z0, Y1\nVPXOR Y1, Y0, Y0")
	}
	fn.op("VEXTRACTI128 $1, Y0, X1\nVPXOR X1, X0, X0\nVPSHUFD $0x4e, X0, X1\nVPXOR X1, X0, X0\nVMOVQ X0, AX\nMOVQ AX, %s", fn.argument("ret"))
	s.end()
}
