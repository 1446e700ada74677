package cache_test

import (
	"slices"
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
	w.runAnd(t, w.prefix.Insert, tokens, at...)
}

// storeSpare is store of spare checkpoints.
func (w *world) storeSpare(t require.TestingT, tokens []int32, at ...int) {
	w.runAnd(t, w.prefix.InsertSpare, tokens, at...)
	w.check(t)
}

func (w *world) runAnd(t require.TestingT, insert func([]int32, *cache.Table, int) int, tokens []int32, at ...int) {
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
			require.Equal(t, p, insert(tokens, table, p))
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

// TestSpareGoesFirst stores spare checkpoints beside others that are older. They are evicted first, the oldest first;
// one that a sequence resumed at is a spare one no more.
func TestSpareGoesFirst(t *testing.T) {
	for _, name := range []string{"hybrid", "window", "all", "state", "ringOnly"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, layouts[name], 100000, 100000, false)
			prompt := func(i int) []int32 { return append([]int32{int32(100 + i)}, ids(12)...) }
			for i := range 5 {
				if i < 2 {
					w.store(t, prompt(i), 12)
				} else {
					w.storeSpare(t, prompt(i), 12)
				}
			}
			table, hit := w.prefix.Open(prompt(3))
			require.Equal(t, 12, hit.Pos)
			table.Close()
			each := w.memory.Idle() / 5
			for left, gone := range map[int64][]int{3: {2, 4}} {
				shrink(t, w, each*left)
				for i := range 5 {
					require.Equal(t, !slices.Contains(gone, i), w.prefix.Lookup(prompt(i)).Pos == 12, "prompt %d", i)
				}
			}
			shrink(t, w, each*2) // as among others, the longest unused
			require.Zero(t, w.prefix.Lookup(prompt(0)).Pos)
			require.Equal(t, 12, w.prefix.Lookup(prompt(3)).Pos)
		})
	}
}

// TestSpareAreLimited: where the tree has as many spare checkpoints as it may, the oldest goes. One that is stored
// again as another one counts no more.
func TestSpareAreLimited(t *testing.T) {
	w := newWorld(t, layouts["hybrid"], 100000, 100000, false)
	w.prefix.SetSpare(2)
	w.storeSpare(t, ids(30), 4, 12, 20)
	have := func(want ...int) {
		t.Helper()
		for _, at := range []int{4, 12, 20} {
			pos := w.prefix.Lookup(ids(at)).Pos
			require.Equal(t, slices.Contains(want, at), pos == at, "at %d the tree has %d", at, pos)
		}
	}
	have(12, 20)
	w.store(t, ids(13)[:13], 12) // begins at 12: somebody needs it
	w.storeSpare(t, append([]int32{99}, ids(20)...), 8, 16)
	have(12)
	w.prefix.SetSpare(0)
	w.storeSpare(t, append([]int32{98}, ids(20)...), 8)
	have(12)
	require.Zero(t, w.prefix.Lookup(append([]int32{98}, ids(20)...)).Pos)
}

// TestPressure: the share of bytes, or of the units of a pool where that is more; what only the tree holds does not
// count.
func TestPressure(t *testing.T) {
	m, err := cache.NewMemory(cache.Layout{BlockRows: 4, BlockBytes: 10, SlotBytes: 30}, 1000, cache.Demand{0, 4})
	require.NoError(t, err)
	require.Zero(t, m.Pressure())
	p := cache.NewPrefix(m, 1000, nil)
	require.NoError(t, p.Put([]int32{1, 2, 3}, func([]cache.Unit) error { return nil }))
	require.Zero(t, m.Pressure(), "only the tree holds it")
	table := m.NewTable()
	_, ok := table.Begin(cache.Extent{Rows: 1})
	require.True(t, ok)
	require.Equal(t, 0.25, m.Pressure(), "a slot of four")
	table.End()
	_, ok = table.Begin(cache.Extent{Rows: 200})
	require.True(t, ok)
	require.InDelta(t, 0.54, m.Pressure(), 1e-9, "51 blocks and a slot of 1000 bytes")
	table.End()
	table.Close()
	require.Zero(t, m.Pressure())
}

// TestCheckpointsBeside counts what a memory has room for, by bytes, by units and by the limit.
func TestCheckpointsBeside(t *testing.T) {
	l := cache.Layout{BlockRows: 4, BlockBytes: 10, Rings: []cache.Ring{{Window: 7, BlockBytes: 6}}, SlotBytes: 30}
	one := l.Bytes(cache.Demand{0, 3, 1}) // a window of 7 positions lies in 3 blocks
	for _, c := range []struct {
		budget, limit int64
		units, beside cache.Demand
		want          int
	}{
		{10 * one, 10 * one, nil, cache.Demand{0, 0, 0}, 10},
		{10 * one, 4*one - 1, nil, cache.Demand{0, 0, 0}, 3},
		{10 * one, 10 * one, nil, cache.Demand{0, 3, 1}, 9},
		{10 * one, 10 * one, cache.Demand{0, 0, 7}, cache.Demand{0, 0, 2}, 5},
		{10 * one, 10 * one, cache.Demand{0, 8, 0}, cache.Demand{0, 0, 0}, 2},
		{one, one, nil, cache.Demand{0, 9, 9}, 0},
	} {
		m, err := cache.NewMemory(l, c.budget, c.units)
		require.NoError(t, err)
		require.Equal(t, c.want, m.CheckpointsBeside(c.beside, c.limit), "%+v", c)
	}
	m, err := cache.NewMemory(layouts["full"], 1000, nil)
	require.NoError(t, err)
	require.Zero(t, m.CheckpointsBeside(cache.Demand{0, 0}, 1000), "no checkpoints are needed")
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
