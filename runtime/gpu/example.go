package gpu

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// example is what measurements have in the place of an operand.
type example struct {
	// content is that of run number i.
	content func(i int) []byte
	// positions are set where the time of a kernel depends on the position of a call: run number i is at the one of
	// that number, and the times at all of them count together. What is no position is there already where a product is
	// measured in its place in a plan.
	positions []int
}

// positions are where the step is measured; none where its time does not depend on them.
func (s *step) positions() []int {
	for _, o := range s.operands {
		if o.example != nil && len(o.example.positions) > 0 {
			return o.example.positions
		}
	}
	return nil
}

// indicesBelow are i32 from 0 to n-1, others in every run.
func indicesBelow(n, size int) *example {
	return &example{content: func(i int) []byte {
		var out []byte
		for j := range size / 4 {
			out = binary.LittleEndian.AppendUint32(out, uint32((i*size/4+j)%n))
		}
		return out
	}}
}

// sortedPairs are two inputs to measure kernels of experts with: the token-expert pairs in the order of their
// experts, and the tiles that this order is cut into. Every token chooses its experts at random, all experts with the
// same probability. A router that was trained to use its experts equally chooses like this. Some experts still get
// more pairs, and so more tiles, than others.
func sortedPairs(e kernels.ManyExperts, tile kernels.Tile, tokens int) (order, tiles *example) {
	made := func(i int) ([]int32, [][4]int32) {
		random := rand.New(rand.NewPCG(uint64(i), 3))
		var chosen []int32
		for range tokens {
			for _, at := range random.Perm(e.Count)[:e.Top] {
				chosen = append(chosen, int32(at))
			}
		}
		return e.ReferenceSort(tile, chosen)
	}
	order = &example{content: func(i int) []byte {
		pairs, _ := made(i)
		return words32(pairs)
	}}
	tiles = &example{content: func(i int) []byte {
		_, list := made(i)
		for len(list) < e.SortedTiles(tile, tokens) {
			list = append(list, [4]int32{-1})
		}
		flat := make([]int32, 0, 4*len(list))
		for _, x := range list {
			flat = append(flat, x[:]...)
		}
		return words32(flat)
	}}
	return order, tiles
}

func words32(values []int32) (out []byte) {
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	return out
}

// positionsOf are where attention is measured. In a way that is good near the start of a context much may be slow in
// its middle, and the other way round; the tuner cannot know where calls will be, so that the sum counts. They follow
// from the kernel alone, not from the call that happens to be the first, since a choice is kept for all calls.
//
// A token is measured near the start, behind a page of text, at 4096 and in the middle of the context; with a window
// the last one is where the window is full. Most calls are near the start, where attention takes the least time, so
// those count several times: else the sum would be the time in the middle. That is no deeper than 32768, behind which
// it would outweigh them still. A chunk of a prompt is measured as the first one and in the middle, at 4096 at most,
// since its time there is in proportion.
func positionsOf(a kernels.Attention, tokens int) []int {
	middle := a.Slots / 2
	if a.Window > 0 {
		middle = min(a.Slots, a.Window)
	}
	if tokens > 1 {
		return withDeepest([]int{0}, max(0, min(middle, 4096, a.Slots-tokens)))
	}
	return withDeepest([]int{64, 64, 64, 64, 512, 512, 512, 512, 4096, 4096}, min(middle, 32<<10, a.Slots-1))
}

// withDeepest are the positions before the deepest one, and that.
func withDeepest(positions []int, deepest int) []int {
	return append(slices.DeleteFunc(positions, func(n int) bool { return n >= deepest }), deepest)
}

// atPositions makes the step of an attention for so many tokens one that is measured at several positions.
func atPositions(step operand, a kernels.Attention, tokens int) operand {
	positions := positionsOf(a, tokens)
	step.example = &example{positions: positions, content: func(i int) []byte {
		return words32([]int32{int32(tokens), int32(positions[i%len(positions)])})
	}}
	return step
}

// readingCaches notes what the last step, an attention, reads of caches at the deepest position at which it is
// measured.
func (b *binder) readingCaches(a kernels.Attention, tokens int) {
	seen := slices.Max(positionsOf(a, tokens)) + tokens
	b.plan.steps[len(b.plan.steps)-1].caches = 2 * a.KVHeads * seen * a.D * a.Cache.Size()
}
