package kernels

import "fmt"

// Streamed tiles are for NVIDIA, for large weights and up to 8 vectors in the order of lanes: weights are copied to
// threadgroup memory through a ring of stages (Tile.Stream), as those of a product of one vector, and multiplied with
// all vectors there. Tile.BM is the number of vectors, Tile.Ahead the number of stages whose copies start before the
// kernels that make the vectors are done.

const (
	// mostStreamed is the largest number of vectors of a streamed tile. Twice as many gain nothing on an H200.
	mostStreamed = 8
	// mostHeld is the size in bytes of a tile's vectors up to which a ring has room beside them. To copy the columns of
	// larger vectors with every stage is slower than direct tiles are.
	mostHeld = 140 << 10
	// wholeStage is the size in bytes of a stage's codes up to which it has whole rows, which are copied at once;
	// partStage is that of a stage of parts of rows, which are copied one by one.
	wholeStage, partStage = 72 << 10, 48 << 10
)

// streamed reports whether weights are copied through a ring of stages.
func (t Tile) streamed() bool { return t.Stream != Stream{} }

// ring returns the ring of a tile for a product of planes weights of n rows each.
func (m Matrices) ring(t Tile, planes, n int) streamed {
	return streamed{Vectors: Vectors{Format: m.Format, K: m.K, M: 1}, Stream: t.Stream, planes: planes, rows: []int{n}}
}

// streamTiles are the streamed tiles worth measuring on a machine for about rows vectors and planes weights of n rows
// each, the default first. They are for weights as large as those that a product of one vector streams: beside their
// rings there is no room for the next kernel, which costs more than smaller weights gain.
func (m Matrices) streamTiles(machine Machine, planes, n, rows int) (out []Tile) {
	s, t := m.ring(Tile{}, planes, n), Tile{BM: 2, Ahead: 1}
	for t.BM < rows {
		t.BM *= 2
	}
	if rows > mostStreamed || t.BM*m.K*2 > mostHeld || n < s.unit() || !s.worth(machine, machine.TransferLeast) {
		return nil
	}
	for _, simdgroups := range []int{8, 7, 14, 16, 6, 12, 4} {
		t.Stream = Stream{Groups: min(machine.Cores, n/s.unit()), Simdgroups: simdgroups, Strip: 16,
			Columns: m.streamColumns(simdgroups)}
		if len(out) < 2 && m.fillRing(&t, planes, n, machine.TransferMemory) {
			out = append(out, t)
		}
	}
	return out
}

// streamColumns returns the number of columns of a stage, which the simdgroups divide evenly: all, or the largest
// number that is not too large for a stage; 0 where there is none.
func (m Matrices) streamColumns(simdgroups int) (columns int) {
	each, bytes := packedColumns*simdgroups, func(columns int) int { return 16 * columns * m.Bits / 8 }
	if m.K%each == 0 && bytes(m.K) <= wholeStage {
		return m.K
	}
	for n := each; n < m.K && bytes(n) <= partStage; n += each {
		if m.K%n == 0 && n%(2*packedColumns) == 0 {
			columns = n
		}
	}
	return columns
}

// fillRing gives a tile as many stages, up to 8, as at most most bytes of memory hold. It returns false where fewer
// than two do, or there is no such tile.
func (m Matrices) fillRing(t *Tile, planes, n, most int) bool {
	for t.Stream.Stages = 8; t.Stream.Stages > t.Ahead; t.Stream.Stages-- {
		if m.checkStreamed(*t, planes, n) == nil && m.streamMemory(*t, planes, n) <= most {
			return true
		}
	}
	return false
}

// streamMemory is ROWS_MEMORY of matmul_stream.metal, in bytes.
func (m Matrices) streamMemory(t Tile, planes, n int) int {
	s := m.ring(t, planes, n)
	sums := 2 * s.Simdgroups * mostStreamed * (s.Strip + 4) * 4
	return s.Stages*s.stage() + ceil(s.shelves(), 128)*128 + t.BM*(m.K*2+64) + sums
}

// checkStreamed returns an error where a product of planes weights of n rows each cannot be divided into a streamed
// tile.
func (m Matrices) checkStreamed(t Tile, planes, n int) error {
	switch {
	case m.Packed != InLanes || m.Exact || m.F32 || m.Floats || m.Group != 64 || m.Bits > 8:
		return fmt.Errorf("tile: streamed weights must be codes of 4 or 8 bits in groups of 64 with scales in bf16, and " +
			"vectors in the order of lanes (Packed)")
	case t.BM < 1 || t.BM > mostStreamed:
		return fmt.Errorf("tile: %d vectors beside streamed weights, want 1 to %d", t.BM, mostStreamed)
	case t.Stream.Resident || t.Ahead < 1 || t.Ahead >= t.Stream.Stages:
		return fmt.Errorf("tile: %d of %d stages are copied early, want fewer than all of a ring, and 1 at least",
			t.Ahead, t.Stream.Stages)
	}
	return m.ring(t, planes, n).check()
}

// launchStreamed is the dispatch of a streamed tile, without what a product adds to it.
func (m Matrices) launchStreamed(t Tile, planes, n, tokens int) (l Launch) {
	s, memory := m.ring(t, planes, n), m.streamMemory(t, planes, n)
	room := 1
	if memory <= halfMemory && s.Simdgroups < 12 {
		room = 2
	}
	l.Defines = append(m.defines(), define("MATVEC_K", m.K, "MATVEC_N0", n, "MATMUL_K", m.K, "MATMUL_BM", t.BM,
		"MATMUL_WN", 1, "DIRECT_BLOCKS", 1, "STREAM_GRID", s.Groups, "STREAM_UNIT", s.unit(), "STREAM_ROOM", room,
		"STREAM_SIMDS", s.Simdgroups, "STREAM_STRIP", s.Strip, "STREAM_COLUMNS", s.Columns, "STREAM_STAGES", s.Stages,
		"STREAM_AHEAD", t.Ahead, "STREAM_APART", s.Apart, "STREAM_PLANES", planes, "STREAM_BYTES", memory)...)
	l.Groups, l.Threads, l.Memory = [3]int{s.Groups, ceil(tokens, t.BM), 1}, [3]int{t.threads(), 1, 1}, memory
	l.covers = s.covered
	return l
}
