package main

import (
	"fmt"
	"strings"
)

// neon is the Advanced SIMD of arm64. What is left of a vector is done element by element, in lane 0.
// Constants are in registers from 31 down; 10 and 11 are scratch of single operations.
type neon struct {
	fn        *function
	start     int // of the code after begin
	constants []constant
}

const neonScratch, neonScratch2 = 10, 11

func (s *neon) function() *function { return s.fn }
func (s *neon) lanes() int          { return 4 }

func (s *neon) begin(slices ...string) {
	for i, name := range slices {
		s.fn.loadARM64(name+"_base", fmt.Sprintf("R%d", i))
	}
	s.fn.loadARM64(slices[0]+"_len", "R6")
	s.start = s.fn.text.Len()
}

func (s *neon) scalar(name string, d vec) {
	s.fn.op("FMOVS %s, F%d\nVDUP V%d.S[0], %s", s.fn.argument(name), d, d, v4(int(d)))
}

// end puts the loading of constants before the code.
func (s *neon) end() {
	s.fn.op("RET")
	text := s.fn.text.String()
	s.fn.text.Reset()
	s.fn.text.WriteString(text[:s.start])
	for i, c := range s.constants {
		s.fn.broadcastWord(constantBits(c), 31-i)
	}
	s.fn.text.WriteString(text[s.start:])
}

// reg returns the number of the register of an operand.
func (s *neon) reg(o operand) int {
	if r, ok := o.(vec); ok {
		return int(r)
	}
	name := o.(constant)
	for i, c := range s.constants {
		if c == name {
			return 31 - i
		}
	}
	s.constants = append(s.constants, name)
	if 32-len(s.constants) <= neonScratch2 {
		panic("gen: too many constants: " + fmt.Sprint(s.constants))
	}
	return 32 - len(s.constants)
}

func (s *neon) loop(slices, unroll int, body func(u int, part bool)) {
	fn := s.fn
	advance := func(bytes int) {
		for i := range slices {
			fn.op("ADD $%d, R%d", bytes, i)
		}
	}
	steps := []int{unroll, 1}
	if unroll == 1 {
		steps = steps[:1]
	}
	for _, n := range steps {
		loop, end := fn.label("loop"), fn.label("end")
		fn.at(loop)
		fn.op("CMP $%d, R6\nBLT %s", 4*n, end)
		for u := range n {
			body(u, false)
		}
		advance(16 * n)
		fn.op("SUB $%d, R6\nB %s", 4*n, loop)
		fn.at(end)
	}
	loop, end := fn.label("loop"), fn.label("end")
	fn.at(loop)
	fn.op("CBZ R6, %s", end)
	body(0, true)
	advance(4)
	fn.op("SUB $1, R6\nB %s", loop)
	fn.at(end)
}

func (s *neon) load(d vec, slice, u int, part bool) {
	if part {
		s.fn.op("FMOVS (R%d), F%d", slice, d)
	} else {
		s.fn.loadQ(16*u, fmt.Sprintf("R%d", slice), int(d))
	}
}

func (s *neon) store(d vec, slice, u int, part bool) {
	if part {
		s.fn.op("FMOVS F%d, (R%d)", d, slice)
	} else {
		s.fn.op("FMOVQ F%d, %d(R%d)", d, 16*u, slice)
	}
}

func (s *neon) three(name string, d, a vec, b operand) { s.fn.word(name, int(d), int(a), s.reg(b)) }

