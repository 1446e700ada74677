package kernels

import "fmt"

// Tiles of BK 0 are for NVIDIA, and for up to some hundred vectors: a simdgroup multiplies 32 rows of a weight, which
// its lanes read where they need them, with all vectors of the tile. Most of what is read then is the weight, and it
// goes from device memory to the registers that multiply it. Where a product has too few rows to keep a device busy,
// Split simdgroups share their columns.

// directRows is the largest number of vectors for which such tiles are worth measuring.
const directRows = 128

// directTiles are the tiles of BK 0 worth measuring on a target for about rows vectors.
func (m Matrices) directTiles(target Target, rows int) (out []Tile) {
	if target != CUDA || rows > directRows {
		return nil
	}
	for _, t := range []Tile{{BN: 128, Split: 2}, {BN: 128}, {BN: 64, Split: 4}, {BN: 256}, {BN: 32, Split: 8},
		{BN: 64, Split: 2}, {BN: 32, Split: 4}} {
		t.BM, t.WM, t.WN = min(ceil(rows, 16)*16, 32), 1, t.BN/32
		if m.checkDirect(t) == nil {
			out = append(out, t)
		}
	}
	return out
}

// directAhead is the least number of columns of which four blocks, and not two, are read ahead, as measured on an H100.
const directAhead = 1024

// blocksAhead is the number of blocks of 64 columns that a simdgroup reads ahead.
func (m Matrices) blocksAhead(t Tile) int {
	if part := m.K / t.split(); part >= directAhead && part%256 == 0 {
		return 4
	}
	return 2
}

// directMemory is the threadgroup memory in bytes of a tile of BK 0: f32 sums of all simdgroups where some share
// columns.
func (m Matrices) directMemory(t Tile) int {
	if t.split() == 1 {
		return 4
	}
	return t.threads() * t.BM * 4
}

// checkDirect reports whether a product can be divided into a tile of BK 0.
func (m Matrices) checkDirect(t Tile) error {
	switch part := m.K / t.split(); {
	case m.Exact || m.Bits != 4 || m.Group != 64 || m.F32:
		return fmt.Errorf("tile: no columns stand in threadgroup memory, want codes of 4 bits in groups of 64 with scales in bf16, rounded to bf16")
	case m.K%t.split() != 0 || part%128 != 0:
		return fmt.Errorf("tile: %d simdgroups share %d columns that do not stand in threadgroup memory, want a multiple of 128 for each", t.split(), m.K)
	case t.BM < 8 || t.BM > 32 || t.BM%8 != 0 || t.WM != 1 || t.WN < 1 || t.WN*t.split() > 8 || t.BN != 32*t.WN:
		return fmt.Errorf("tile: %d×%d results of %d×%d simdgroups, %d of which share columns, none in threadgroup memory, want 8 to 32 × 32 for each of 1 to 8 in all",
			t.BM, t.BN, t.WM, t.WN*t.split(), t.split())
	}
	return nil
}
