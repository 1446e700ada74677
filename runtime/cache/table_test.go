package cache_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/cache/cachetest"
)

// layouts are the kinds of models: full attention, windows beside it, recurrent state beside it, all of
// them, and models without full attention.
var layouts = map[string]cache.Layout{
	"full":   {BlockRows: 4, BlockBytes: 10},
	"window": {BlockRows: 4, BlockBytes: 10, Rings: []cache.Ring{{Window: 6, BlockBytes: 7}}},
	"hybrid": {BlockRows: 4, BlockBytes: 10, SlotBytes: 33},
	"all": {BlockRows: 3, BlockBytes: 5, SlotBytes: 20,
		Rings: []cache.Ring{{Window: 1, BlockBytes: 3}, {Window: 9, BlockBytes: 4}}},
	"state":    {BlockRows: 5, SlotBytes: 8},
	"ringOnly": {BlockRows: 2, Rings: []cache.Ring{{Window: 4, BlockBytes: 1}}},
}

func eachLayout(t *testing.T, f func(t *testing.T, l cache.Layout)) {
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) { f(t, l) })
	}
}

// sequence is a table beside the ids that it holds.
type sequence struct {
	table  *cache.Table
	tokens []int32
}

// world is a device with all that is open on it.
type world struct {
	memory *cache.Memory
	device *cachetest.Device
	prefix *cache.Prefix
	open   []*sequence
}

func newWorld(t require.TestingT, l cache.Layout, budget, limit int64, tiered bool) *world {
	m, err := cache.NewMemory(l, budget, nil)
	require.NoError(t, err)
	w := &world{memory: m, device: cachetest.NewDevice(m)}
	var tier cache.Tier
	if tiered {
		tier = cachetest.NewTier(w.device)
	}
	w.prefix = cache.NewPrefix(m, limit, tier)
	return w
}

func (w *world) check(t require.TestingT) {
	tables := make([]*cache.Table, len(w.open))
	for i, s := range w.open {
		tables[i] = s.table
	}
	require.NoError(t, cache.Check(w.memory, w.prefix, tables...))
	w.device.Poison()
}

// feed runs a call of one sequence and compares each row with the sequence alone. It reports whether there
// was room.
func (w *world) feed(t require.TestingT, s *sequence, tokens []int32, x cache.Extent) bool {
	x.Rows = len(tokens)
	if d := s.table.Demand(x); !w.memory.Fits(d) && !w.prefix.Reclaim(d) {
		_, ok := s.table.Begin(x)
		require.False(t, ok)
		return false
	}
	before := w.memory.InUse()
	d := s.table.Demand(x)
	copies, ok := s.table.Begin(x)
	require.True(t, ok)
	for _, c := range copies { // the shared block that was copied stays in use
		require.Positive(t, w.memory.Holders(cache.Unit{Pool: c.Pool, ID: c.From}))
	}
	before.Add(d)
	require.Equal(t, before, w.memory.InUse(), "Demand is what Begin takes")
	w.device.Copy(copies)
	got, err := w.device.Run(cachetest.Of(s.table, tokens))
	require.NoError(t, err)
	s.table.End()
	s.tokens = append(s.tokens[:len(s.tokens):len(s.tokens)], tokens...)
	require.Equal(t, cachetest.Alone(w.memory.Layout(), s.tokens)[len(s.tokens)-len(tokens):], got)
	return true
}

func drawTokens(t *rapid.T, most int) []int32 {
	return rapid.SliceOfN(rapid.Int32Range(0, 2), 1, most).Draw(t, "tokens")
}

func drawExtent(t *rapid.T, rows int) cache.Extent {
	x := cache.Extent{Exact: rapid.Bool().Draw(t, "exact")}
	for r := 1; r < rows && !x.Exact; r++ {
		if rapid.IntRange(0, 4).Draw(t, "keep") == 0 {
			x.Checkpoints = append(x.Checkpoints, r)
		}
	}
	return x
}

// step does one random thing.
func (w *world) step(t *rapid.T) {
	op := rapid.IntRange(0, 9).Draw(t, "op")
	if len(w.open) == 0 || op == 0 {
		prompt := drawTokens(t, 30)
		hit := w.prefix.Lookup(prompt)
		table, opened := w.prefix.Open(prompt)
		require.GreaterOrEqual(t, opened.Pos, hit.Pos)
		w.open = append(w.open, &sequence{table, prompt[:opened.Pos]})
		return
	}
	i := rapid.IntRange(0, len(w.open)-1).Draw(t, "sequence")
	s := w.open[i]
	switch op {
	case 1, 2, 3, 4:
		tokens := drawTokens(t, 9)
		x := drawExtent(t, len(tokens))
		if !w.feed(t, s, tokens, x) {
			s.table.Close()
			w.open = append(w.open[:i], w.open[i+1:]...)
			return
		}
		if x.Exact && rapid.Bool().Draw(t, "rollback") {
			n := rapid.IntRange(0, len(tokens)).Draw(t, "n")
			require.NoError(t, s.table.Rollback(n))
			s.tokens = s.tokens[:len(s.tokens)-n]
		}
		for _, r := range x.Checkpoints {
			switch at := len(s.tokens) - len(tokens) + r; rapid.IntRange(0, 3).Draw(t, "checkpoint") {
			case 0:
				require.Equal(t, at, w.prefix.Insert(s.tokens, s.table, at))
			case 1:
				require.Equal(t, at, w.prefix.InsertSpare(s.tokens, s.table, at))
			}
		}
	case 5:
		w.open = append(w.open, &sequence{s.table.Fork(), s.tokens})
	case 6, 7:
		require.Equal(t, len(s.tokens), w.prefix.Insert(s.tokens, s.table, s.table.Pos()))
	case 8:
		s.table.Close()
		w.open = append(w.open[:i], w.open[i+1:]...)
		w.prefix.Trim()
	case 9:
		d := make(cache.Demand, w.memory.Layout().Pools())
		d[cache.BlockPool] = rapid.IntRange(0, 10).Draw(t, "blocks")
		require.Equal(t, w.memory.FitsIdle(d), w.prefix.Reclaim(d))
		require.Equal(t, w.memory.FitsIdle(d), w.memory.Fits(d))
	}
}

