package kernels

import (
	"fmt"
	"math/bits"
)

// ManyExperts is a mixture of experts for many tokens: token-expert pairs are sorted by expert, and an expert's weights
// are multiplied with all of its tokens at once. There are five dispatches: Prepare (for Hidden columns, with the
// norm), LaunchSort, LaunchUp, LaunchDown, LaunchCombine.
type ManyExperts struct {
	Format
	Count, Top    int
	Hidden, Inner int
	Activation    Activation
	// Exact keeps all inputs of products in fp32.
	Exact bool
	// Residual says that extra is added to the result.
	Residual bool
	// Shared says that every token also has a shared expert, which stands before the chosen ones. It has weights of its
	// own with the same Inner and Format. Its score is the sigmoid of a number.
	Shared bool
	// Lanes says that X and H are in the order InLanes, for tiles of BK 0. Other tiles take rows.
	Lanes bool
}

// Parts returns the number of experts of a token, including a shared one.
func (e ManyExperts) Parts() int { return e.Top + btoi(e.Shared) }

func (e ManyExperts) up() Matrices   { return e.matrices(e.Hidden) }
func (e ManyExperts) down() Matrices { return e.matrices(e.Inner) }

func (e ManyExperts) matrices(k int) Matrices {
	return Matrices{Format: e.Format, K: k, Exact: e.Exact, Packed: btoi(e.Lanes) * InLanes}
}

// fewOfExpert is the number of tokens of an expert, on average, up to which tiles have 8 tokens. With more tokens many
// experts have several such tiles, and their weights are read several times.
const fewOfExpert = 4

// Tiles returns the tiles worth measuring for chunks of tokens tokens, the default first. Both products have tiles with
// the same BM. With Lanes they are for experts of few tokens each, and have BK 0: a simdgroup multiplies 32
// rows of a weight, which its lanes read directly, with all tokens of the tile. There may be none.
func (e ManyExperts) Tiles(machine Machine, tokens int) []Tile {
	rows := tokens * e.Top / e.Count
	if !e.Lanes {
		return e.up().stagedTiles(machine.Target, rows)
	}
	direct := Tile{BM: 32, BN: 128, WM: 1, WN: 4}
	if rows <= fewOfExpert {
		direct.BM = 8
	}
	if !machine.lanes() || rows > 96 || e.checkDirect(direct) != nil {
		return nil
	}
	narrow := direct
	narrow.BN, narrow.WN = 64, 2
	return []Tile{direct, narrow}
}

// checkDirect returns an error where one of the products cannot be divided into tiles with BK 0.
func (e ManyExperts) checkDirect(t Tile) error {
	switch {
	case !e.Lanes:
		return fmt.Errorf("tile: with BK 0 vectors must be in the order of lanes (Lanes)")
	case e.Exact || e.Bits != 4 || e.Group != 64 || e.F32:
		return fmt.Errorf("tile: with BK 0 weights must be codes of 4 bits in groups of 64 with scales in bf16, and " +
			"are rounded to bf16")
	case e.Hidden%256 != 0 || e.Inner%256 != 0:
		return fmt.Errorf("tile: with BK 0 the products have %d and %d columns, want multiples of 256", e.Hidden,
			e.Inner)
	case t.BM < 8 || t.BM > 32 || t.BM%8 != 0 || t.WM != 1 || t.WN < 1 || t.split() != 1 || t.WN > 8 || t.BN != 32*t.WN:
		return fmt.Errorf("tile: with BK 0 it has %d×%d results of %d×%d simdgroups, want 8, 16, 24 or 32 rows of "+
			"results and 32 columns for each of 1 to 8 simdgroups", t.BM, t.BN, t.WM, t.WN)
	}
	return nil
}

// MaxTiles returns the largest number of tiles for up to tokens tokens.
func (e ManyExperts) MaxTiles(t Tile, tokens int) int {
	pairs := tokens * e.Top
	return min(pairs, e.Count+pairs/t.BM) + btoi(e.Shared)*ceil(tokens, t.BM)
}

// SortedTiles returns the number of tiles that LaunchSort writes, including those without pairs: MaxTiles rounded up to
// a power of two, so that chunks of similar length share a kernel.
func (e ManyExperts) SortedTiles(t Tile, tokens int) int {
	return 1 << bits.Len(uint(e.MaxTiles(t, tokens)-1))
}

