package kernels

import (
	"fmt"
	"slices"
)

// Packed products are for 17 to 128 vectors, on devices where four simdgroups, a group, multiply together
// (Machine.Groups). Codes of weights go to the registers that multiply them; the vectors, which all groups read, are
// copied to threadgroup memory in stages of 128 columns, a block. matmul_packed.metal says how vectors are packed.
//
// Tile.WN is the number of simdgroups, of which four have some 64 rows of weights of Tile.BN. Tile.Stages is the
// number of stages, Tile.Ahead that of blocks of codes that are read ahead. A threadgroup has Tile.Each blocks in a
// row, of the blocks of all tiles of BN rows of weights one behind the other.

const (
	// packedColumns is the number of columns of a block.
	packedColumns = 128
	// packedLeast is the number of vectors from which on packed products are faster than those of directTiles on an H100.
	packedLeast = 17
	// packedMost is the number of vectors up to which they are faster than making bf16 of a weight for a library of matrix
	// products. For 256 vectors both take as long.
	packedMost = 128
)

// InLanes is the value of Matrices.Packed for vectors that are rows of bf16 whose elements stand in the order in which
// the lanes of a simdgroup read them, in tiles with BK 0; see prelude/lanes.h.
const InLanes = 1

// Packings returns the layouts of the vectors, as values of [Matrices.Packed], that the kernels of a machine can read
// in a product of n rows of weights with this number of vectors. The fastest layout comes first. The last one is 0,
// vectors as rows, which every product can read.
func (m Matrices) Packings(machine Machine, n, rows int) (out []int) {
	if eights := m.eightsFor(machine, n, rows); eights > 0 {
		out = append(out, eights)
	}
	if m.Packed = InLanes; len(m.directTiles(machine, n, rows)) > 0 {
		out = append(out, InLanes)
	}
	return append(out, 0)
}

// eightsFor is the number of eights of vectors that a product should have packed together; 0 where it should not.
func (m Matrices) eightsFor(machine Machine, n, rows int) int {
	if rows < packedLeast || rows > packedMost || n*8 < machine.Cores*64 {
		return 0 // of so few rows of weights, parts go to too few multiprocessors
	}
	for _, eights := range packedEights {
		if m.Packed = eights; rows <= eights*8 && len(m.packedTiles(machine, 1, n)) > 0 {
			return eights
		}
	}
	return 0
}

// packedEights are the numbers of eights of vectors that can be packed together.
var packedEights = []int{4, 8, 16}

// packedShape is what tiles of packed vectors differ in: groups of a threadgroup, the tiles of 64 rows of weights of
// each, of each weight of a pair, and the blocks of codes that are read ahead.
type packedShape struct{ sets, deep, ahead int }

// packedShapes are those worth measuring for so many eights of vectors, the ones that were fastest for large weights on
// an H100 first. More groups hide more waiting, as far as there are registers for the sums of all.
func packedShapes(eights, planes int) []packedShape {
	switch {
	case eights == 16 && planes == 2:
		return []packedShape{{2, 1, 2}}
	case eights == 16:
		return []packedShape{{2, 1, 2}, {2, 2, 2}, {2, 1, 3}}
	case planes == 2 && eights == 8:
		return []packedShape{{2, 1, 2}, {3, 1, 2}}
	case planes == 2:
		return []packedShape{{3, 1, 2}, {3, 1, 3}, {2, 1, 2}}
	case eights == 8:
		return []packedShape{{4, 1, 2}, {2, 1, 2}}
	}
	return []packedShape{{4, 1, 3}, {4, 1, 2}, {2, 1, 2}}
}

// packedTiles are the tiles of packed vectors worth measuring on a machine for planes weights of n rows each, the one
// first that seems fastest. Of small weights threadgroups have few blocks each, and many of them share a tile: smaller
// tiles are better then.
func (m Matrices) packedTiles(machine Machine, planes, n int) (out []Tile) {
	if !machine.Groups {
		return nil
	}
	const few = 8 // blocks
	for _, v := range packedShapes(m.Packed, planes) {
		t := Tile{BM: m.Packed * 8, BN: 64 * v.sets * v.deep * planes, WM: 1, WN: 4 * v.sets, Ahead: v.ahead}
		// The rest of the memory of a multiprocessor is the cache in which scales and biases stay for eight blocks.
		for t.Stages = 8; t.Stages > 3 && m.transferMemory(t) > machine.TransferMemory*5/8; {
			t.Stages--
		}
		t.Each = ceil(m.blocks(t, n*planes), max(machine.Cores, 1))
		if m.checkPacked(t, planes) == nil && m.transferMemory(t) <= machine.TransferMemory {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b Tile) int { return min(b.Each, few) - min(a.Each, few) })
	return out
}

