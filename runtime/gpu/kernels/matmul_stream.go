package kernels

import "fmt"

// Streamed tiles are for NVIDIA, for large weights and up to 8 vectors in the order of lanes. Weights are copied to
// threadgroup memory through a ring of stages (Tile.Stream), as in a product of one vector. There they are multiplied
// with all vectors, which simdgroups have in registers. Tile.BM is the number of vectors. Tile.Ahead is the number of
// stages whose copies start before the kernels that make the vectors are done. If Tile.Split is above 1, Split
// threadgroups share the columns of a row, and the last one adds up.

const (
	// mostStreamed is the largest number of vectors of a streamed tile.
	mostStreamed = 8
	// mostColumns is the largest number of columns of a threadgroup for which registers hold these columns of all
	// vectors.
	mostColumns = 7168
	// mostMemory is the threadgroup memory in bytes up to which vectors have memory of their own, after the ring. If
	// they need more, they are copied into the last stages of the ring.
	mostMemory = 224 << 10
	// ringBytes is the size of a ring in bytes that is fastest on an H100 if a threadgroup has more than manyStrips
	// strips. With more copies under way the memory is slower. With fewer strips twice the size is faster.
	ringBytes, manyStrips = 96 << 10, 6
)

// streamed reports whether weights are copied through a ring of stages.
func (t Tile) streamed() bool { return t.Stream != Stream{} }

// ring returns the ring of a tile for a product of planes weights of n rows each.
func (m Matrices) ring(t Tile, planes, n int) streamed {
	return streamed{Vectors: Vectors{Format: m.Format, K: m.K, M: 1}, Stream: t.Stream, planes: planes, rows: []int{n}}
}

// streamTiles returns the streamed tiles that are worth measuring on a machine, for about rows vectors and planes
// weights of n rows each, the default first. They are for weights as large as those that a product of one vector
// streams. A ring leaves no threadgroup memory for the next kernel to start early, and that costs more than smaller
// weights gain.
func (m Matrices) streamTiles(machine Machine, planes, n, rows int) (out []Tile) {
	s := m.ring(Tile{}, planes, n)
	if rows > mostStreamed || n < s.unit() || !s.worth(machine, machine.TransferLeast) {
		return nil
	}
	split := 1
	for split < 8 && (m.K%(split*packedColumns) != 0 || m.K/split > mostColumns) {
		split++
	}
	s.Strip, s.Columns = 16, m.K/split
	few := min(8, max(2, ringBytes/m.streamStage(s)))
	many := min(8, 2*few)
	rings := [][2]int{{few, 1}, {many, 1}, {many, 2}} // the number of stages, and of those that are copied early
	if n*planes*split <= manyStrips*s.Strip*machine.Cores {
		rings = [][2]int{{many, 1}, {many, 2}, {few, 1}}
	}
	for _, simdgroups := range []int{7, 8, 6, 5, 4} {
		for _, ring := range rings {
			t := Tile{BM: mostStreamed, Ahead: ring[1], Split: split, Stream: Stream{Simdgroups: simdgroups, Strip: s.Strip,
				Groups: min(machine.Cores/split, n/s.unit()), Columns: s.Columns, Stages: ring[0]}}
			all, _ := m.streamMemory(t, planes, n)
			if m.checkStreamed(t, planes, n) == nil && all <= machine.TransferMemory {
				out = append(out, t)
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// streamShared returns the sizes in elements of Partial and of Arrivals of a streamed tile for up to tokens vectors and
// n rows of weights. Both are 0 unless threadgroups share columns.
func (t Tile) streamShared(tokens, n int) (partial, arrivals int) {
	if t.split() == 1 {
		return 0, 0
	}
	blocks := ceil(tokens, t.BM)
	return blocks * t.split() * t.BM * n, blocks * t.Stream.Groups
}

// streamStage is ROWS_STAGE of matmul_stream.metal, in bytes.
func (m Matrices) streamStage(s streamed) int {
	between := 4 * s.planes * 8 * m.Bits // the gaps after pieces of rows
	return s.Strip*(s.Columns*m.Bits/8+s.affine()) + between
}

// streamMemory returns ROWS_MEMORY and ROWS_X of matmul_stream.metal, in bytes. Vectors are copied to memory after the
// ring, or, if mostMemory does not suffice for that, as near to the end of the ring as it allows.
func (m Matrices) streamMemory(t Tile, planes, n int) (all, x int) {
	s := m.ring(t, planes, n)
	stage, vectors, sums := m.streamStage(s), t.BM*(2*s.Columns+32), 2*s.Simdgroups*mostStreamed*(s.Strip+4)*4
	ring := ceil(s.Stages*stage, 128) * 128
	x = min(ring, max(ceil(t.Ahead*stage, 128), (mostMemory-sums-vectors)/128)*128)
	return ceil(max(ring, x+vectors), 128)*128 + sums, x
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
	case t.Stream.Columns*t.split() != m.K || t.Stream.Columns > 8*packedColumns*t.Stream.Simdgroups:
		return fmt.Errorf("tile: %d threadgroups with %d of %d columns for %d simdgroups, want all, and %d for each at most",
			t.split(), t.Stream.Columns, m.K, t.Stream.Simdgroups, 8*packedColumns)
	case t.split() > 1 && planes > 1:
		return fmt.Errorf("tile: %d threadgroups share columns of a pair, want one weight", t.split())
	case t.Stream.Resident || t.Ahead < 1 || t.Ahead >= t.Stream.Stages:
		return fmt.Errorf("tile: %d of %d stages are copied early, want fewer than all of a ring, and 1 at least",
			t.Ahead, t.Stream.Stages)
	}
	return m.ring(t, planes, n).check()
}

// launchStreamed returns the dispatch of a streamed tile. The product adds its epilogue to it.
func (m Matrices) launchStreamed(t Tile, planes, n, tokens int) (l Launch) {
	s := m.ring(t, planes, n)
	memory, x := m.streamMemory(t, planes, n)
	room := 1
	if memory <= halfMemory && s.Simdgroups < 12 && s.Columns <= 2*packedColumns*s.Simdgroups {
		room = 2
	}
	l.Defines = append(m.defines(), define("MATVEC_K", m.K, "MATVEC_N0", n, "MATMUL_K", m.K, "MATMUL_BM", t.BM,
		"STREAM_GRID", s.Groups, "STREAM_UNIT", s.unit(), "STREAM_ROOM", room,
		"STREAM_SIMDS", s.Simdgroups, "STREAM_STRIP", s.Strip, "STREAM_COLUMNS", s.Columns, "STREAM_STAGES", s.Stages,
		"STREAM_AHEAD", t.Ahead, "STREAM_PLANES", planes, "STREAM_BYTES", memory, "ROWS_X", x)...)
	if t.split() > 1 {
		l.Defines = append(l.Defines, define("ROWS_SHARES", t.split())...)
	}
	l.Groups, l.Threads = [3]int{s.Groups * t.split(), ceil(tokens, t.BM), 1}, [3]int{t.threads(), 1, 1}
	l.Memory, l.covers = memory, func(groups int) int { return s.covered(groups / t.split()) }
	return l
}
