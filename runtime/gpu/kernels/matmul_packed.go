package kernels

import (
	"fmt"
	"slices"
)

// Packed products are for 17 to 768 vectors, on devices where four simdgroups, called a group, multiply together
// (Machine.Groups). Codes of weights are read into the registers that multiply them. The vectors, which all groups
// read, are copied to threadgroup memory. A stage there has 128 columns, called a block. matmul_packed.metal says how
// vectors are packed.
//
// With Tile.Ring the codes of weights are copied to threadgroup memory, as the vectors are. Each simdgroup copies those
// of its own rows, in pieces of 256 columns, to a ring buffer of Ring such pieces. So whole cache lines are read, more
// reads are in flight, and registers suffice for more simdgroups.
//
// A tile has Tile.BN rows of weights. Tile.WN is the number of simdgroups; each group has BN / (WN / 4) of these rows,
// a multiple of 64. Tile.Stages is the number of stages, and Tile.Ahead the number of blocks of codes that are read
// ahead. The blocks of all tiles are one sequence, tile after tile. A threadgroup has Tile.Each consecutive blocks of
// it.

const (
	// packedColumns is the number of columns of a block.
	packedColumns = 128
	// packedPiece is the number of columns that a simdgroup copies together.
	packedPiece = 256
	// packedSpan is the number of pieces whose scales and biases a simdgroup copies together.
	packedSpan = 2
	// packedLeast is the number of vectors from which on packed products are faster on an H100 than products by
	// directTiles.
	packedLeast = 17
	// packedMost is the number of vectors up to which packed products are faster on an H100 than dequantizing a weight
	// to bf16 for a library of matrix products. packedMostLong is that number for weights of more than packedLong
	// columns.
	packedMost, packedMostLong = 512, 768
	packedLong                 = 4096
	// packedShare is the number of bytes of a weight's codes for each multiprocessor up to which products by directTiles
	// are faster on an H100 for up to packedFew vectors, and for up to directRows vectors if the weight has no more than
	// packedNarrow columns.
	packedShare, packedFew, packedNarrow = 124 << 10, 32, 2048
)

// InLanes is the value of Matrices.Packed for vectors that are rows of bf16 whose elements stand in the order in which
// the lanes of a simdgroup read them, in tiles with BK 0; see prelude/lanes.h.
const InLanes = 1

// Packings returns the layouts of the vectors, as values of [Matrices.Packed], that the kernels of a machine can read
// in a product of n rows of weights with this number of vectors. The fastest layout comes first. The last one is 0,
// vectors as rows, which every product can read.
func (m Matrices) Packings(machine Machine, n, rows int) (out []int) {
	m.Packed = InLanes
	direct := len(m.directTiles(machine, n, rows)) > 0
	if eights := m.eightsFor(machine, n, rows, direct); eights > 0 {
		out = append(out, eights)
	}
	if direct {
		out = append(out, InLanes)
	}
	return append(out, 0)
}

// eightsFor returns how many eights of vectors should be packed together for a product, or 0 if none should. direct
// says that directTiles has tiles for it.
func (m Matrices) eightsFor(machine Machine, n, rows int, direct bool) int {
	most := packedMost
	if m.K > packedLong {
		most = packedMostLong
	}
	if rows < packedLeast || rows > most || m.small(machine, n, rows, direct) {
		return 0
	}
	for _, eights := range packedEights {
		whole := rows <= eights*8 || eights == packedEights[len(packedEights)-1]
		if m.Packed = eights; whole && len(m.packedTiles(machine, 1, n, rows)) > 0 {
			return eights
		}
	}
	return 0
}

// small reports whether a weight of n rows is so small that a packed product is no faster than one by directTiles. A
// packed product has more to do before its first block and behind its last one. And its threadgroups take all
// threadgroup memory, so that no threadgroup of the next kernel starts beside them. direct is that of eightsFor.
func (m Matrices) small(machine Machine, n, rows int, direct bool) bool {
	few := 8 * machine.Cores // rows of weights with which multiprocessors have hardly any work
	if rows <= 64 {
		few *= 2
	}
	return n < few || direct && (rows <= packedFew || m.K <= packedNarrow) &&
		n*m.K*m.Bits/8 <= packedShare*machine.Cores
}

