package main

import "fmt"

// Instructions that Go's assembler for arm64 does not know, as words: the encodings of the Arm Architecture
// Reference Manual, C7.2. Operands are in the order of Arm, destination first.
var words = map[string]uint32{
	// d, n, m
	"FADD": 0x4e20d400, "FSUB": 0x4ea0d400, "FMUL": 0x6e20dc00, "FDIV": 0x6e20fc00,
	"FMAX": 0x4e20f400, "FMIN": 0x4ea0f400, "FMAXNM": 0x4e20c400, "FMINNM": 0x4ea0c400,
	"FADDP": 0x6e20d400, "FCMGT": 0x6ea0e400, "FCMEQ": 0x4e20e400, "BIC": 0x4e601c00,
	"SDOT": 0x4e809400, "ADDP.8H": 0x4e60bc00,
	"SMULL.8H": 0x0e20c000, "SMULL2.8H": 0x4e20c000, "SMLAL2.8H": 0x4e208000,
	// d, n
	"FABS": 0x4ea0f800, "FNEG": 0x6ea0f800, "FRINTN": 0x4e218800, "FCVTNS": 0x4e21a800, "SCVTF": 0x4e21d800,
	"FMAXNMV": 0x6e30c800,
	"SHLL":    0x2e613800, "SHLL2": 0x6e613800, // 4 × 16 bits to 32, shifted left by 16
	"SSHR1":    0x4f3f0400, // 4 × 32 bits, by 1
	"SADALP":   0x4e606800, // 8 × 16 bits, pairs added to 4 × 32
	"SQXTN.4H": 0x0e614800, "SQXTN2.8H": 0x4e614800, "SQXTN.8B": 0x0e214800, "SQXTN2.16B": 0x4e214800,
	"XTN.4H": 0x0e612800, "XTN2.8H": 0x4e612800,
	"FMOV.S": 0x1e204000, // lane 0, others become zero
}

// word writes an instruction of the table.
func (fn *function) word(name string, registers ...int) {
	code, ok := words[name]
	if !ok {
		panic("gen: no instruction " + name)
	}
	comment := name
	for i, r := range registers {
		code |= uint32(r) << []int{0, 5, 16}[i]
		comment += fmt.Sprintf(" V%d", r)
	}
	fn.op("WORD $0x%08x // %s", code, comment)
}

// byElement writes d += n·m[lane] for 32-bit lanes: FMLA or, with 4 products of bytes for a lane, SDOT.
func (fn *function) byElement(name string, d, n, m, lane int) {
	code := map[string]uint32{"FMLA": 0x4f801000, "SDOT": 0x4f80e000}[name]
	code |= uint32(lane>>1)<<11 | uint32(lane&1)<<21 | uint32(m)<<16 | uint32(n)<<5 | uint32(d)
	fn.op("WORD $0x%08x // %s V%d V%d V%d[%d]", code, name, d, n, m, lane)
}

// loadARM64 puts arguments into general registers: pairs of an argument and a register.
func (fn *function) loadARM64(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		fn.op("MOVD %s, %s", fn.argument(pairs[i]), pairs[i+1])
	}
}

// v and v4 name vector registers, as bytes and as 32-bit lanes.
func v(n int) string  { return fmt.Sprintf("V%d.B16", n) }
func v4(n int) string { return fmt.Sprintf("V%d.S4", n) }

// zeroNEON clears vector registers.
func (fn *function) zeroNEON(registers ...int) {
	for _, r := range registers {
		fn.op("VEOR %s, %s, %s", v(r), v(r), v(r))
	}
}

// loadQ loads 16 bytes.
func (fn *function) loadQ(offset int, base string, to int) {
	fn.op("FMOVQ %d(%s), F%d", offset, base, to)
}

// sumLanes adds the lanes of a register into all of them.
func (fn *function) sumLanes(r int) {
	fn.word("FADDP", r, r, r)
	fn.word("FADDP", r, r, r)
}

// broadcastWord puts a word into all lanes; R7 is overwritten.
func (fn *function) broadcastWord(word uint32, to int) {
	fn.op("MOVW $0x%08x, R7\nVDUP R7, %s", word, v4(to))
}

// loadScalar loads a float32 that is stored as bf16 or as it is, and moves the pointer on; R7 is overwritten.
func (fn *function) loadScalar(format, base string, to int) {
	if format == "BF16" {
		fn.op("MOVHU.P 2(%s), R7\nLSLW $16, R7, R7\nFMOVS R7, F%d", base, to)
	} else {
		fn.op("FMOVS.P 4(%s), F%d", base, to)
	}
}

// loadFloatsNEON loads 4 float32, or widens 4 bf16.
func (fn *function) loadFloatsNEON(format string, offset int, base string, to int) {
	if format == "BF16" {
		fn.op("FMOVD %d(%s), F%d", offset, base, to)
		fn.word("SHLL", to, to)
	} else {
		fn.loadQ(offset, base, to)
	}
}
