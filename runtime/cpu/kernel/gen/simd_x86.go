package main

import "fmt"

// x86 is AVX2 with FMA, or AVX-512.
type x86 struct {
	fn   *function
	file *file
	wide bool
}

// pointers of slices, in order.
var pointers = []string{"DI", "SI", "DX", "CX", "R8"}

func (s *x86) function() *function { return s.fn }

func (s *x86) lanes() int {
	if s.wide {
		return 16
	}
	return 8
}

func (s *x86) reg(v vec) string {
	if s.wide {
		return z(int(v))
	}
	return y(int(v))
}

// src returns an operand: a register, or a constant in memory.
func (s *x86) src(o operand) string {
	if v, ok := o.(vec); ok {
		return s.reg(v)
	}
	return s.file.constant(o.(constant), s.lanes()) + "<>(SB)"
}

func (s *x86) begin(slices ...string) {
	for i, name := range slices {
		s.fn.load(name+"_base", pointers[i])
	}
	s.fn.load(slices[0]+"_len", "BX")
}

func (s *x86) scalar(name string, d vec) {
	s.fn.op("VBROADCASTSS %s, %s", s.fn.argument(name), s.reg(d))
}

func (s *x86) end() { s.fn.returnAMD64() }

func (s *x86) loop(slices, unroll int, body func(u int, part bool)) {
	fn := s.fn
	advance := func(n int) {
		for i := range slices {
			fn.op("ADDQ $%d, %s", 4*n*s.lanes(), pointers[i])
		}
	}
	for _, n := range []int{unroll, 1} {
		loop, end := fn.label("loop"), fn.label("end")
		fn.at(loop)
		fn.op("CMPQ BX, $%d\nJLT %s", n*s.lanes(), end)
		for u := range n {
			body(u, false)
		}
		advance(n)
		fn.op("SUBQ $%d, BX\nJMP %s", n*s.lanes(), loop)
		fn.at(end)
		if n == 1 {
			break
		}
	}
	end := fn.label("whole")
	fn.op("TESTQ BX, BX\nJZ %s", end)
	s.partOf("BX")
	body(0, true)
	fn.at(end)
}

// partOf prepares loads and stores of the first lanes, as many as a register holds, which is not kept; nor is
// AX.
func (s *x86) partOf(register string) {
	if s.wide {
		s.fn.op("MOVL $-1, AX\nBZHIL %s, AX, AX\nKMOVW AX, K1", register)
		return
	}
	// Eight words of ones and eight of zeros, from the middle less the number on.
	s.fn.op("LEAQ %s<>+32(SB), AX\nSHLQ $2, %s\nSUBQ %s, AX\nVMOVUPS (AX), Y15", s.file.partTable(), register, register)
}

func (s *x86) address(slice, u int) string {
	return fmt.Sprintf("%d(%s)", 4*u*s.lanes(), pointers[slice])
}

func (s *x86) load(d vec, slice, u int, part bool) { s.loadFrom(s.address(slice, u), d, part) }

func (s *x86) loadFrom(address string, d vec, part bool) {
	switch {
	case !part:
		s.fn.op("VMOVUPS %s, %s", address, s.reg(d))
	case s.wide:
		s.fn.op("VMOVUPS.Z %s, K1, %s", address, s.reg(d))
	default:
		s.fn.op("VMASKMOVPS %s, Y15, %s", address, s.reg(d))
	}
}

func (s *x86) store(d vec, slice, u int, part bool) { s.storeTo(s.address(slice, u), d, part) }

func (s *x86) storeTo(address string, d vec, part bool) {
	switch {
	case !part:
		s.fn.op("VMOVUPS %s, %s", s.reg(d), address)
	case s.wide:
		s.fn.op("VMOVUPS %s, K1, %s", s.reg(d), address)
	default:
		s.fn.op("VMASKMOVPS %s, Y15, %s", s.reg(d), address)
	}
}

func (s *x86) three(op string, d, a vec, b operand) {
	s.fn.op("%s %s, %s, %s", op, s.src(b), s.reg(a), s.reg(d))
}

func (s *x86) zero(d vec)                 { s.fn.zero(s.reg(d)) }
func (s *x86) move(d vec, o operand)      { s.fn.op("VMOVUPS %s, %s", s.src(o), s.reg(d)) }
func (s *x86) add(d, a vec, b operand)    { s.three("VADDPS", d, a, b) }
func (s *x86) sub(d, a vec, b operand)    { s.three("VSUBPS", d, a, b) }
func (s *x86) mul(d, a vec, b operand)    { s.three("VMULPS", d, a, b) }
func (s *x86) div(d, a, b vec)            { s.three("VDIVPS", d, a, b) }
func (s *x86) mulAdd(d, a vec, b operand) { s.three("VFMADD231PS", d, a, b) }
func (s *x86) mulSub(d, a vec, b operand) { s.three("VFNMADD231PS", d, a, b) }

func (s *x86) horner(d, x vec, c constant) { s.three("VFMADD213PS", d, x, c) }

