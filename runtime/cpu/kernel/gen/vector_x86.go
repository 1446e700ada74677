package main

import "fmt"

func vectorAVX512() *file {
	f := &file{name: "vector_avx512", arch: "amd64", about: "Functions of vectors, AVX-512."}
	return vectorX86(f, "AVX512", func(fn *function) *x86 { return &x86{fn: fn, file: f, wide: true} })
}

func vectorAVX2() *file {
	f := &file{name: "vector_avx2", arch: "amd64", about: "Functions of vectors, AVX2 with FMA."}
	return vectorX86(f, "AVX2", func(fn *function) *x86 { return &x86{fn: fn, file: f} })
}

func vectorX86(f *file, suffix string, use func(fn *function) *x86) *file {
	vectorFile(f, suffix, func(fn *function) simd { return use(fn) })
	fromBF16X86(use(f.function("fromBF16"+suffix, "dst []float32, src []byte", "", fromBF16Doc)))
	toBF16X86(use(f.function("toBF16"+suffix, "dst []byte, src []float32", "", toBF16Doc)))
	convolveX86(use(f.function("convolve"+suffix, "dst, taps, weight []float32, width int", "", convolveDoc)))
	scaleRowsX86(use(f.function("scaleRows"+suffix, scaleRowsParams, "", scaleRowsDoc)))
	deltaRowsX86(use(f.function("deltaRows"+suffix, "y, state, q, k, v []float32, decay, beta float32", "",
		deltaRowsDoc)))
	return f
}

const (
	fromBF16Doc = `widens whole vectors of bfloat16 numbers:

	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}`
	toBF16Doc = `rounds whole vectors to bfloat16, half to even; NaN becomes a quiet one:

	for i, v := range src {
		bits := math.Float32bits(v)
		if v == v {
			bits += 0x7fff + bits>>16&1
		} else {
			bits |= 1 << 22
		}
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(bits>>16))
	}`
	convolveDoc = `is

	for c := range dst {
		dst[c] = 0
		for t := range width {
			dst[c] += taps[t*len(dst)+c] * weight[t*len(dst)+c]
		}
	}`
	scaleRowsParams = "dst []float32, dstStride int, x []float32, xStride int, factors []float32, cols int"
	scaleRowsDoc    = `is

	for r, factor := range factors {
		for c := range cols {
			dst[r*dstStride+c] = x[r*xStride+c] * factor
		}
	}`
	deltaRowsDoc = `is

	for r := range v {
		row := state[r*len(k):][:len(k)]
		seen, read, common := float32(0), float32(0), float32(0)
		for i, s := range row {
			seen += s * k[i]
			read += s * q[i]
			common += k[i] * q[i]
		}
		delta := (v[r] - decay*seen) * beta
		for i, s := range row {
			row[i] = decay*s + delta*k[i]
		}
		y[r] = decay*read + delta*common
	}`
)

func fromBF16X86(s *x86) {
	fn := s.fn
	loop, end := fn.label("loop"), fn.label("end")
	fn.load("dst_base", "DI", "src_base", "SI", "dst_len", "BX")
	fn.at(loop)
	fn.op("SUBQ $%d, BX\nJLT %s", s.lanes(), end)
	fn.op("VPMOVZXWD (SI), %s\nVPSLLD $16, %s, %s", s.reg(0), s.reg(0), s.reg(0))
	s.storeTo("(DI)", 0, false)
	fn.op("ADDQ $%d, SI\nADDQ $%d, DI\nJMP %s", 2*s.lanes(), 4*s.lanes(), loop)
	fn.at(end)
	s.end()
}

func toBF16X86(s *x86) {
	fn := s.fn
	loop, end := fn.label("loop"), fn.label("end")
	fn.load("dst_base", "DI", "src_base", "SI", "src_len", "BX")
	const one, half, quiet = vec(5), vec(6), vec(7)
	for _, c := range []struct {
		v    vec
		bits int
	}{{one, 1}, {half, 0x7fff}, {quiet, 1 << 22}} {
		fn.op("MOVL $%d, AX\nVMOVD AX, %s\nVPBROADCASTD %s, %s", c.bits, x(int(c.v)), x(int(c.v)), s.reg(c.v))
	}
	fn.at(loop)
	fn.op("SUBQ $%d, BX\nJLT %s", s.lanes(), end)
	s.loadFrom("(SI)", 0, false)
	and, or := "VPAND", "VPOR"
	if s.wide {
		and, or = "VPANDD", "VPORD"
	}
	fn.op("VPSRLD $16, %s, %s\n%s %s, %s, %s", s.reg(0), s.reg(1), and, s.reg(one), s.reg(1), s.reg(1))
	fn.op("VPADDD %s, %s, %s\nVPADDD %s, %s, %s", s.reg(half), s.reg(1), s.reg(1), s.reg(0), s.reg(1), s.reg(1))
	fn.op("%s %s, %s, %s", or, s.reg(quiet), s.reg(0), s.reg(2))
	if s.wide {
		fn.op("VCMPPS $3, Z0, Z0, K2\nVMOVAPS Z2, K2, Z1\nVPSRLD $16, Z1, Z1\nVPMOVDW Z1, Y1\nVMOVDQU Y1, (DI)")
	} else {
		fn.op("VCMPPS $3, Y0, Y0, Y3\nVBLENDVPS Y3, Y2, Y1, Y1\nVPSRLD $16, Y1, Y1\nVPACKUSDW Y1, Y1, Y1\nVPERMQ $8, Y1, Y1\nVMOVDQU X1, (DI)")
	}
	fn.op("ADDQ $%d, SI\nADDQ $%d, DI\nJMP %s", 4*s.lanes(), 2*s.lanes(), loop)
	fn.at(end)
	s.end()
}