func (s *neon) zero(d vec)                   { s.fn.zeroNEON(int(d)) }
func (s *neon) move(d vec, o operand)        { s.fn.op("VMOV %s, %s", v(s.reg(o)), v(int(d))) }
func (s *neon) add(d, a vec, b operand)      { s.three("FADD", d, a, b) }
func (s *neon) sub(d, a vec, b operand)      { s.three("FSUB", d, a, b) }
func (s *neon) mul(d, a vec, b operand)      { s.three("FMUL", d, a, b) }
func (s *neon) div(d, a, b vec)              { s.three("FDIV", d, a, b) }
func (s *neon) smaller(d, a vec, b constant) { s.three("FMIN", d, a, b) }
func (s *neon) larger(d, a vec, b constant)  { s.three("FMAX", d, a, b) }
func (s *neon) number(d, a, b vec)           { s.three("FMAXNM", d, a, b) }
func (s *neon) abs(d, a vec)                 { s.fn.word("FABS", int(d), int(a)) }
func (s *neon) negate(d, a vec)              { s.fn.word("FNEG", int(d), int(a)) }
func (s *neon) round(d, a vec)               { s.fn.word("FRINTN", int(d), int(a)) }

func (s *neon) mulAdd(d, a vec, b operand) {
	s.fn.op("VFMLA %s, %s, %s", v4(s.reg(b)), v4(int(a)), v4(int(d)))
}

func (s *neon) mulSub(d, a vec, b operand) {
	s.fn.op("VFMLS %s, %s, %s", v4(s.reg(b)), v4(int(a)), v4(int(d)))
}

func (s *neon) horner(d, x vec, c constant) {
	s.fn.op("VMOV %s, %s\nVFMLA %s, %s, %s\nVMOV %s, %s", v(s.reg(c)), v(neonScratch), v4(int(x)), v4(int(d)),
		v4(neonScratch), v(neonScratch), v(int(d)))
}

func (s *neon) copySign(d, a, t vec) {
	s.fn.op("VBIT %s, %s, %s", v(s.reg(constant("sign"))), v(int(a)), v(int(d)))
}

func (s *neon) clearLess(d, a vec, b constant) {
	s.fn.word("FCMGT", neonScratch, s.reg(b), int(a))
	s.fn.word("BIC", int(d), int(d), neonScratch)
}

func (s *neon) choose(d, e, a vec, b constant) {
	s.fn.word("FCMGT", neonScratch, int(a), s.reg(b))
	s.fn.op("VBIT %s, %s, %s", v(neonScratch), v(int(e)), v(int(d)))
}

func (s *neon) scaleByPower(d, n, t vec) {
	// In two factors, as 2^128 is no float: n/2 and the rest, whose exponents are biased by 127.
	s.fn.word("FCVTNS", int(n), int(n))
	s.fn.word("SSHR1", int(t), int(n))
	s.fn.op("VSUB %s, %s, %s", v4(int(t)), v4(int(n)), v4(int(n)))
	for _, power := range []vec{n, t} {
		s.fn.op("VSHL $23, %s, %s\nVADD %s, %s, %s", v4(int(power)), v4(int(power)), v4(s.reg(constant("one"))),
			v4(int(power)), v4(int(power)))
		s.mul(d, d, power)
	}
}

func (s *neon) onlyPart(d vec) { s.fn.word("FMOV.S", int(d), int(d)) }

func (s *neon) reduceAdd(d, t vec) { s.fn.sumLanes(int(d)) }
func (s *neon) reduceMax(d, t vec) { s.fn.word("FMAXNMV", int(d), int(d)) }
func (s *neon) result(d vec)       { s.fn.op("FMOVS F%d, %s", d, s.fn.argument("ret")) }

func vectorNEON() *file {
	f := &file{name: "vector_neon", arch: "arm64", about: "Functions of vectors, NEON."}
	vectorFile(f, "NEON", func(fn *function) simd { return &neon{fn: fn} })
	fromBF16NEON(f)
	toBF16NEON(f)
	convolveNEON(f)
	scaleRowsNEON(f)
	deltaRowsNEON(f)
	return f
}