// blocks is the number of blocks of all tiles of packed vectors, for rows rows of weights.
func (m Matrices) blocks(t Tile, rows int) int { return ceil(rows, t.BN) * (m.K / packedColumns) }

// packedGroups is the number of threadgroups beside each other, for rows rows of weights.
func (m Matrices) packedGroups(t Tile, rows int) int { return ceil(m.blocks(t, rows), t.Each) }

// transferMemory is Launch.Memory of a tile: the stages of packed vectors; 0 for others.
func (m Matrices) transferMemory(t Tile) int {
	if !t.packed() {
		return 0
	}
	return t.Stages * t.BM * packedColumns * 2
}

// packedDefines are the definitions of a tile of packed vectors.
func (m Matrices) packedDefines(t Tile, planes int) []Define {
	return append(m.defines(), define("MATMUL_K", m.K, "PACKED_EIGHTS", m.Packed, "PACKED_SETS", t.WN/4,
		"PACKED_TILES", t.BN/16/t.WN/planes, "PACKED_STAGES", t.Stages, "PACKED_AHEAD", t.Ahead,
		"PACKED_PLANES", planes, "PACKED_EACH", t.Each)...)
}

// PackedSums returns how many numbers threadgroups leave for each other, f32, and how many arrivals they count, u32,
// for any of some tiles of packed vectors, of which there are up to tokens.
func (m MatMul) PackedSums(tiles []Tile, tokens int) (sums, arrivals int) {
	return m.packedSums(tiles, m.N, tokens)
}

// PackedSums is MatMul.PackedSums of a pair.
func (m MatMulGLU) PackedSums(tiles []Tile, tokens int) (sums, arrivals int) {
	return m.packedSums(tiles, 2*m.N, tokens)
}

// packedSums is PackedSums for rows rows of weights.
func (m Matrices) packedSums(tiles []Tile, rows, tokens int) (sums, arrivals int) {
	for _, t := range tiles {
		vectors := ceil(tokens, t.BM)
		sums = max(sums, vectors*m.packedGroups(t, rows)*2*t.BN*t.BM)
		arrivals = max(arrivals, vectors*ceil(rows, t.BN)*t.WN)
	}
	return sums, arrivals
}

// checkPacked reports whether a product of planes weights can be divided into a tile of packed vectors.
func (m Matrices) checkPacked(t Tile, planes int) error {
	switch {
	case m.Exact || m.Bits != 4 || m.Group == 16 || m.Floats || m.F32:
		return fmt.Errorf("tile: beside packed vectors weights must be codes of 4 bits in groups of 32, 64 or 128 with " +
			"scales in bf16, and are rounded to bf16")
	case t.Stages < 3 || t.Ahead < 1 || t.Each < 1:
		return fmt.Errorf("tile: %d stages of vectors, %d blocks of codes ahead and %d in all, want at least 3, 1 and 1",
			t.Stages, t.Ahead, t.Each)
	case m.K%packedColumns != 0:
		return fmt.Errorf("tile: %d columns, want a multiple of %d", m.K, packedColumns)
	case !slices.Contains(packedEights, m.Packed) || t.BM != m.Packed*8:
		return fmt.Errorf("tile: %d vectors, %d eights of which are packed, want as many: 4, 8 or 16 eights", t.BM,
			m.Packed)
	case t.WM != 1 || t.WN < 4 || t.WN%4 != 0 || t.WN > 32 || t.BN < 1 || t.BN%(16*t.WN*planes) != 0:
		return fmt.Errorf("tile: %d rows of weights for %d×%d simdgroups, want a multiple of %d for each of 4, 8, … 32",
			t.BN,
			t.WM, t.WN, 16*planes)
	}
	return nil
}

// eights is the number of eights of vectors that are packed together; 0 where none are.
func (p Prepare) eights() int {
	if p.Packed == InLanes {
		return 0
	}
	return p.Packed
}

// laneOrder is where number k stands in the order of lanes: lanes_place in prelude/lanes.h.
func laneOrder(k int) int {
	return k/packedColumns*packedColumns + k%32/8*32 + k%packedColumns/32*8 + k%4*2 + k%8/4
}

// at is the place of number k of vector t in Y.
func (p Prepare) at(t, k int) int {
	switch p.Packed {
	case 0:
		return t*p.K + k
	case InLanes:
		return t*p.K + laneOrder(k)
	}
	rows := p.Packed * 8
	tile, row := t/rows, t%rows
	block, lane, word, column := k/packedColumns, k%packedColumns/32, k%32/8, k%8
	return (((tile*(p.K/packedColumns)+block)*16+word*4+column%4)*rows+row)*8 + lane*2 + column/4
}
