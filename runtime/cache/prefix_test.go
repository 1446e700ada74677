package cache_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/cache/cachetest"
)

// store runs a sequence alone, keeps what it holds at each of the positions, and closes it.
func (w *world) store(t require.TestingT, tokens []int32, at ...int) {
	w.run(t, tokens, at...)
	w.check(t)
}

// run is store without the check, for when somebody holds units beside the tables that are open.
func (w *world) run(t require.TestingT, tokens []int32, at ...int) {
	table, hit := w.prefix.Open(tokens[:len(tokens)-1])
	s := &sequence{table, tokens[:hit.Pos:hit.Pos]}
	var x cache.Extent
	for _, p := range at {
		if p > hit.Pos && p < len(tokens) {
			x.Checkpoints = append(x.Checkpoints, p-hit.Pos)
		}
	}
	require.True(t, w.feed(t, s, tokens[hit.Pos:], x))
	for _, p := range at {
		if p > hit.Pos {
			require.Equal(t, p, w.prefix.Insert(tokens, table, p))
		}
	}
	table.Close()
}

func ids(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// TestHybridResumesAtCheckpoints has blocks for 20 positions and checkpoints at 6 and 18: a prompt that
// leaves after 13 ids resumes at 6, though the blocks of 12 are there.
func TestHybridResumesAtCheckpoints(t *testing.T) {
	w := newWorld(t, layouts["hybrid"], 10000, 10000, false)
	w.store(t, ids(20), 6, 18)
	require.Equal(t, cache.Hit{Pos: 18, Matched: 18}, w.prefix.Lookup(ids(30)))
	require.Equal(t, cache.Hit{Pos: 18, Matched: 18}, w.prefix.Lookup(ids(18)))
	other := append(ids(13), 99, 98, 97, 96, 95)
	require.Equal(t, cache.Hit{Pos: 6, Matched: 12}, w.prefix.Lookup(other))
	// A checkpoint where the two part serves the third.
	w.store(t, other, 12, 18)
	require.Equal(t, cache.Hit{Pos: 12, Matched: 12}, w.prefix.Lookup(append(ids(12), 50, 51, 52, 53)))
	require.Equal(t, cache.Hit{}, w.prefix.Lookup([]int32{7, 7, 7, 7, 7}))
}

// TestFullResumesAtBlocks needs no checkpoints.
func TestFullResumesAtBlocks(t *testing.T) {
	w := newWorld(t, layouts["full"], 10000, 10000, false)
	w.store(t, ids(18), 18)
	require.Equal(t, cache.Hit{Pos: 12, Matched: 12}, w.prefix.Lookup(append(ids(13), 99, 98, 97, 96)))
	require.Equal(t, cache.Hit{Pos: 18, Matched: 18}, w.prefix.Lookup(ids(19)))
	require.Equal(t, cache.Hit{Pos: 16, Matched: 16}, w.prefix.Lookup(ids(17)))
}

// TestEvictionIsLeastRecentlyUsed fills the tree beyond its limit: what was used last stays.
func TestEvictionIsLeastRecentlyUsed(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		w := newWorld(t, l, 100000, 100000, false)
		prompt := func(i int) []int32 { return append([]int32{int32(100 + i)}, ids(12)...) }
		for i := range 4 {
			w.store(t, prompt(i), 12)
		}
		table, hit := w.prefix.Open(prompt(0)) // used again
		require.Equal(t, 12, hit.Pos)
		table.Close()
		each := w.memory.Idle() / 4
		shrink(t, w, each*2)
		for i, want := range []bool{true, false, false, true} {
			require.Equal(t, want, w.prefix.Lookup(prompt(i)).Pos == 12, "prompt %d", i)
		}
	})
}

// shrink evicts until the tree holds no more than limit bytes.
func shrink(t *testing.T, w *world, limit int64) {
	w.prefix.SetLimit(limit)
	w.prefix.Trim()
	require.LessOrEqual(t, w.memory.Idle(), limit)
	w.check(t)
}

