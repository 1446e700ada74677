package kernels

import (
	"cmp"
	"fmt"
	"slices"
)

// Tiles of BK 0 are for NVIDIA, and for up to some hundred vectors: a simdgroup multiplies 32 rows of a weight, which
// its lanes read where they need them, with all vectors of the tile. Most of what is read then is the weight, and it
// goes from device memory to the registers that multiply it. Where a product has too few rows to keep a device busy,
// Split simdgroups share their columns.

// directRows is the largest number of vectors for which such tiles are worth measuring.
const directRows = 128

// directTiles are the tiles of BK 0 worth measuring on a machine for about rows vectors and n rows of weights, the one
// first that seems fastest.
func (m Matrices) directTiles(machine Machine, n, rows int) (out []Tile) {
	if !machine.lanes() || rows > directRows {
		return nil
	}
	for _, t := range []Tile{{WN: 4, Split: 2}, {WN: 4}, {WN: 2, Split: 4}, {WN: 8}, {WN: 1, Split: 8},
		{WN: 2, Split: 2}, {WN: 1, Split: 4}} {
		t.BM, t.BN, t.WM = min(ceil(rows, 8)*8, 32), 32*t.WN, 1
		if m.checkDirect(t) == nil {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b Tile) int {
		return cmp.Or(m.directCost(machine, a, n, rows)-m.directCost(machine, b, n, rows),
			directBusiest(machine, a, n, rows)-directBusiest(machine, b, n, rows))
	})
	return out
}

// threadgroups returns the number of threadgroups that compute rows vectors with n rows of weights.
func (t Tile) threadgroups(n, rows int) int { return ceil(n, t.BN) * ceil(rows, t.BM) }

// directBusiest returns the number of all simdgroups that the busiest multiprocessor gets, whether they run at the same
// time or not. It is lower where a tile's threadgroups are spread more evenly. Of two tiles with the same directCost,
// the one with the lower number is faster. On an H100, for 2 to 8 vectors, Qwen's product of 9216×2048 takes 5.4 to 5.7
// µs with that one and 8.1 to 9.5 µs with the other one; 12352×2048 takes 7.1 to 7.5 and 8.7 to 9.9.
func directBusiest(machine Machine, t Tile, n, rows int) int {
	return ceil(t.threadgroups(n, rows), max(machine.Cores, 1)) * t.threads() / 32
}

// directCost estimates the time of a tile. Its unit is the time in which a simdgroup multiplies one column. A simdgroup
// multiplies its part of the columns, and takes as long as for 256 more to begin and to add up. A multiprocessor runs
// threadgroups at the same time as far as it has registers, and the others one after another. On an H100 the estimate
// finds the fastest tile for Qwen's and Gemma's products of 8 and 32 rows, or one that takes 5 % more.
func (m Matrices) directCost(machine Machine, t Tile, n, rows int) int {
	simdgroups := 12 // of a multiprocessor at a time, see DIRECT_BOUND in prelude/direct.h
	if t.BM == 8 {
		simdgroups = 16 // they need fewer registers
	}
	atOnce := max(machine.Cores, 1) * max(1, simdgroups*32/t.threads())
	return ceil(t.threadgroups(n, rows), atOnce) * (m.K/t.split() + 256)
}

// blocksAhead is the number of blocks of 128 columns that a simdgroup reads ahead.
func (m Matrices) blocksAhead(t Tile) int {
	if m.K/t.split()%(2*packedColumns) == 0 && m.Bits == 4 {
		return 2
	}
	return 1
}

// directMemory is the threadgroup memory in bytes of a tile of BK 0: f32 sums of all simdgroups where some share
// columns.
func (m Matrices) directMemory(t Tile) int {
	if t.split() == 1 {
		return 4
	}
	return t.threads() * t.BM * 4
}

// checkDirect returns an error where a product cannot be divided into a tile of BK 0.
func (m Matrices) checkDirect(t Tile) error {
	switch part := m.K / t.split(); {
	case m.Packed != InLanes:
		return fmt.Errorf("tile: with BK 0 vectors must be in the order of lanes (Packed)")
	case m.Exact || m.Bits != 4 && m.Bits != 8 || m.Group != 64 || m.F32:
		return fmt.Errorf("tile: with BK 0 weights must be codes of 4 or 8 bits in groups of 64 with scales in bf16, " +
			"and are rounded to bf16")
	case m.K%t.split() != 0 || part%128 != 0:
		return fmt.Errorf("tile: with BK 0, %d simdgroups share %d columns, want a multiple of 128 for each", t.split(),
			m.K)
	case t.BM < 8 || t.BM > 32 || t.BM%8 != 0 || t.WM != 1 || t.WN < 1 || t.WN*t.split() > 8 || t.BN != 32*t.WN:
		return fmt.Errorf("tile: with BK 0 it has %d×%d results of %d×%d simdgroups, and %d share columns, want 8, 16, "+
			"24 or 32 rows of results, 32 columns for each simdgroup, and 1 to 8 simdgroups in all",
			t.BM, t.BN, t.WM, t.WN*t.split(), t.split())
	}
	return nil
}