// TestTables does random things to tables and the tree: what every row reads is what it reads alone, nobody
// writes what others hold, and every count is right after every step.
func TestTables(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t, l, rapid.Int64Range(200, 3000).Draw(t, "budget"),
				rapid.Int64Range(1, 2000).Draw(t, "limit"), rapid.Bool().Draw(t, "tier"))
			w.prefix.SetSpare(rapid.IntRange(0, 4).Draw(t, "spare"))
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				w.step(t)
				w.check(t)
			}
			for _, s := range w.open {
				s.table.Close()
			}
			w.open = nil
			w.check(t)
			require.Equal(t, w.memory.Idle(), w.memory.Used(), "blocks leak")
			w.prefix.Clear()
			w.check(t)
			require.Zero(t, w.memory.Used(), "blocks leak")
		})
	})
}

func TestRollbackNeedsState(t *testing.T) {
	w := newWorld(t, layouts["hybrid"], 1000, 0, false)
	s := &sequence{table: w.memory.NewTable()}
	require.True(t, w.feed(t, s, []int32{1, 2, 3, 4, 5}, cache.Extent{Checkpoints: []int{3}}))
	require.ErrorContains(t, s.table.Rollback(1), "no state was kept after 4")
	require.ErrorContains(t, s.table.Rollback(6), "has 5 left")
	require.NoError(t, s.table.Rollback(2))
	require.Equal(t, 3, s.table.Pos())
	require.Len(t, s.table.Blocks(), 1)
	s.table.Settle()
	require.ErrorContains(t, s.table.Rollback(1), "has 0 left")
	require.Equal(t, cache.Demand{1, 1}, w.memory.InUse())
}

// TestVerifySlots counts the states of a call that verifies K drafts: K + 1 beside the one that is read,
// until the rows that stand are known.
func TestVerifySlots(t *testing.T) {
	w := newWorld(t, layouts["hybrid"], 1000, 0, false)
	s := &sequence{table: w.memory.NewTable()}
	require.True(t, w.feed(t, s, []int32{1, 2, 3}, cache.Extent{}))
	require.Equal(t, 1, w.memory.InUse()[1])
	require.True(t, w.feed(t, s, []int32{4, 5, 6, 7}, cache.Extent{Exact: true}))
	require.Equal(t, 5, w.memory.InUse()[1])
	require.NoError(t, s.table.Rollback(2))
	s.table.Settle()
	require.Equal(t, 1, w.memory.InUse()[1])
	s.tokens = s.tokens[:5]
	require.True(t, w.feed(t, s, []int32{8}, cache.Extent{}))
}

// TestRingIsBounded feeds a long sequence: a window holds no more blocks than it and the call need.
func TestRingIsBounded(t *testing.T) {
	l := layouts["window"]
	w := newWorld(t, l, 1<<20, 0, false)
	s := &sequence{table: w.memory.NewTable()}
	for range 40 {
		require.True(t, w.feed(t, s, []int32{1, 2, 3, 4, 5}, cache.Extent{}))
		require.LessOrEqual(t, w.memory.InUse()[l.RingPool(0)], (6-1+5+3)/4+1)
	}
	require.Equal(t, 50, w.memory.InUse()[cache.BlockPool])
}

func TestForkSharesUntilWritten(t *testing.T) {
	w := newWorld(t, layouts["all"], 1000, 0, false)
	a := &sequence{table: w.memory.NewTable()}
	require.True(t, w.feed(t, a, []int32{1, 2, 3, 4, 5, 6, 7}, cache.Extent{}))
	used := w.memory.Used()
	b := &sequence{a.table.Fork(), a.tokens}
	require.Equal(t, used, w.memory.Used())
	require.True(t, w.feed(t, a, []int32{8}, cache.Extent{}))
	require.Equal(t, a.table.Blocks()[:2], b.table.Blocks()[:2])
	require.NotEqual(t, a.table.Blocks()[2], b.table.Blocks()[2])
	require.True(t, w.feed(t, b, []int32{9}, cache.Extent{}))
	a.table.Close()
	b.table.Close()
	require.Zero(t, w.memory.Used())
}

func TestLayoutErrors(t *testing.T) {
	for want, l := range map[string]cache.Layout{
		"BlockRows is 0":           {},
		"SlotBytes -1":             {BlockRows: 1, SlotBytes: -1},
		"ring 0 has window 0":      {BlockRows: 1, Rings: []cache.Ring{{BlockBytes: 1}}},
		"window 3 and 0 bytes a b": {BlockRows: 1, Rings: []cache.Ring{{Window: 3}}},
	} {
		_, err := cache.NewMemory(l, 1, nil)
		require.ErrorContains(t, err, want)
	}
	_, err := cache.NewMemory(layouts["full"], -1, nil)
	require.ErrorContains(t, err, "-1 bytes")
	_, err = cache.NewMemory(layouts["full"], 1, cache.Demand{1})
	require.ErrorContains(t, err, "1 limits for 2 pools")
}
