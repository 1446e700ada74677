package main

import "fmt"

// Products by the matrix unit of Intel's Sapphire Rapids and later, AMX: tiles of 16 rows times 16 vectors.
// Rows need no turning here, only unpacking: vectors are turned when they are rounded, once for all matrices.
// The sums of a group are stored, and scaled by AVX-512 while the unit multiplies the next group.

func tileAMX() *file {
	f := &file{name: "tile_amx", arch: "amd64", about: "Integer matrix products, AMX and AVX-512.",
		includes: []string{"funcdata.h"}}
	// Palette 1: 16 rows of 64 bytes; for groups of 32, rows have 32 bytes and vectors 8 words.
	f.table("tilesOf64", tileConfig(64)...)
	f.table("tilesOf32", tileConfig(32)...)
	blockIntegerAMX(f)
	blockRowsAMX(f, 4)
	blockRowsAMX(f, 8)
	blockStoreAMX(f)
	return f
}

// Registers of the unit.
const (
	tileSums, tileRows, tileVectors = 0, 1, 2
)

// tileConfig returns the operand of LDTILECFG for k columns at a time.
func tileConfig(k int) []uint32 {
	config := make([]byte, 64)
	config[0] = 1
	set := func(tile, rows, bytes int) { config[16+2*tile], config[48+tile] = byte(bytes), byte(rows) }
	set(tileSums, 16, 64)
	set(tileRows, 16, k)
	set(tileVectors, k/4, 64)
	words := make([]uint32, 16)
	for i, b := range config {
		words[i/4] |= uint32(b) << (8 * (i % 4))
	}
	return words
}

// amx writes an instruction of the unit, which Go's assembler does not know: VEX.128, map 0F38, W0, with the
// prefix given and v in VEX.vvvv. high are the bits of VEX.X and VEX.B for registers above 7; modrm is ModRM and
// what follows.
func (fn *function) amx(name string, prefix, opcode, v int, high byte, modrm ...byte) {
	code := append([]byte{0xc4, 0xe2 &^ high, byte((^v&15)<<3 | prefix), byte(opcode)}, modrm...)
	text := ""
	for i, b := range code {
		if i > 0 {
			text += "; "
		}
		text += fmt.Sprintf("BYTE $0x%02x", b)
	}
	fn.op("%s // %s", text, name)
}

// general are the numbers of general registers.
var general = map[string]byte{"AX": 0, "CX": 1, "DX": 2, "BX": 3, "SP": 4, "BP": 5, "SI": 6, "DI": 7, "R8": 8, "R9": 9,
	"R10": 10, "R11": 11, "R12": 12, "R13": 13, "R14": 14, "R15": 15}

// tileMemory writes a TILELOADD or a TILESTORED, as name and prefix say. The first row of the tile is at base + offset.
// The register stride has the bytes between two rows. It must not be SP, which an address cannot have as its index.
func (fn *function) tileMemory(name string, prefix, tile int, base, stride string, offset int) {
	b, s := general[base], general[stride]
	var high byte // inverted B and X of VEX
	if b > 7 {
		high |= 0x20
	}
	if s > 7 {
		high |= 0x40
	}
	fn.amx(fmt.Sprintf("%s %d(%s)(%s*1), T%d", name, offset, base, stride, tile), prefix, 0x4b, 0, high,
		0x80|byte(tile)<<3|4, s&7<<3|b&7, byte(offset), byte(offset>>8), byte(offset>>16), byte(offset>>24))
}

func (fn *function) tileLoad(tile int, base, stride string, offset int) {
	fn.tileMemory("TILELOADD", 3, tile, base, stride, offset)
}

func (fn *function) tileStore(tile int, base, stride string, offset int) {
	fn.tileMemory("TILESTORED", 2, tile, base, stride, offset)
}

func (fn *function) tileZero(tile int) {
	fn.amx(fmt.Sprintf("TILEZERO T%d", tile), 3, 0x49, 0, 0, 0xc0|byte(tile)<<3)
}

// tileProduct adds products of unsigned bytes of a and signed ones of b.
func (fn *function) tileProduct(sums, a, b int) {
	fn.amx(fmt.Sprintf("TDPBUSD T%d, T%d, T%d", b, a, sums), 1, 0x5e, b, 0, 0xc0|byte(sums)<<3|byte(a))
}