// The second source, written first, is the result if one of both is NaN. A constant must be that source, so
// it is loaded.
func (s *x86) smaller(d, a vec, b constant) {
	s.move(d, b)
	s.three("VMINPS", d, d, a)
}

func (s *x86) larger(d, a vec, b constant) {
	s.move(d, b)
	s.three("VMAXPS", d, d, a)
}

func (s *x86) number(d, a, b vec) { s.three("VMAXPS", d, a, b) }
func (s *x86) abs(d, a vec)       { s.three("VANDPS", d, a, constant("magnitude")) }
func (s *x86) negate(d, a vec)    { s.three("VXORPS", d, a, constant("sign")) }
func (s *x86) copySign(d, a, t vec) {
	s.three("VANDPS", t, a, constant("sign"))
	s.three("VORPS", d, d, t)
}

func (s *x86) clearLess(d, a vec, b constant) {
	// Predicate 5: not less, true for NaN.
	if s.wide {
		s.fn.op("VCMPPS $5, %s, %s, K2\nVMOVAPS.Z %s, K2, %s", s.src(b), s.reg(a), s.reg(d), s.reg(d))
		return
	}
	s.fn.op("VCMPPS $5, %s, %s, Y14\nVANDPS Y14, %s, %s", s.src(b), s.reg(a), s.reg(d), s.reg(d))
}

func (s *x86) choose(d, e, a vec, b constant) {
	// Predicate 30: greater, false for NaN.
	if s.wide {
		s.fn.op("VCMPPS $30, %s, %s, K2\nVMOVAPS %s, K2, %s", s.src(b), s.reg(a), s.reg(e), s.reg(d))
		return
	}
	s.fn.op("VCMPPS $30, %s, %s, Y14\nVBLENDVPS Y14, %s, %s, %s", s.src(b), s.reg(a), s.reg(e), s.reg(d), s.reg(d))
}

func (s *x86) scaleByPower(d, n, t vec) {
	if s.wide {
		s.fn.op("VSCALEFPS %s, %s, %s", s.reg(n), s.reg(d), s.reg(d))
		return
	}
	// In two factors, as 2^128 is no float: n/2 and the rest, whose exponents are biased by 127.
	s.fn.op("VCVTPS2DQ %s, %s\nVPSRAD $1, %s, %s\nVPSUBD %s, %s, %s", s.reg(n), s.reg(n), s.reg(n), s.reg(t),
		s.reg(t), s.reg(n), s.reg(n))
	for _, v := range []vec{n, t} {
		s.fn.op("VPSLLD $23, %s, %s\nVPADDD %s, %s, %s\nVMULPS %s, %s, %s", s.reg(v), s.reg(v), s.src(constant("one")),
			s.reg(v), s.reg(v), s.reg(v), s.reg(d), s.reg(d))
	}
}

func (s *x86) round(d, a vec) {
	if s.wide {
		s.fn.op("VRNDSCALEPS $8, %s, %s", s.reg(a), s.reg(d))
	} else {
		s.fn.op("VROUNDPS $8, %s, %s", s.reg(a), s.reg(d))
	}
}

func (s *x86) onlyPart(d vec) {
	if s.wide {
		s.fn.op("VMOVAPS.Z %s, K1, %s", s.reg(d), s.reg(d))
	} else {
		s.fn.op("VANDPS Y15, %s, %s", s.reg(d), s.reg(d))
	}
}

func (s *x86) reduceAdd(d, t vec) {
	if s.wide {
		s.fn.reduce512(int(d), int(t))
	} else {
		s.fn.reduce256(int(d), int(t))
	}
}

func (s *x86) reduceMax(d, t vec) {
	a, b := int(d), int(t)
	if s.wide {
		s.fn.op("VEXTRACTF64X4 $1, %s, %s\nVMAXPS %s, %s, %s", z(a), y(b), y(b), y(a), y(a))
	}
	s.fn.op("VEXTRACTF128 $1, %s, %s\nVMAXPS %s, %s, %s", y(a), x(b), x(b), x(a), x(a))
	s.fn.op("VSHUFPS $0x4e, %s, %s, %s\nVMAXPS %s, %s, %s", x(a), x(a), x(b), x(b), x(a), x(a))
	s.fn.op("VSHUFPS $0xb1, %s, %s, %s\nVMAXPS %s, %s, %s", x(a), x(a), x(b), x(b), x(a), x(a))
}

func (s *x86) result(d vec) { s.fn.op("VMOVSS %s, %s", x(int(d)), s.fn.argument("ret")) }

// constant adds the table of a constant to the file, once.
func (f *file) constant(name constant, lanes int) string {
	table := string(name) + map[int]string{8: "256", 16: "512"}[lanes]
	if !f.has[table] {
		words := make([]uint32, lanes)
		for i := range words {
			words[i] = constantBits(name)
		}
		f.table(table, words...)
	}
	return table
}

// partTable adds the masks of parts of a Y register: eight words of ones, then eight of zeros.
func (f *file) partTable() string {
	const name = "part256"
	if !f.has[name] {
		words := make([]uint32, 16)
		for i := range 8 {
			words[i] = 0xffffffff
		}
		f.table(name, words...)
	}
	return name
}