func fromBF16NEON(f *file) {
	fn := f.function("fromBF16NEON", "dst []float32, src []byte", "",
		strings.Replace(fromBF16Doc, "whole vectors", "whole vectors of 8", 1))
	fn.loadARM64("dst_base", "R0", "src_base", "R1", "dst_len", "R6")
	loop, end := fn.label("loop"), fn.label("end")
	fn.at(loop)
	fn.op("SUBS $8, R6, R6\nBLT %s", end)
	fn.loadQ(0, "R1", 0)
	fn.word("SHLL", 1, 0)
	fn.word("SHLL2", 2, 0)
	fn.op("FMOVQ F1, (R0)\nFMOVQ F2, 16(R0)\nADD $16, R1\nADD $32, R0\nB %s", loop)
	fn.at(end)
	fn.op("RET")
}

func toBF16NEON(f *file) {
	fn := f.function("toBF16NEON", "dst []byte, src []float32", "", toBF16Doc)
	fn.loadARM64("dst_base", "R0", "src_base", "R1", "src_len", "R6")
	fn.broadcastWord(1, 5)
	fn.broadcastWord(0x7fff, 6)
	fn.broadcastWord(1<<22, 7)
	loop, end := fn.label("loop"), fn.label("end")
	fn.at(loop)
	fn.op("SUBS $4, R6, R6\nBLT %s", end)
	fn.loadQ(0, "R1", 0)
	fn.op("VUSHR $16, V0.S4, V1.S4\nVAND V5.B16, V1.B16, V1.B16\nVADD V6.S4, V1.S4, V1.S4\nVADD V0.S4, V1.S4, V1.S4\nVORR V7.B16, V0.B16, V2.B16")
	// v == v keeps the rounded one.
	fn.word("FCMEQ", 3, 0, 0)
	fn.op("VBIT V3.B16, V1.B16, V2.B16\nVUSHR $16, V2.S4, V2.S4")
	fn.word("XTN.4H", 2, 2)
	fn.op("FMOVD F2, (R0)\nADD $16, R1\nADD $8, R0\nB %s", loop)
	fn.at(end)
	fn.op("RET")
}

// convolveNEON: R3 width, R4 bytes of a row, R8 and R9 tap and weight, R10 taps left.
func convolveNEON(f *file) {
	s := &neon{fn: f.function("convolveNEON", "dst, taps, weight []float32, width int", "", convolveDoc)}
	fn := s.fn
	s.begin("dst", "taps", "weight")
	fn.loadARM64("width", "R3")
	fn.op("LSL $2, R6, R4")
	s.loop(3, 1, func(u int, part bool) {
		loop, end := fn.label("tap"), fn.label("taps")
		s.zero(0)
		fn.op("MOVD R1, R8\nMOVD R2, R9\nMOVD R3, R10")
		fn.at(loop)
		fn.op("CBZ R10, %s", end)
		if part {
			fn.op("FMOVS (R8), F1\nFMOVS (R9), F2")
		} else {
			fn.op("FMOVQ (R8), F1\nFMOVQ (R9), F2")
		}
		s.mulAdd(0, 1, vec(2))
		fn.op("ADD R4, R8\nADD R4, R9\nSUB $1, R10\nB %s", loop)
		fn.at(end)
		s.store(0, 0, u, part)
	})
	s.end()
}

// scaleRowsNEON: R0 and R2 rows of dst and x, R1 and R3 bytes between them, R4 factor, R5 rows left, R9
// columns, R10 and R11 dst and x at a place, R6 elements left.
func scaleRowsNEON(f *file) {
	s := &neon{fn: f.function("scaleRowsNEON", scaleRowsParams, "", scaleRowsDoc)}
	fn := s.fn
	fn.loadARM64("dst_base", "R0", "dstStride", "R1", "x_base", "R2", "xStride", "R3", "factors_base", "R4",
		"factors_len", "R5", "cols", "R9")
	row, done := fn.label("row"), fn.label("done")
	fn.op("LSL $2, R1\nLSL $2, R3\nCBZ R5, %s", done)
	fn.at(row)
	fn.op("FMOVS.P 4(R4), F1\nVDUP V1.S[0], V1.S4\nMOVD R0, R10\nMOVD R2, R11\nMOVD R9, R6")
	for _, n := range []int{4, 1} {
		move := map[int]string{4: "FMOVQ", 1: "FMOVS"}[n]
		loop, end := fn.label("loop"), fn.label("end")
		fn.at(loop)
		fn.op("CMP $%d, R6\nBLT %s\n%s.P %d(R11), F0", n, end, move, 4*n)
		s.mul(0, 0, vec(1))
		fn.op("%s.P F0, %d(R10)\nSUB $%d, R6\nB %s", move, 4*n, n, loop)
		fn.at(end)
	}
	fn.op("ADD R1, R0\nADD R3, R2\nSUB $1, R5\nCBNZ R5, %s", row)
	fn.at(done)
	fn.op("RET")
}