// packedEights are the numbers of eights of vectors that can be packed together. More vectors than the last number have
// several tiles.
var packedEights = []int{4, 8, 16}

// packedShape is what tiles of packed vectors differ in. sets is the number of groups of a threadgroup. deep times 64
// is the number of rows that a group has, of each weight of a pair. ahead is the number of blocks of codes that are
// read ahead into registers. If ring is not 0, codes are copied to a ring of so many pieces in place of that.
type packedShape struct{ sets, deep, ahead, ring int }

// packedShapes returns the shapes that are worth measuring for a number of eights of vectors. The shape that was
// fastest for large weights on an H100 comes first. More groups hide more latency, as long as registers hold the sums
// of all.
func packedShapes(eights, planes int) []packedShape {
	switch {
	case eights == 16 && planes == 2:
		return []packedShape{{2, 1, 1, 2}, {2, 1, 2, 0}}
	case eights == 16:
		return []packedShape{{3, 1, 1, 3}, {2, 1, 2, 0}, {2, 2, 2, 0}, {2, 1, 3, 0}}
	case planes == 2 && eights == 8:
		return []packedShape{{3, 1, 1, 2}, {2, 1, 2, 0}, {3, 1, 2, 0}}
	case planes == 2:
		return []packedShape{{4, 1, 1, 2}, {3, 1, 1, 3}, {3, 1, 2, 0}, {3, 1, 3, 0}, {2, 1, 2, 0}}
	case eights == 8:
		return []packedShape{{4, 1, 1, 3}, {3, 2, 1, 2}, {4, 1, 2, 0}, {2, 1, 2, 0}}
	}
	return []packedShape{{4, 1, 1, 4}, {3, 2, 1, 3}, {4, 1, 3, 0}, {6, 1, 1, 3}, {4, 1, 2, 0}, {2, 1, 2, 0}}
}

// packedTiles returns the tiles of packed vectors that are worth measuring on a machine, for planes weights of n rows
// each and a number of vectors. The tile that seems fastest comes first. With small weights a threadgroup has few
// blocks, and many threadgroups share a tile; smaller tiles are better then. Larger ones are left out if there are such:
// measured alone they are up to 20 % faster, but they leave no memory for the threadgroups of the next kernel. In a call
// for 32 rows of Qwen3.5-35B-A3B on an H200 they cost 3 %.
//
// A set of threadgroups multiplies the vectors of one tile. All sets together have at most as many threadgroups as the
// machine has multiprocessors. Threadgroup i of each set reads the same weights at about the same time, so only one of
// them reads device memory.
func (m Matrices) packedTiles(machine Machine, planes, n, vectors int) (out []Tile) {
	if !machine.Groups {
		return nil
	}
	const few = 8 // blocks
	for _, v := range packedShapes(m.Packed, planes) {
		t := Tile{BM: m.Packed * 8, BN: 64 * v.sets * v.deep * planes, WM: 1, WN: 4 * v.sets, Ahead: v.ahead, Ring: v.ring}
		t.Stages = m.packedStages(machine, t, planes)
		t.Each = ceil(m.blocks(t, n*planes)*ceil(vectors, t.BM), max(machine.Cores, 1))
		if m.checkPacked(t, planes) == nil && m.transferMemory(t, planes) <= machine.TransferMemory {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b Tile) int { return min(b.Each, few) - min(a.Each, few) })
	if i := slices.IndexFunc(out, func(t Tile) bool { return t.Each < few }); i > 0 {
		out = out[:i]
	}
	return out
}

// packedStages returns the number of stages of vectors of a tile. With a ring they are few, since vectors come out of
// the L2 cache. Else memory that stages leave is a multiprocessor's L1 cache, where scales and biases stay for eight
// blocks.
func (m Matrices) packedStages(machine Machine, t Tile, planes int) int {
	most, room := 8, machine.TransferMemory*5/8
	if t.Ring > 0 {
		most, room = 4, machine.TransferMemory
	}
	for t.Stages = most; t.Stages > 3 && m.transferMemory(t, planes) > room; {
		t.Stages--
	}
	return t.Stages
}

