package gpu

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// synthetic is the content that a measurement gives to an operand.
type synthetic struct {
	// content returns the bytes for run number i.
	content func(i int) []byte
	// positions are the positions at which an attention is measured: run i is at positions[i], and the tuner adds up
	// their times. It is nil where the time does not depend on the position. Where a product is measured in its place
	// in a plan, the other operands have the content of the call.
	positions []int
}

// positions returns the positions at which the step is measured, or nil where its time does not depend on the position.
func (s *step) positions() []int {
	for _, o := range s.operands {
		if o.synthetic != nil && len(o.synthetic.positions) > 0 {
			return o.synthetic.positions
		}
	}
	return nil
}

// indicesBelow makes int32 indices from 0 to n-1, different ones in every run.
func indicesBelow(n, size int) *synthetic {
	return &synthetic{content: func(i int) []byte {
		var out []byte
		for j := range size / 4 {
			out = binary.LittleEndian.AppendUint32(out, uint32((i*size/4+j)%n))
		}
		return out
	}}
}

// sortedPairs makes two inputs of the kernels for sorted experts: the token-expert pairs in the order of their experts,
// and the tiles that this order is cut into. Every token chooses its experts at random, each with the same probability,
// as a router does that was trained to use its experts equally. Some experts still get more pairs than others, and so
// more tiles.
func sortedPairs(e kernels.ManyExperts, tile kernels.Tile, tokens int) (order, tiles *synthetic) {
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
	order = &synthetic{content: func(i int) []byte {
		pairs, _ := made(i)
		return words32(pairs)
	}}
	tiles = &synthetic{content: func(i int) []byte {
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

// positionsOf returns the positions at which an attention is measured. The best tuning near the start of a context may
// be slow in the middle of it, and the tuner does not know where calls will be; so it compares sums of times over
// several positions. The positions depend on the kernel alone, not on the first call, because the choice is stored for
// all calls.
//
// For one token they are near the start, after a page of text, at 4096 and in the middle of the context, at most
// 32768. With a sliding window the last one is where the window is full. Most calls are near the start, where attention
// takes the least time. So those positions count several times; otherwise the middle would decide alone. A chunk of a
// prompt is measured at the start and in the middle, at most at 4096: beyond that its time grows in proportion.
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

// withDeepest returns the positions that are less than deepest, then deepest.
func withDeepest(positions []int, deepest int) []int {
	return append(slices.DeleteFunc(positions, func(n int) bool { return n >= deepest }), deepest)
}

// atPositions gives the step operand of an attention the content for measurements at several positions.
func atPositions(step operand, a kernels.Attention, tokens int) operand {
	positions := positionsOf(a, tokens)
	step.synthetic = &synthetic{positions: positions, content: func(i int) []byte {
		return words32([]int32{int32(tokens), int32(positions[i%len(positions)])})
	}}
	return step
}

// readingCaches notes how many bytes of caches the last step, an attention, reads at the deepest position at which it
// is measured.
func (b *binder) readingCaches(a kernels.Attention, tokens int) {
	seen := slices.Max(positionsOf(a, tokens)) + tokens
	b.plan.steps[len(b.plan.steps)-1].caches = 2 * a.KVHeads * seen * a.D * a.Cache.Size()
}
