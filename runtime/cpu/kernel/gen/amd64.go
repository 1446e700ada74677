package main

import "fmt"

// load puts arguments into general registers: pairs of an argument and a register.
func (fn *function) load(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		fn.op("MOVQ %s, %s", fn.argument(pairs[i]), pairs[i+1])
	}
}

// return_ ends a function that used wide registers.
func (fn *function) returnAMD64() { fn.op("VZEROUPPER\nRET") }

// zero clears vector registers.
func (fn *function) zero(registers ...string) {
	for _, r := range registers {
		if r[0] == 'Z' {
			fn.op("VPXORD %s, %s, %s", r, r, r)
		} else {
			fn.op("VXORPS %s, %s, %s", r, r, r)
		}
	}
}

// z, y and x name vector registers.
func z(n int) string { return fmt.Sprintf("Z%d", n) }
func y(n int) string { return fmt.Sprintf("Y%d", n) }
func x(n int) string { return fmt.Sprintf("X%d", n) }

// reduce512 adds the lanes of Z register n into lane 0 of its low part; register t is scratch.
func (fn *function) reduce512(n, t int) {
	fn.op("VEXTRACTF64X4 $1, %s, %s\nVADDPS %s, %s, %s", z(n), y(t), y(t), y(n), y(n))
	fn.reduce256(n, t)
}

// reduce256 is reduce512 for a Y register.
func (fn *function) reduce256(n, t int) {
	fn.op(`VEXTRACTF128 $1, %s, %s
		VADDPS %s, %s, %s
		VSHUFPS $0x4e, %s, %s, %s
		VADDPS %s, %s, %s
		VSHUFPS $0xb1, %s, %s, %s
		VADDSS %s, %s, %s`,
		y(n), x(t), x(t), x(n), x(n), x(n), x(n), x(t), x(t), x(n), x(n), x(n), x(n), x(t), x(t), x(n), x(n))
}

// loadBF16x16 widens 16 bfloat16 numbers; mask is "" or a mask register.
func (fn *function) loadBF16x16(from, mask, to string) {
	if mask == "" {
		fn.op("VPMOVZXWD %s, %s", from, to)
	} else {
		fn.op("VPMOVZXWD.Z %s, %s, %s", from, mask, to)
	}
	fn.op("VPSLLD $16, %s, %s", to, to)
}

// loadFloats512 loads 16 float32 that are stored as bf16 or as they are.
func (fn *function) loadFloats512(format, from, mask, to string) {
	switch {
	case format == "BF16":
		fn.loadBF16x16(from, mask, to)
	case mask == "":
		fn.op("VMOVUPS %s, %s", from, to)
	default:
		fn.op("VMOVUPS.Z %s, %s, %s", from, mask, to)
	}
}