// blockIntegerAMX: DI sums, DX rows, SI and R8 scales and biases of the group, AX and BX code scales and code sums of
// the group, R10 vectors, R9 bytes of a row, R11 64, R12 buffer of the next group, R13 buffer of the group, R14 bytes
// between scales, R15 groups left, CX columns left; Z0 to Z15 sums of the rows. The places of the block of vectors, and
// how many blocks and parts of rows are left, are on the stack. It is long because it is one assembly routine: its
// registers are assigned across all of it.
func blockIntegerAMX(f *file) {
	fn := f.function("blockIntegerAMX", "sums []float32, rows []byte, codes []int8, scales, biases, codeScales, codeSums []float32, parts, rowStride, scaleStride, blocks, codeStride, codeScaleStride, groups, group int", "",
		`adds the products of parts of 16 rows of 8-bit codes with blocks of 16 vectors to sums, for 1 or 2 parts. In rows,
group after group, min(group, 64) codes of one row follow those of another; in codes, 4 codes of one vector
those of another:

	for b := range blocks {
		for p := range parts {
			for r := range 16 {
				for i := range 16 {
					for g := range groups {
						dot := int32(0)
						for k := g * group; k < (g+1)*group; k++ {
							w := min(group, 64)
							dot += int32(rows[p*rowStride+(k/w*16+r)*w+k%w]) * int32(codes[b*codeStride+(k/4*16+i)*4+k%4])
						}
						at, of := g*scaleStride+16*p+r, b*codeScaleStride+16*g+i
						sums[(32*b+16*p+r)*16+i] += float32(dot)*codeScales[of]*scales[at] + biases[at]*codeSums[of]
					}
				}
			}
		}
	}`)
	// Two buffers of 16·16 sums, in whole cache lines, and what is kept between blocks.
	fn.frame, fn.grows = 2048+64+48, true
	const sums, codes, codeScales, codeSums, blocks, part = "sumsAt-8(SP)", "codesAt-16(SP)", "codeScalesAt-24(SP)",
		"codeSumsAt-32(SP)", "blocksLeft-40(SP)", "part-48(SP)"
	block, half, group, last, done, narrow, configured := fn.label("block"), fn.label("half"), fn.label("group"),
		fn.label("last"), fn.label("done"), fn.label("narrow"), fn.label("configured")
	keep := func(argument, place string) { fn.op("MOVQ %s, AX\nMOVQ AX, %s", fn.argument(argument), place) }
	keep("sums_base", sums)
	keep("codes_base", codes)
	keep("codeScales_base", codeScales)
	keep("codeSums_base", codeSums)
	keep("blocks", blocks)
	fn.op("CMPQ %s, $0\nJLE %s\nTESTQ AX, AX\nJLE %s", fn.argument("groups"), done, done)
	fn.op("MOVQ $64, R11\nLEAQ buffers-2160(SP), R12\nADDQ $63, R12\nANDQ $-64, R12\nLEAQ 1024(R12), R13")
	fn.op("CMPQ %s, $32\nJEQ %s\nMOVQ $64, R9\nLEAQ tilesOf64<>(SB), CX\nJMP %s",
		fn.argument("group"), narrow, configured)
	fn.at(narrow)
	fn.op("MOVQ $32, R9\nLEAQ tilesOf32<>(SB), CX")
	fn.at(configured)
	fn.amx("LDTILECFG (CX)", 0, 0x49, 0, 0, 0x01)
	fn.at(block)
	fn.op("MOVQ $0, %s", part)
	fn.at(half)
	fn.load("groups", "R15", "rows_base", "DX", "scales_base", "SI", "biases_base", "R8", "scaleStride", "R14")
	fn.op("SHLQ $2, R14\nMOVQ %s, CX\nMOVQ CX, AX\nIMULQ %s, AX\nADDQ AX, DX\nSHLQ $6, CX\nADDQ CX, SI\nADDQ CX, R8",
		part, fn.argument("rowStride"))
	fn.op("MOVQ %s, DI\nSHLQ $4, CX\nADDQ CX, DI\nMOVQ %s, R10\nMOVQ %s, AX\nMOVQ %s, BX", sums,
		codes, codeScales, codeSums)
	for r := range 16 {
		fn.zero(z(r))
	}
	// multiply starts the sums of a group and stores them at R12.
	multiply := func() {
		columns := fn.label("columns")
		fn.tileZero(tileSums)
		fn.op("MOVQ %s, CX", fn.argument("group"))
		fn.at(columns)
		fn.tileLoad(tileRows, "DX", "R9", 0)
		fn.tileLoad(tileVectors, "R10", "R11", 0)
		fn.tileProduct(tileSums, tileRows, tileVectors)
		fn.op("SHLQ $4, R9\nADDQ R9, DX\nADDQ R9, R10\nSHRQ $4, R9\nSUBQ R9, CX\nJNZ %s", columns)
		fn.tileStore(tileSums, "R12", "R11", 0)
	}
	multiply()
	fn.at(group)
	fn.op("XCHGQ R12, R13\nDECQ R15\nJZ %s", last)
	multiply()
	fn.at(last)
	fn.op("VMOVUPS (AX), Z30\nVMOVUPS (BX), Z31")
	for r := range 16 {
		dot := z(16 + r%8)
		fn.op("VCVTDQ2PS %d(R13), %[2]s\nVMULPS Z30, %[2]s, %[2]s", 64*r, dot)
		fn.op("VFMADD231PS.BCST %d(SI), %s, %s\nVFMADD231PS.BCST %d(R8), Z31, %s", 4*r, dot, z(r), 4*r, z(r))
	}
	fn.op("ADDQ R14, SI\nADDQ R14, R8\nADDQ $64, AX\nADDQ $64, BX\nTESTQ R15, R15\nJNZ %s", group)
	for r := range 16 {
		fn.op("VADDPS %d(DI), %[2]s, %[2]s\nVMOVUPS %[2]s, %[1]d(DI)", 64*r, z(r))
	}
	fn.op("INCQ %s\nMOVQ %s, CX\nCMPQ CX, %s\nJLT %s", part, part, fn.argument("parts"), half)
	fn.op("ADDQ $2048, %s\nMOVQ %s, CX\nADDQ CX, %s", sums, fn.argument("codeStride"), codes)
	fn.op("MOVQ %s, CX\nSHLQ $2, CX\nADDQ CX, %s\nADDQ CX, %s\nDECQ %s\nJNZ %s", fn.argument("codeScaleStride"),
		codeScales, codeSums, blocks, block)
	fn.amx("TILERELEASE", 0, 0x49, 0, 0, 0xc0)
	fn.at(done)
	fn.returnAMD64()
}

