package kernels

import "fmt"

const (
	// TileRows is the number of rows of weights of a tile, which tensor cores multiply with a few vectors.
	TileRows = 16
	// mostTiled is the largest number of columns of a tile that a simdgroup can have. It reads all of them into
	// registers before it waits for the vectors.
	mostTiled = 4 * 64
	// leastTiled is the number of vectors from which on tiles are worthwhile. The time of tiles hardly depends on the
	// number of vectors.
	leastTiled = 5
	// vectorsTiled is the largest number of vectors of a threadgroup, and mostVectorsTiled that of a product. For more,
	// tiles that read a weight once for all vectors are faster.
	vectorsTiled, mostVectorsTiled = 8, 64
	// tiledBytes is the size in bytes, of the codes of all weights of a product, up to which tiles are worthwhile.
	// Larger products are faster with more threadgroups that read fewer rows each.
	tiledBytes = 1 << 20
)

// byTiles returns the variants with tiles that are worth measuring on a machine; there may be none.
func (v MatVecMany) byTiles(m Machine) (out []Tuning) {
	bytes := 0
	for _, n := range v.N {
		bytes += n * v.K * v.Bits / 8
	}
	if v.M < leastTiled || m.Target != CUDA && !m.Lanes || bytes > tiledBytes {
		return nil
	}
	for _, simds := range []int{16, 8} {
		if t := (Tuning{Tiles: simds}); v.checkTiles(t) == nil {
			out = append(out, t)
		}
	}
	return out
}

// checkTiles returns an error if no kernel with tiles can compute the product.
func (v MatVecMany) checkTiles(t Tuning) error {
	switch {
	case v.M < 2 || v.M > mostVectorsTiled || v.Conv != nil || v.Activated.Rows > 0:
		return fmt.Errorf("tuning: tiles of %d vectors, want 2 to %d, and only their products", v.M, mostVectorsTiled)
	case v.Bits != 4 && v.Bits != 8 || v.Group != 64 || v.Floats:
		return fmt.Errorf("tuning: tiles of %s, want codes of 4 or 8 bits in groups of 64", v.Format)
	case t.Tiles < 1 || t.Tiles > 16 || v.K%64 != 0 || ceil(v.K/64, t.Tiles)*64 > mostTiled:
		return fmt.Errorf("tuning: tiles of %d columns for %d simdgroups, want 1 to 16 with up to %d columns each, in "+
			"groups of 64", v.K, t.Tiles, mostTiled)
	}
	return nil
}

// launchTiles returns the dispatch with tiles.
func (v MatVecMany) launchTiles(t Tuning) (Launch, error) {
	err := v.check(v.K)
	if err == nil {
		err = v.checkTiles(t)
	}
	if err != nil {
		return Launch{}, fmt.Errorf("tiles_many %v×%d: %w", v.N, v.K, err)
	}
	of := v.Vectors
	of.M = vectorsTiled // whatever the number of vectors, the text is the same
	l := Launch{
		File: "matvec_tiles", Kernel: "tiles_many",
		Defines: append(of.defines(), define("TILES_SIMDS", t.Tiles)...),
		Groups:  [3]int{0, ceil(v.M, vectorsTiled), 1}, Threads: [3]int{t.Tiles * 32, 1, 1},
	}
	for i, n := range v.N {
		l.Groups[0] += ceil(n, TileRows)
		l.Defines = append(l.Defines, define(fmt.Sprintf("MATVEC_N%d", i), n)...)
	}
	l.Case = func(s Sizes) *Case { return v.newCase(l, TileRows, s) }
	return l, nil
}
