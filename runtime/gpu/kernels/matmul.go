package kernels

import (
	"fmt"
	"math"
)

// Tile is how a tiled product is divided: a threadgroup of WM·WN simdgroups makes BM × BN results, of BK columns that
// stand in threadgroup memory at a time. Where BK is 0 none do: every simdgroup reads the weights that it multiplies,
// and there are Split simdgroups in the place of one, which share its columns; 0 is 1. Stages, Each and Ring are for
// packed vectors only, Stream is for streamed weights, and Ahead is for both: see matmul_packed.go and matmul_stream.go.
type Tile struct {
	BM, BN, BK, WM, WN, Split, Stages, Ahead, Each, Ring int
	Stream                                               Stream
}

// packed reports whether the vectors are packed.
func (t Tile) packed() bool { return t.Stages > 0 }

// direct reports whether nothing stands in threadgroup memory.
func (t Tile) direct() bool { return t.BK == 0 && !t.packed() && !t.streamed() }

// split is the number of simdgroups that share columns.
func (t Tile) split() int { return max(t.Split, 1) }

// dimensions are those of the grid along which there are blocks of columns of the result, and blocks of vectors.
// Without weights in threadgroup memory, threadgroups that read the same ones run one behind the other, so that they
// are in a cache.
func (t Tile) dimensions() (columns, vectors int) {
	if t.direct() || t.packed() {
		return 1, 0
	}
	return 0, 1
}

func (t Tile) threads() int {
	if t.streamed() {
		return (t.Stream.Simdgroups + 1) * 32
	}
	return t.WM * t.WN * t.split() * 32
}

// Near is true: tiles are few, and differ in several respects at once.
func (t Tile) Near(Tile) bool { return true }

// Matrices is what tiled products of many vectors with stored weights have in common.
type Matrices struct {
	Format
	// K is the number of columns.
	K int
	// Exact computes in fp32 throughout and takes x in f32. Otherwise x is bf16 and the weight is rounded to bf16,
	// with sums in fp32.
	Exact bool
	// Half says that results are written in bf16, not in f32; Lanes that they are in the order InLanes besides.
	Half, Lanes bool
	// Packed is how Prepare leaves vectors: 0 as rows, for tiles that stand in threadgroup memory; InLanes as rows in
	// the order of lanes, for tiles of BK 0; 4, 8 or 16 with so many eights of vectors packed together.
	Packed int
	// unrounded says that Reference does not round weights to bf16. Streamed tiles do not round them either.
	unrounded bool
}

// MatMul is y = x·Wᵀ with x [T, K] and W [N, K].
type MatMul struct {
	Matrices
	N        int
	Epilogue Epilogue
	Cap      float32
}

// MatMulGLU is y = activation(x·Gateᵀ) ⊙ x·Upᵀ.
type MatMulGLU struct {
	Matrices
	N          int
	Activation Activation
}

// Tiles are the tiles worth measuring on a machine, the default first, for products with about rows vectors.
func (m MatMul) Tiles(machine Machine, rows int) []Tile { return m.tiles(machine, 1, m.N, rows) }

// Tiles is MatMul.Tiles of a pair.
func (m MatMulGLU) Tiles(machine Machine, rows int) []Tile { return m.tiles(machine, 2, m.N, rows) }

// tiles is Tiles of products with planes weights of n rows each.
func (m Matrices) tiles(machine Machine, planes, n, rows int) []Tile {
	switch m.Packed {
	case 0:
		return m.stagedTiles(machine.Target, rows)
	case InLanes:
		// Direct tiles are not measured beside streamed ones: see RATIONALE, "Why do products of 2 to 8 rows stream large
		// weights, and not small ones?"
		if streamed := m.streamTiles(machine, planes, n, rows); len(streamed) > 0 {
			return streamed
		}
		return m.directTiles(machine, planes*n, rows)
	}
	return m.packedTiles(machine, planes, n, rows)
}

// stagedTiles are those of which columns stand in threadgroup memory.
func (m Matrices) stagedTiles(target Target, rows int) []Tile {
	switch {
	case m.Exact && rows <= 32:
		return tilesOf([][5]int{{32, 64, 16, 2, 2}, {32, 128, 16, 2, 2}})
	case m.Exact:
		return tilesOf([][5]int{{64, 64, 16, 2, 2}, {128, 64, 16, 4, 2}, {32, 64, 32, 2, 2}})
	case target != CUDA && rows <= 32:
		return tilesOf([][5]int{{32, 64, 32, 2, 2}, {16, 64, 32, 1, 2}, {32, 128, 32, 1, 4},
			{16, 128, 32, 1, 4}, {64, 64, 32, 2, 2}})
	case target != CUDA:
		return tilesOf([][5]int{{64, 64, 32, 2, 2}, {64, 128, 32, 2, 2}, {32, 64, 32, 2, 2}, {64, 32, 32, 4, 1}})
	case rows <= 8:
		return tilesOf([][5]int{{16, 64, 64, 1, 2}, {32, 64, 64, 1, 2}, {16, 128, 64, 1, 4}, {16, 64, 64, 1, 1}})
	case rows <= 48:
		return tilesOf([][5]int{{32, 64, 64, 1, 2}, {16, 64, 64, 1, 2}, {32, 64, 64, 2, 2}, {32, 128, 32, 1, 4}})
	case rows <= 96:
		return tilesOf([][5]int{{64, 64, 64, 2, 2}, {64, 128, 32, 2, 2}, {128, 128, 32, 2, 2}})
	}
	return tilesOf([][5]int{{128, 128, 32, 2, 2}, {128, 128, 32, 2, 4}, {64, 128, 32, 2, 2}, {64, 128, 32, 1, 4},
		{128, 64, 32, 2, 2}, {64, 64, 64, 2, 2}})
}