// blockRowsAMX: DI where codes of a row go, SI row, R8 rows left, R9 rowBytes, R10 piece, DX pieces, CX
// pieces left, R11 where the next piece goes, BX place in the row.
func blockRowsAMX(f *file, bits int) {
	order := ""
	if bits == 4 {
		order = ", of each piece the even ones before the odd ones"
	}
	fn := f.function(fmt.Sprintf("blockRowsQ%dAMX", bits), "panel, data []byte, rowBytes, rows, pieces, piece int", "",
		fmt.Sprintf(`unpacks rows of %d-bit codes, at most 16, for blockIntegerAMX in pieces of 32 or 64 codes%s:

	for r := range rows {
		for k := range pieces * piece {
			panel[(k/piece*16+r)*piece+k%%piece] = code(r, k)
		}
	}`, bits, order))
	fn.load("panel_base", "DI", "data_base", "SI", "rowBytes", "R9", "rows", "R8", "pieces", "DX", "piece", "R10")
	row, narrow, wide, next, end := fn.label("row"), fn.label("narrow"), fn.label("wide"),
		fn.label("next"), fn.label("end")
	fn.op("MOVL $0x0f0f0f0f, AX\nVPBROADCASTD AX, Z31\nTESTQ DX, DX\nJZ %s", end)
	fn.at(row)
	fn.op("SUBQ $1, R8\nJLT %s\nMOVQ DI, R11\nMOVQ SI, BX\nMOVQ DX, CX\nCMPQ R10, $32\nJEQ %s", end, narrow)
	fn.at(wide)
	if bits == 4 {
		fn.op("PREFETCHT0 %d(BX)\nVMOVDQU (BX), Y0\nVPSRLD $4, Y0, Y1\nVINSERTI64X4 $1, Y1, Z0, Z0\nVPANDD Z31, Z0, Z0\nADDQ $32, BX", prefetch)
	} else {
		fn.op("PREFETCHT0 %d(BX)\nVMOVDQU32 (BX), Z0\nADDQ $64, BX", prefetch)
	}
	fn.op("VMOVDQU32 Z0, (R11)\nADDQ $1024, R11\nDECQ CX\nJNZ %s\nJMP %s", wide, next)
	fn.at(narrow)
	if bits == 4 {
		fn.op("PREFETCHT0 %d(BX)\nVMOVDQU (BX), X0\nVPSRLD $4, X0, X1\nVINSERTI128 $1, X1, Y0, Y0\nVPANDD Y31, Y0, Y0\nADDQ $16, BX", prefetch)
	} else {
		fn.op("PREFETCHT0 %d(BX)\nVMOVDQU (BX), Y0\nADDQ $32, BX", prefetch)
	}
	fn.op("VMOVDQU Y0, (R11)\nADDQ $512, R11\nDECQ CX\nJNZ %s", narrow)
	fn.at(next)
	fn.op("ADDQ R10, DI\nADDQ R9, SI\nJMP %s", row)
	fn.at(end)
	fn.returnAMD64()
}

// blockStoreAMX: DI y, BX bytes between its vectors, SI sums, DX vectors left.
func blockStoreAMX(f *file) {
	fn := f.function("blockStoreAMX", "y []float32, stride int, sums []float32, vectors, rows int", "",
		`turns sums of 16 rows and 16 vectors into y, for at most 16 of both:

	for i := range vectors {
		for r := range rows {
			y[i*stride+r] = sums[16*r+i]
		}
	}`)
	end := fn.label("end")
	fn.load("y_base", "DI", "stride", "BX", "sums_base", "SI", "vectors", "DX", "rows", "AX")
	fn.op("SHLQ $2, BX\nMOVQ $64, R9\nMOVL $-1, CX\nBZHIL AX, CX, CX\nKMOVW CX, K1")
	fn.turn512(load512(fn))
	for i := range 16 {
		if i > 0 {
			fn.op("CMPQ DX, $%d\nJLE %s\nADDQ BX, DI", i, end)
		}
		fn.op("VMOVUPS %s, K1, (DI)", z(i))
	}
	fn.at(end)
	fn.returnAMD64()
}
