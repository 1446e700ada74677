package kernels

import (
	"fmt"
	"slices"
)

// Packed products are for 17 to 128 vectors, on devices where four simdgroups multiply together (Machine.Groups).
// Codes of weights go to the registers that multiply them; the vectors, which all simdgroups read, are copied to
// threadgroup memory, Tile.Stages stages ahead. A stage has 128 columns for each of Tile.Split groups of four
// simdgroups, which share the columns of the same rows of weights. Tile.Ahead blocks of codes are read ahead.
// matmul_packed.metal says how vectors are packed.

const (
	// packedColumns is the number of columns of a block.
	packedColumns = 128
	// packedPitch is the number of floats from one vector's results to the next in threadgroup memory.
	packedPitch = 68
	// packedLeast is the number of vectors from which on packed products are faster than those of directTiles on an H100;
	// of weights with packedLarge numbers or more it is packedLeastLarge.
	packedLeast      = 17
	packedLeastLarge = 33
	packedLarge      = 32 << 20
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
	least := packedLeast
	if n*m.K >= packedLarge {
		least = packedLeastLarge
	}
	if rows < least || rows > packedMost || n*8 < machine.Cores*64 {
		return 0 // of so few rows of weights, parts go to too few multiprocessors
	}
	for _, eights := range []int{4, 8, 16} {
		if m.Packed = eights; rows <= eights*8 && len(m.packedTiles(machine, 1, n)) > 0 {
			return eights
		}
	}
	return 0
}

// packedTiles are the tiles of packed vectors worth measuring on a machine for planes weights of n rows each, the one
// first that seems fastest.
func (m Matrices) packedTiles(machine Machine, planes, n int) (out []Tile) {
	if !machine.Groups {
		return nil
	}
	for _, v := range [][3]int{{3, 1, 2}, {1, 3, 2}, {1, 2, 4}, {2, 1, 4}, {1, 1, 4}, {1, 4, 2}, {2, 2, 2}, {4, 1, 2}} {
		sets, split, ahead := v[0], v[1], v[2]
		t := Tile{BM: m.Packed * 8, BN: 64 * sets * planes, WM: 1, WN: 4 * sets * planes, Split: split, Ahead: ahead}
		most := 3
		if m.Packed < 16 {
			most = 4 // there are registers for them
		}
		if t.groups() > most {
			continue
		}
		for t.Stages = 6; t.Stages > 1 && m.transferMemory(t) > machine.TransferMemory/max(1, 3/t.groups()); {
			t.Stages--
		}
		if m.checkPacked(t, planes) == nil && m.transferMemory(t) <= machine.TransferMemory {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b Tile) int {
		return m.packedCost(machine, a, n*planes) - m.packedCost(machine, b, n*planes)
	})
	return out
}

// groups is the number of fours of simdgroups of a threadgroup with packed vectors.
func (t Tile) groups() int { return t.threads() / 128 }

// packedTimes says how long 0, 1, 2 … groups of four simdgroups take beside each other on a multiprocessor of an H100,
// each for the same number of columns. Three keep it busy and take 30.
var packedTimes = []int{0, 15, 21, 30, 40}

// packedCost estimates the time of a tile.
func (m Matrices) packedCost(machine Machine, t Tile, n int) int {
	cores, threadgroups := max(machine.Cores, 1), ceil(n, t.BN)
	beside := min(max(1, 3/t.groups()), ceil(threadgroups, cores)) // threadgroups of a multiprocessor at a time
	groups := min(beside*t.groups(), len(packedTimes)-1)
	return ceil(threadgroups, cores*beside) * packedTimes[groups] * (m.K/t.split() + 256)
}

// transferMemory is Launch.Memory of a tile: the stages of packed vectors and, behind the products, their results; 0
// for others.
func (m Matrices) transferMemory(t Tile) int {
	if !t.packed() {
		return 0
	}
	return max(t.Stages*t.split()*t.BM*packedColumns*2, t.groups()*t.BM*packedPitch*4)
}

// packedDefines are the definitions of a tile of packed vectors.
func (m Matrices) packedDefines(t Tile, planes int) []Define {
	return append(m.defines(), define("MATMUL_K", m.K, "PACKED_EIGHTS", m.Packed, "PACKED_SETS", t.WN/4/planes,
		"PACKED_SPLIT", t.split(), "PACKED_STAGES", t.Stages, "PACKED_AHEAD", t.Ahead, "PACKED_PLANES", planes)...)
}

// checkPacked reports whether a product of planes weights can be divided into a tile of packed vectors.
func (m Matrices) checkPacked(t Tile, planes int) error {
	switch {
	case m.Exact || m.Bits != 4 || m.Group == 16 || m.Floats || m.F32:
		return fmt.Errorf("tile: beside packed vectors weights must be codes of 4 bits in groups of 32, 64 or 128 with " +
			"scales in bf16, and are rounded to bf16")
	case m.K%(packedColumns*t.split()) != 0:
		return fmt.Errorf("tile: %d groups of four simdgroups share %d columns, want a multiple of %d for each",
			t.split(), m.K, packedColumns)
	case !slices.Contains([]int{4, 8, 16}, m.Packed) || t.BM != m.Packed*8:
		return fmt.Errorf("tile: %d vectors, %d eights of which are packed, want as many: 4, 8 or 16 eights", t.BM,
			m.Packed)
	case t.WM != 1 || t.WN < 1 || t.WN%(4*planes) != 0 || t.BN != 16*t.WN || t.WN*t.split() > 32:
		return fmt.Errorf("tile: %d columns of results of %d×%d simdgroups, want 16 for each of a multiple of %d, at most "+
			"32 in all",
			t.BN, t.WN, t.split(), 4*planes)
	case t.Stages < 2 || t.Ahead < 1:
		return fmt.Errorf("tile: %d stages of vectors and %d blocks of codes ahead, want at least 2 and 1", t.Stages,
			t.Ahead)
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