// tilesOf are tiles of BM, BN, BK, WM and WN.
func tilesOf(list [][5]int) []Tile {
	out := make([]Tile, len(list))
	for i, t := range list {
		out[i] = Tile{BM: t[0], BN: t[1], BK: t[2], WM: t[3], WN: t[4]}
	}
	return out
}

// Shared returns the sizes in elements of Partial, f32, in which threadgroups leave sums for each other, and of
// Arrivals, u32, which count these threadgroups. They suffice for each of the tiles with up to tokens vectors, and are
// 0 if no tile needs them.
func (m MatMul) Shared(tiles []Tile, tokens int) (partial, arrivals int) {
	return m.shared(tiles, 1, m.N, tokens)
}

// Shared is MatMul.Shared for a gated pair of weights.
func (m MatMulGLU) Shared(tiles []Tile, tokens int) (partial, arrivals int) {
	return m.shared(tiles, 2, m.N, tokens)
}

// shared is Shared for planes weights of n rows each.
func (m Matrices) shared(tiles []Tile, planes, n, tokens int) (partial, arrivals int) {
	for _, t := range tiles {
		some, count := 0, 0
		switch {
		case t.packed():
			some, count = t.packedShared(ceil(tokens, t.BM), m.packedGroups(t, planes*n), planes*n)
		case t.streamed():
			some, count = t.streamShared(tokens, n)
		}
		partial, arrivals = max(partial, some), max(arrivals, count)
	}
	return partial, arrivals
}

// Launch is the dispatch for up to tokens vectors. It takes MatMulArguments: X [T, K] in bf16, or f32 where Exact, as
// Prepare makes it, Extra f32 [T, N] or [N], and Y [T, N] in f32, or bf16 with Half. If threadgroups leave sums for
// each other, it also takes Partial, which no other kernel reads, and Arrivals, which are zeros before and after;
// Shared returns their sizes.
func (m MatMul) Launch(t Tile, tokens int) (Launch, error) {
	l, err := m.launch(t, "", 1, m.N, tokens, define("MATMUL_EPILOGUE", int(m.Epilogue), "MATMUL_CAP", m.Cap))
	l.Case = func(s Sizes) *Case { return m.newCase(l, t, s) }
	return l, err
}

// Launch is the dispatch for up to tokens vectors. It takes MatMulGLUArguments: gate W0 and up W1, X [T, K] in bf16, or
// f32 where Exact, Y [T, N]. For packed vectors it takes MatMulPackedGLUArguments, with Partial and Arrivals as in
// MatMul.Launch.
func (m MatMulGLU) Launch(t Tile, tokens int) (Launch, error) {
	l, err := m.launch(t, "_glu", 2, m.N, tokens, define("MATMUL_ACTIVATION", int(m.Activation)))
	l.Case = func(s Sizes) *Case { return m.newCase(l, t, s) }
	return l, err
}

// launch is the dispatch of a product of planes weights of n rows each, whose kernel's name ends with what it does.
func (m Matrices) launch(t Tile, does string, planes, n, tokens int, more []Define) (Launch, error) {
	file, check := "matmul", m.checkTile
	switch {
	case t.streamed():
		file, check = "matmul_stream", func(t Tile) error { return m.checkStreamed(t, planes, n) }
	case t.packed() || m.Packed > InLanes:
		file, check = "matmul_packed", func(t Tile) error { return m.checkPacked(t, planes) }
	case t.direct():
		file, check = "matmul_direct", m.checkDirect
	}
	if err := check(t); err != nil {
		return Launch{}, fmt.Errorf("%s%s %d×%d: %w", file, does, n, m.K, err)
	}
	out := "float"
	if m.Half {
		out = "bfloat"
	}
	if m.Lanes { // defined only then, so that the keys of other kernels do not change
		if !m.Half || n%packedColumns != 0 {
			return Launch{}, fmt.Errorf("%s%s %d×%d: results in the order of lanes: want bf16, and a multiple of %d columns",
				file, does, n, m.K, packedColumns)
		}
		more = append(more, define("MATMUL_LANES", 1)...)
	}
	l := m.divided(t, planes, n, tokens)
	l.File, l.Kernel = file, file+does
	l.Defines = append(append(l.Defines, define("MATMUL_N", n, "MATMUL_OUT", out)...), more...)
	return l, nil
}