// LaunchSort is the dispatch for up to tokens tokens. It takes ExpertsSortArguments: Experts i32 [T, Top], Order i32
// [T·Parts], Tiles i32 [SortedTiles, 4].
func (e ManyExperts) LaunchSort(t Tile, tokens int) (Launch, error) {
	if e.Count < 1 || e.Count > 512 || e.Top < 1 || tokens*e.Parts() > 1<<16-1 {
		return Launch{}, fmt.Errorf("experts_sort: %d tokens with %d of %d experts, want at most 512 experts "+
			"and %d of them for all tokens, a shared one included", tokens, e.Top, e.Count, 1<<16-1)
	}
	// A thread has a pair and an expert, or several pairs. With fewer simdgroups there are fewer counts to add up.
	simds := 32
	for simds*e.Count*2 > 28<<10 || simds/2*32 >= max(tokens*e.Top, e.Count) {
		simds /= 2
	}
	l := Launch{
		File: "experts_sort", Kernel: "experts_sort",
		Defines: define("SORT_TOP", e.Top, "SORT_SHARED", e.Shared, "SORT_EXPERTS", e.Count, "SORT_SIMDS", simds,
			"SORT_ROWS", t.BM, "SORT_TILES", e.SortedTiles(t, tokens)),
		Groups: [3]int{1, 1, 1}, Threads: [3]int{simds * 32, 1, 1},
	}
	l.Case = func(s Sizes) *Case { return e.sortCase(t, tokens, s) }
	return l, nil
}

// LaunchUp is the dispatch for up to tokens tokens. It takes ExpertsMatMulUpArguments: gate W0 and up W1, V0 and V1 of
// the shared expert, X [T, Hidden] as Prepare leaves it, H [T·Parts, Inner] in bf16, or f32 where Exact.
func (e ManyExperts) LaunchUp(t Tile, tokens int) (Launch, error) {
	l, err := e.launch(e.up(), t, "up", 2, e.Inner, tokens)
	l.Case = func(s Sizes) *Case { return e.upCase(l, t, s) }
	return l, err
}

// LaunchDown is the dispatch for up to tokens tokens. It takes ExpertsMatMulDownArguments: W, V of the
// shared expert, Y f32 [T, Parts, Hidden].
func (e ManyExperts) LaunchDown(t Tile, tokens int) (Launch, error) {
	l, err := e.launch(e.down(), t, "down", 1, e.Hidden, tokens)
	l.Case = func(s Sizes) *Case { return e.downCase(l, t, s) }
	return l, err
}

func (e ManyExperts) launch(m Matrices, t Tile, product string, planes, n, tokens int) (Launch, error) {
	file, check := "experts_matmul", m.checkTile
	if t.direct() {
		file, check = "experts_direct", e.checkDirect
	}
	kernel := file + "_" + product
	if err := check(t); err != nil {
		return Launch{}, fmt.Errorf("%s %d×%d×%d: %w", kernel, e.Count, n, m.K, err)
	}
	return Launch{
		File: file, Kernel: kernel,
		Defines: append(m.tileDefines(t, 1), define("EXPERTS_PARTS", e.Parts(), "EXPERTS_N", n, "EXPERTS_ACTIVATION",
			int(e.Activation), "EXPERTS_SHARED", e.Shared, "EXPERTS_COUNT", e.Count)...),
		Groups: [3]int{ceil(n*planes, t.BN), e.MaxTiles(t, tokens), 1}, Threads: [3]int{t.threads(), 1, 1},
	}, nil
}

// LaunchCombine is the dispatch for up to tokens tokens. It takes ExpertsCombineArguments: X, the Y of LaunchDown,
// Scores f32 [T, Top], Extra and Y f32 [T, Hidden], Gates f32 [T] of the shared expert.
func (e ManyExperts) LaunchCombine(tokens int) (Launch, error) {
	if e.Hidden%4 != 0 {
		return Launch{}, fmt.Errorf("experts_combine: %d columns, want a multiple of 4", e.Hidden)
	}
	threads := min(128, ceil(e.Hidden/4, 32)*32)
	return Launch{
		File: "experts_sort", Kernel: "experts_combine", Case: e.combineCase,
		Defines: define("SORT_TOP", e.Top, "SORT_SHARED", e.Shared, "COMBINE_N", e.Hidden, "COMBINE_RESIDUAL", e.Residual,
			"COMBINE_THREADS", threads),
		Groups: [3]int{ceil(e.Hidden/4, threads), tokens, 1}, Threads: [3]int{threads, 1, 1},
	}, nil
}

// ReferenceSort computes what LaunchSort does for experts [T, Top]: the order of the parts, and tiles of BM rows. The
// shared expert comes first and has the number Count.
func (e ManyExperts) ReferenceSort(t Tile, experts []int32) (order []int32, tiles [][4]int32) {
	cut := func(expert int32, first int) {
		for ; first < len(order); first += t.BM {
			tiles = append(tiles, [4]int32{expert, int32(first), int32(min(first+t.BM, len(order)))})
		}
	}
	if e.Shared {
		for token := range len(experts) / e.Top {
			order = append(order, int32(token*e.Parts()))
		}
		cut(int32(e.Count), 0)
	}
	for expert := range int32(e.Count) {
		first := len(order)
		for pair, at := range experts {
			if at == expert {
				order = append(order, int32(pair/e.Top*e.Parts()+btoi(e.Shared)+pair%e.Top))
			}
		}
		cut(expert, first)
	}
	return order, tiles
}