// deltaRowsNEON: R0 row, R1 q, R2 k, R3 y, R4 v, R5 rows left, R9 columns, R10, R11 and R12 row, q and k at a place, R6
// elements left; 8 decay, 9 beta, 12 Σ k·q. It is long because it is one assembly routine: its registers are assigned
// across all of it.
func deltaRowsNEON(f *file) {
	s := &neon{fn: f.function("deltaRowsNEON", "y, state, q, k, v []float32, decay, beta float32", "", deltaRowsDoc)}
	fn := s.fn
	fn.loadARM64("state_base", "R0", "q_base", "R1", "k_base", "R2", "y_base", "R3", "v_base", "R4",
		"v_len", "R5", "k_len", "R9")
	s.start = fn.text.Len()
	s.scalar("decay", 8)
	s.scalar("beta", 9)
	through := func(body func(part bool)) {
		fn.op("MOVD R0, R10\nMOVD R1, R11\nMOVD R2, R12\nMOVD R9, R6")
		for _, n := range []int{4, 1} {
			loop, end := fn.label("loop"), fn.label("end")
			fn.at(loop)
			fn.op("CMP $%d, R6\nBLT %s", n, end)
			body(n == 1)
			fn.op("ADD $%d, R10\nADD $%d, R11\nADD $%d, R12\nSUB $%d, R6\nB %s", 4*n, 4*n, 4*n, n, loop)
			fn.at(end)
		}
	}
	load := func(d vec, base string, part bool) {
		if part {
			fn.op("FMOVS (%s), F%d", base, d)
		} else {
			fn.op("FMOVQ (%s), F%d", base, d)
		}
	}
	s.zero(12)
	through(func(part bool) {
		load(0, "R11", part)
		load(1, "R12", part)
		s.mulAdd(12, 0, vec(1))
	})
	s.reduceAdd(12, 1)
	row, done := fn.label("row"), fn.label("done")
	fn.op("CBZ R5, %s", done)
	fn.at(row)
	s.zero(0)
	s.zero(1)
	through(func(part bool) {
		load(4, "R10", part)
		load(5, "R12", part)
		load(6, "R11", part)
		s.mulAdd(0, 4, vec(5))
		s.mulAdd(1, 4, vec(6))
	})
	s.reduceAdd(0, 2)
	s.reduceAdd(1, 2)
	// 0 = (v − decay·0)·beta, 1 = decay·1 + 0·12
	fn.op("FMOVS.P 4(R4), F4\nVDUP V4.S[0], V4.S4")
	s.mulSub(4, 0, vec(8))
	s.mul(0, 4, vec(9))
	s.mul(1, 1, vec(8))
	s.mulAdd(1, 0, vec(12))
	fn.op("FMOVS.P F1, 4(R3)\nVDUP V0.S[0], V7.S4")
	through(func(part bool) {
		load(4, "R10", part)
		load(5, "R12", part)
		s.mul(4, 4, vec(8))
		s.mulAdd(4, 5, vec(7))
		if part {
			fn.op("FMOVS F4, (R10)")
		} else {
			fn.op("FMOVQ F4, (R10)")
		}
	})
	fn.op("MOVD R10, R0\nSUB $1, R5\nCBNZ R5, %s", row)
	fn.at(done)
	s.end()
}