// convolveX86: CX width, R8 bytes of a row, R9 and R10 tap and weight, R11 taps left.
func convolveX86(s *x86) {
	fn := s.fn
	s.begin("dst", "taps", "weight")
	fn.load("width", "CX")
	fn.op("MOVQ BX, R8\nSHLQ $2, R8")
	s.loop(3, 1, func(u int, part bool) {
		loop, end := fn.label("tap"), fn.label("taps")
		s.zero(0)
		fn.op("MOVQ SI, R9\nMOVQ DX, R10\nMOVQ CX, R11")
		fn.at(loop)
		fn.op("TESTQ R11, R11\nJZ %s", end)
		s.loadFrom("(R9)", 1, part)
		s.loadFrom("(R10)", 2, part)
		s.mulAdd(0, 1, vec(2))
		fn.op("ADDQ R8, R9\nADDQ R8, R10\nDECQ R11\nJMP %s", loop)
		fn.at(end)
		s.store(0, 0, u, part)
	})
	s.end()
}

// through writes body for the vectors of a row: R11 elements, BX left, CX place in the row.
func (s *x86) through(unroll int, body func(u int, at func(base string) string, part bool)) {
	fn := s.fn
	fn.op("XORQ CX, CX\nMOVQ R11, BX")
	for _, n := range []int{unroll, 1} {
		loop, end := fn.label("loop"), fn.label("end")
		fn.at(loop)
		fn.op("CMPQ BX, $%d\nJLT %s", n*s.lanes(), end)
		for u := range n {
			body(u, func(base string) string { return fmt.Sprintf("%d(%s)(CX*1)", 4*u*s.lanes(), base) }, false)
		}
		fn.op("ADDQ $%d, CX\nSUBQ $%d, BX\nJMP %s", 4*n*s.lanes(), n*s.lanes(), loop)
		fn.at(end)
	}
	end := fn.label("whole")
	fn.op("TESTQ BX, BX\nJZ %s", end)
	s.partOf("BX")
	body(0, func(base string) string { return fmt.Sprintf("(%s)(CX*1)", base) }, true)
	fn.at(end)
}

// scaleRowsX86: DI and SI rows of dst and x, R8 and R9 bytes between them, DX factor, R10 rows left.
func scaleRowsX86(s *x86) {
	fn := s.fn
	fn.load("dst_base", "DI", "dstStride", "R8", "x_base", "SI", "xStride", "R9", "factors_base", "DX",
		"factors_len", "R10", "cols", "R11")
	row, done := fn.label("row"), fn.label("done")
	fn.op("SHLQ $2, R8\nSHLQ $2, R9\nTESTQ R10, R10\nJZ %s", done)
	fn.at(row)
	fn.op("VBROADCASTSS (DX), %s", s.reg(1))
	s.through(2, func(u int, at func(base string) string, part bool) {
		s.loadFrom(at("SI"), 0, part)
		s.mul(0, 0, vec(1))
		s.storeTo(at("DI"), 0, part)
	})
	fn.op("ADDQ R8, DI\nADDQ R9, SI\nADDQ $4, DX\nDECQ R10\nJNZ %s", row)
	fn.at(done)
	s.end()
}

// deltaRowsX86: DI row, SI q, DX k, CX place in the row, R8 y, R9 v, R10 rows left, BX elements left, R11 of
// a row; 8 decay, 9 beta, 10 Σ k·q in lane 0.
func deltaRowsX86(s *x86) {
	fn := s.fn
	fn.load("state_base", "DI", "q_base", "SI", "k_base", "DX", "y_base", "R8", "v_base", "R9",
		"v_len", "R10", "k_len", "R11")
	s.scalar("decay", 8)
	s.scalar("beta", 9)
	s.zero(10)
	s.through(1, func(u int, at func(base string) string, part bool) {
		s.loadFrom(at("SI"), 0, part)
		s.loadFrom(at("DX"), 1, part)
		s.mulAdd(10, 0, vec(1))
	})
	s.reduceAdd(10, 1)
	row, done := fn.label("row"), fn.label("done")
	fn.op("TESTQ R10, R10\nJZ %s", done)
	fn.at(row)
	for i := range vec(4) {
		s.zero(i)
	}
	s.through(2, func(u int, at func(base string) string, part bool) {
		s.loadFrom(at("DI"), 4, part)
		s.loadFrom(at("DX"), 5, part)
		s.loadFrom(at("SI"), 6, part)
		s.mulAdd(vec(2*u), 4, vec(5))
		s.mulAdd(vec(2*u+1), 4, vec(6))
	})
	s.add(0, 0, vec(2))
	s.add(1, 1, vec(3))
	s.reduceAdd(0, 4)
	s.reduceAdd(1, 4)
	// X0 = (v − decay·X0)·beta, X1 = decay·X1 + X0·X10
	fn.op("VMOVSS (R9), X4\nVFNMADD231SS X8, X0, X4\nVMULSS X9, X4, X0\nVMULSS X8, X1, X1\nVFMADD231SS X10, X0, X1\nVMOVSS X1, (R8)")
	fn.op("VBROADCASTSS X0, %s", s.reg(7))
	s.through(1, func(u int, at func(base string) string, part bool) {
		s.loadFrom(at("DI"), 4, part)
		s.loadFrom(at("DX"), 5, part)
		s.mul(4, 4, vec(8))
		s.mulAdd(4, 5, vec(7))
		s.storeTo(at("DI"), 4, part)
	})
	fn.op("LEAQ (DI)(R11*4), DI\nADDQ $4, R8\nADDQ $4, R9\nDECQ R10\nJNZ %s", row)
	fn.at(done)
	s.end()
}