// blocks returns the number of blocks of all tiles of packed vectors together, for rows rows of weights.
func (m Matrices) blocks(t Tile, rows int) int { return ceil(rows, t.BN) * (m.K / packedColumns) }

// packedGroups returns the number of threadgroups that divide the blocks of rows rows of weights.
func (m Matrices) packedGroups(t Tile, rows int) int { return ceil(m.blocks(t, rows), t.Each) }

// transferMemory returns Launch.Memory of a tile in bytes: its stages of packed vectors and its rings of codes; 0 if
// vectors are not packed.
func (m Matrices) transferMemory(t Tile, planes int) int {
	if !t.packed() {
		return 0
	}
	return t.Stages*t.BM*packedColumns*2 + t.WN*m.packedRing(t, planes)
}

// packedRing is PACKED_OF_SIMD of matmul_packed.metal: the memory of a simdgroup for codes, scales and biases, in bytes.
func (m Matrices) packedRing(t Tile, planes int) int {
	if t.Ring == 0 {
		return 0
	}
	pieces, rows := m.K/packedPiece, t.BN/t.WN
	spans := (t.Ring+packedSpan-2)/packedSpan + 1
	if pieces%packedSpan != 0 {
		spans++
	}
	return t.Ring*rows*packedPiece/2 + spans*rows*packedSpan*16
}

// packedDefines are the definitions of a tile of packed vectors.
func (m Matrices) packedDefines(t Tile, planes int) []Define {
	out := append(m.defines(), define("MATMUL_K", m.K, "PACKED_EIGHTS", m.Packed, "PACKED_SETS", t.WN/4,
		"PACKED_TILES", t.BN/16/t.WN/planes, "PACKED_STAGES", t.Stages, "PACKED_AHEAD", t.Ahead,
		"PACKED_PLANES", planes, "PACKED_EACH", t.Each)...)
	if t.Ring > 0 {
		out = append(out, define("PACKED_RING", t.Ring, "PACKED_SPAN", packedSpan)...)
	}
	return out
}

// packedShared returns the sizes in elements of Partial and of Arrivals of a tile of packed vectors. vectors and groups
// are the dimensions of the grid, rows is the number of rows of weights in all.
func (t Tile) packedShared(vectors, groups, rows int) (partial, arrivals int) {
	return vectors * groups * 2 * t.BN * t.BM, vectors * ceil(rows, t.BN) * t.WN
}

// checkPacked returns an error if a product of planes weights cannot be divided into tiles of packed vectors like t.
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
	case t.Ring > 0 && (m.Group != 64 || m.K%packedPiece != 0):
		return fmt.Errorf("tile: groups of %d and %d columns, want groups of 64 and a multiple of %d columns for a ring of "+
			"codes", m.Group, m.K, packedPiece)
	case t.Ring < 0 || t.Ring == 1:
		return fmt.Errorf("tile: a ring of %d pieces of codes, want at least 2, or 0 for none", t.Ring)
	case !slices.Contains(packedEights, m.Packed) || t.BM != m.Packed*8:
		return fmt.Errorf("tile: %d vectors, %d eights of which are packed, want as many: 4, 8 or 16 eights", t.BM,
			m.Packed)
	case t.WM != 1 || t.WN < 4 || t.WN%4 != 0 || t.WN > 32 || t.BN < 1 || t.BN%(16*t.WN*planes) != 0:
		return fmt.Errorf("tile: %d rows of weights for %d×%d simdgroups, want a multiple of %d for each of 4, 8, … 32",
			t.BN, t.WM, t.WN, 16*planes)
	}
	return nil
}

// eights returns how many eights of vectors are packed together; 0 if vectors are not packed.
func (p Prepare) eights() int {
	if p.Packed == InLanes {
		return 0
	}
	return p.Packed
}

// laneOrder returns where column k stands in the order of lanes: lanes_place in prelude/lanes.h.
func laneOrder(k int) int {
	return k/packedColumns*packedColumns + k%32/8*32 + k%packedColumns/32*8 + k%4*2 + k%8/4
}

// at returns the place of column k of vector t in Y.
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