// divided is the grid of a product, and the definitions of its tile.
func (m Matrices) divided(t Tile, planes, n, tokens int) Launch {
	if t.streamed() {
		return m.launchStreamed(t, planes, n, tokens)
	}
	groups := [3]int{1, 1, 1}
	columns, vectors := t.dimensions()
	groups[columns], groups[vectors] = ceil(n*planes, t.BN), ceil(tokens, t.BM)
	if t.packed() {
		groups[columns] = m.packedGroups(t, n*planes)
	}
	return Launch{Defines: m.tileDefines(t, planes), Groups: groups, Threads: [3]int{t.threads(), 1, 1},
		Memory: m.transferMemory(t, planes)}
}

// tileDefines are the definitions of a tile of a product of planes weights.
func (m Matrices) tileDefines(t Tile, planes int) []Define {
	if t.packed() {
		return m.packedDefines(t, planes)
	}
	out := append(m.defines(), define("MATMUL_K", m.K, "MATMUL_BM", t.BM, "MATMUL_WN", t.WN)...)
	if t.direct() {
		return append(out, define("DIRECT_BLOCKS", m.blocksAhead(t), "DIRECT_SPLIT", t.split())...)
	}
	return append(out, define("MATMUL_EXACT", m.Exact, "MATMUL_BN", t.BN, "MATMUL_BK", t.BK, "MATMUL_WM", t.WM)...)
}

// Memory is the threadgroup memory in bytes that a tile takes; Metal has 32768, a CUDA kernel 49152.
func (m Matrices) Memory(t Tile) int {
	switch {
	case t.packed():
		return t.Stages * 16 // the counters of copies and arrivals; Launch.Memory has the stages
	case t.direct():
		return m.directMemory(t)
	}
	size, pad := 2, 8
	if m.Exact {
		size, pad = 4, 4
	}
	return 2 * (t.BM + t.BN) * (t.BK + pad) * size
}

func (m Matrices) checkTile(t Tile) error {
	if err := m.check(m.K); err != nil {
		return err
	}
	switch {
	case t.WM < 1 || t.WN < 1 || t.WM*t.WN > 32:
		return fmt.Errorf("tile: %d×%d simdgroups, want 1 to 32", t.WM, t.WN)
	case t.BM < 16 || t.BM%(16*t.WM) != 0 || t.BN < 32 || t.BN%(32*t.WN) != 0:
		return fmt.Errorf("tile: %d×%d results do not divide among %d×%d simdgroups by 16 and 32",
			t.BM, t.BN, t.WM, t.WN)
	case t.BK < 16 || t.BK%16 != 0:
		return fmt.Errorf("tile: %d columns, want a multiple of 16", t.BK)
	case m.Memory(t) > cudaMemory:
		return fmt.Errorf("tile: %d bytes of threadgroup memory, there are %d", m.Memory(t), cudaMemory)
	}
	return nil
}

// Reference computes what the kernel does for len(y)/N vectors, x being what the kernel is given, as numbers.
func (m MatMul) Reference(w *Weight, x, extra, y []float32) {
	m.products(w, x, func(t, n int, sum float64) {
		switch i := t*m.N + n; m.Epilogue {
		case AddMatrix:
			sum += float64(extra[i])
		case AddVector:
			sum += float64(extra[n])
		case Softcap:
			sum = float64(m.Cap) * math.Tanh(sum/float64(m.Cap))
		}
		y[m.at(t*m.N+n)] = float32(sum)
	})
}

// at is the place of result number i.
func (m Matrices) at(i int) int {
	if m.Lanes {
		return laneOrder(i)
	}
	return i
}

// Reference computes what the kernel does for len(y)/N vectors, x being what the kernel is given, as numbers.
func (m MatMulGLU) Reference(gate, up *Weight, x, y []float32) {
	g := make([]float64, len(y))
	m.products(gate, x, func(t, n int, sum float64) { g[t*m.N+n] = m.Activation.of(sum) })
	m.products(up, x, func(t, n int, sum float64) { y[m.at(t*m.N+n)] = float32(g[t*m.N+n] * sum) })
}

// products calls f with the product of each vector of x with each row of w, as the tiles have it.
func (m Matrices) products(w *Weight, x []float32, f func(t, n int, sum float64)) {
	row := make([]float64, m.K)
	for n := range w.N {
		for k := range row {
			if row[k] = w.At(n, k); !m.Exact && !m.unrounded {
				row[k] = float64(roundBF16(float32(row[k])))
			}
		}
		for t := range len(x) / m.K {
			sum := 0.0
			for k, e := range x[t*m.K : (t+1)*m.K] {
				sum += float64(e) * row[k]
			}
			f(t, n, sum)
		}
	}
}

// roundBF16 rounds to the nearest bf16, ties to even.
func roundBF16(f float32) float32 {
	u := math.Float32bits(f)
	return math.Float32frombits((u + 0x7fff + (u >> 16 & 1)) &^ 0xffff)
}