// TestInUseStays holds a prefix open: nothing of it is evicted, and its sequence goes on.
func TestInUseStays(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		w := newWorld(t, l, 100000, 100000, false)
		w.store(t, ids(13), 12)
		table, hit := w.prefix.Open(ids(12))
		w.open = append(w.open, &sequence{table, ids(12)})
		require.Equal(t, 12, hit.Pos)
		w.store(t, append([]int32{77}, ids(12)...), 12) // used later
		w.prefix.SetLimit(0)
		w.prefix.Trim()
		require.Zero(t, w.memory.Idle())
		require.Zero(t, w.prefix.Lookup(append([]int32{77}, ids(11)...)).Pos)
		require.Equal(t, 12, w.prefix.Lookup(ids(12)).Pos)
		require.True(t, w.feed(t, w.open[0], []int32{5, 6, 7}, cache.Extent{}))
		w.check(t)
	})
}

// TestTierBringsBack evicts everything to a tier and resumes from it.
func TestTierBringsBack(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		m, err := cache.NewMemory(l, 100000, nil)
		require.NoError(t, err)
		w := &world{memory: m, device: cachetest.NewDevice(m)}
		tier := cachetest.NewTier(w.device)
		w.prefix = cache.NewPrefix(m, 100000, tier)
		w.store(t, ids(30), 11, 29)
		w.prefix.Clear()
		w.check(t)
		require.Zero(t, w.memory.Used())
		require.Zero(t, w.prefix.Lookup(ids(30)).Pos)
		for _, n := range []int{11, 30} {
			table, hit := w.prefix.Open(ids(n))
			require.Equal(t, map[int]int{11: 11, 30: 29}[n], hit.Pos)
			w.open = append(w.open, &sequence{table, ids(hit.Pos)})
			require.True(t, w.feed(t, w.open[len(w.open)-1], []int32{1, 2, 3}, cache.Extent{}))
			w.check(t)
		}
		require.Positive(t, tier.Loads)
	})
}

// FuzzPrefix compares the tree with a set of all prefixes that were stored.
func FuzzPrefix(f *testing.F) {
	f.Add([]byte{0, 9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 5, 1, 2, 3, 1, 2})
	f.Add([]byte{1, 20, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 9, 1, 1, 1, 1, 0, 1, 1, 1, 12, 1, 1})
	f.Add([]byte{3, 7, 0, 0, 0, 0, 255, 4, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 1})
	names := []string{"full", "hybrid", "window", "all", "state", "ringOnly"}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		l := layouts[names[int(data[0])%len(names)]]
		w := newWorld(t, l, 1<<20, 1<<20, false)
		stored, evicted := map[string]bool{}, false
		for data = data[1:]; len(data) > 2; {
			if data[0] == 255 {
				w.prefix.SetLimit(w.memory.Idle() / 2)
				w.prefix.Trim()
				w.prefix.SetLimit(1 << 20)
				data, evicted = data[1:], true
				continue
			}
			n := min(2+int(data[0])%40, len(data)-1)
			tokens := make([]int32, n)
			for i, b := range data[1 : 1+n] {
				tokens[i] = int32(b % 3)
			}
			data = data[1+n:]
			want, hit := naive(stored, tokens), w.prefix.Lookup(tokens)
			if evicted {
				require.True(t, hit.Pos == 0 || stored[text(tokens[:hit.Pos])])
				require.LessOrEqual(t, hit.Pos, want)
			} else {
				require.Equal(t, want, hit.Pos)
			}
			keep := 1 + n/2
			if evicted || naive(stored, tokens[:n-1]) < keep {
				stored[text(tokens[:keep])] = true
			}
			stored[text(tokens)] = true
			for i := l.BlockRows; i < n && !l.Checkpoints(); i += l.BlockRows {
				stored[text(tokens[:i])] = true
			}
			w.store(t, tokens, uniq(keep, n)...)
		}
	})
}

func uniq(a, b int) []int {
	if a == b {
		return []int{a}
	}
	return []int{a, b}
}

func text(tokens []int32) string {
	b := make([]byte, len(tokens))
	for i, t := range tokens {
		b[i] = byte(t)
	}
	return string(b)
}

// naive returns the length of the longest prefix of tokens that was stored.
func naive(stored map[string]bool, tokens []int32) int {
	for n := len(tokens); n > 0; n-- {
		if stored[text(tokens[:n])] {
			return n
		}
	}
	return 0
}
