package kernels

import "fmt"

// ManyExperts is a mixture of experts for many tokens: token-expert pairs are sorted by expert, and an expert is
// multiplied with all of its tokens. Five dispatches: Prepare (of Hidden columns, with the norm), LaunchSort, LaunchUp,
// LaunchDown, LaunchCombine.
type ManyExperts struct {
	Format
	Count, Top    int
	Hidden, Inner int
	Activation    Activation
	// Exact computes in fp32 throughout.
	Exact bool
	// Residual says that extra is added to the result.
	Residual bool
}

func (e ManyExperts) up() Matrices   { return Matrices{Format: e.Format, K: e.Hidden, Exact: e.Exact} }
func (e ManyExperts) down() Matrices { return Matrices{Format: e.Format, K: e.Inner, Exact: e.Exact} }

// Tiles are the tiles worth measuring for chunks of tokens tokens, the default first. Both products take tiles of equal
// BM.
func (e ManyExperts) Tiles(target Target, tokens int) []Tile {
	return e.up().Tiles(target, tokens*e.Top/e.Count)
}

// MaxTiles is the number of tiles of up to tokens tokens.
func (e ManyExperts) MaxTiles(t Tile, tokens int) int {
	pairs := tokens * e.Top
	return min(pairs, e.Count+pairs/t.BM)
}

// LaunchSort is the dispatch for up to tokens tokens. Buffers: experts i32 [T, Top], order i32 [T·Top], tiles i32
// [MaxTiles, 4], step.
func (e ManyExperts) LaunchSort(t Tile, tokens int) (Launch, error) {
	if e.Count < 1 || e.Count > 512 || e.Top < 1 || tokens*e.Top > 1<<16-1 {
		return Launch{}, fmt.Errorf("experts_sort: %d tokens with %d of %d experts, want at most 512 experts and %d pairs", tokens, e.Top, e.Count, 1<<16-1)
	}
	simds := 32
	for simds*e.Count*2 > 28<<10 {
		simds /= 2
	}
	l := Launch{
		File: "experts_sort", Kernel: "experts_sort",
		Defines: define("SORT_TOP", e.Top, "SORT_EXPERTS", e.Count, "SORT_SIMDS", simds, "SORT_ROWS", t.BM, "SORT_TILES", e.MaxTiles(t, tokens)),
		Groups:  [3]int{1, 1, 1}, Threads: [3]int{simds * 32, 1, 1},
	}
	l.Trial = func() Trial { return e.trialSort(l, t, tokens) }
	return l, nil
}

// LaunchUp is the dispatch for up to tokens tokens. Buffers: w, scales, biases of gate and then of up (w again where there
// are none), order, tiles, x [T, Hidden] as Prepare leaves it, h [T·Top, Inner] in bf16, or f32 where Exact.
func (e ManyExperts) LaunchUp(t Tile, tokens int) (Launch, error) {
	l, err := e.launch(e.up(), t, "experts_matmul_up", 2, e.Inner, tokens)
	l.Trial = func() Trial { return e.trialUp(l, t) }
	return l, err
}

// LaunchDown is the dispatch for up to tokens tokens. Buffers: w, scales, biases, order, tiles, h, y f32 [T, Top, Hidden].
func (e ManyExperts) LaunchDown(t Tile, tokens int) (Launch, error) {
	l, err := e.launch(e.down(), t, "experts_matmul_down", 1, e.Hidden, tokens)
	l.Trial = func() Trial { return e.trialDown(l, t) }
	return l, err
}

func (e ManyExperts) launch(m Matrices, t Tile, kernel string, planes, n, tokens int) (Launch, error) {
	if err := m.checkTile(t); err != nil {
		return Launch{}, fmt.Errorf("%s %d×%d×%d: %w", kernel, e.Count, n, m.K, err)
	}
	return Launch{
		File: "experts_matmul", Kernel: kernel,
		Defines: append(m.tileDefines(t), define("EXPERTS_TOP", e.Top, "EXPERTS_N", n, "EXPERTS_ACTIVATION", int(e.Activation))...),
		Groups:  [3]int{ceil(n*planes, t.BN), e.MaxTiles(t, tokens), 1}, Threads: [3]int{t.WM * t.WN * 32, 1, 1},
	}, nil
}

// LaunchCombine is the dispatch for up to tokens tokens. Buffers: y of LaunchDown, scores f32 [T, Top], extra f32 [T, Hidden]
// (y again where there is none), the result f32 [T, Hidden], step.
func (e ManyExperts) LaunchCombine(tokens int) (Launch, error) {
	if e.Hidden%4 != 0 {
		return Launch{}, fmt.Errorf("experts_combine: %d columns, want a multiple of 4", e.Hidden)
	}
	threads := min(128, ceil(e.Hidden/4, 32)*32)
	return Launch{
		File: "experts_sort", Kernel: "experts_combine", Trial: e.trialCombine,
		Defines: define("SORT_TOP", e.Top, "COMBINE_N", e.Hidden, "COMBINE_RESIDUAL", e.Residual, "COMBINE_THREADS", threads),
		Groups:  [3]int{ceil(e.Hidden/4, threads), tokens, 1}, Threads: [3]int{threads, 1, 1},
	}, nil
}

// TwinSort computes what LaunchSort does for the pairs: their order, and tiles of BM rows.
func (e ManyExperts) TwinSort(t Tile, experts []int32) (order []int32, tiles [][4]int32) {
	for expert := range int32(e.Count) {
		first := len(order)
		for pair, at := range experts {
			if at == expert {
				order = append(order, int32(pair))
			}
		}
		for ; first < len(order); first += t.BM {
			tiles = append(tiles, [4]int32{expert, int32(first), int32(min(first+t.BM, len(order)))})
		}
	}
	return order, tiles
}
