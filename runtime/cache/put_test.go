package cache_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/cache/cachetest"
)

// take copies what a device holds for a prefix that the tree has.
func take(t *testing.T, w *world, tokens []int32) cachetest.Contents {
	table, hit := w.prefix.Open(tokens)
	require.Equal(t, len(tokens), hit.Pos)
	defer table.Close()
	return w.device.Take(table.Units())
}

// TestPut: a prefix that was taken out of one tree and put into another one is as good as one that was computed there,
// whatever of it the other tree has.
func TestPut(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		const n = 18
		from := newWorld(t, l, 10000, 10000, false)
		from.store(t, ids(n), n)
		contents := take(t, from, ids(n))
		for _, has := range []int{0, 4, 12, n} {
			w := newWorld(t, l, 10000, 10000, false)
			if has > 0 {
				w.store(t, ids(has), has)
			}
			filled := 0
			require.NoError(t, w.prefix.Put(ids(n), func(units []cache.Unit) error {
				for _, u := range units {
					if u.ID != cache.None {
						filled++
					}
				}
				w.device.Give(units, contents)
				return nil
			}))
			require.Equal(t, has < n, filled > 0)
			w.check(t)
			require.Equal(t, n, w.prefix.Lookup(ids(n+1)).Pos)
			require.Equal(t, contents, take(t, w, ids(n)))
			table, hit := w.prefix.Open(ids(n))
			s := &sequence{table, ids(n)[:hit.Pos:hit.Pos]}
			require.True(t, w.feed(t, s, []int32{50, 51, 52}, cache.Extent{}), "it goes on as if it had been computed")
			table.Close()
			w.check(t)
		}
	})
}

// TestPutLeavesNothing: after an error the tree and the memory are as before, but for what was reclaimed.
func TestPutLeavesNothing(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		w := newWorld(t, l, 10000, 10000, false)
		w.store(t, ids(4), 4)
		before := w.memory.InUse()
		broken := errors.New("the file is cut")
		require.ErrorIs(t, w.prefix.Put(ids(18), func([]cache.Unit) error { return broken }), broken)
		w.check(t)
		require.Equal(t, before, w.memory.InUse())
		require.Equal(t, 4, w.prefix.Lookup(ids(18)).Pos)
		small := newWorld(t, l, 1, 10000, false)
		require.ErrorIs(t, small.prefix.Put(ids(100), func([]cache.Unit) error { return nil }), cache.ErrNoRoom)
		small.check(t)
		tight := newWorld(t, l, 10000, 1, false)
		require.ErrorIs(t, tight.prefix.Put(ids(18), func([]cache.Unit) error { return nil }), cache.ErrNoRoom)
		tight.check(t)
		require.Zero(t, tight.memory.Used())
		off := newWorld(t, l, 10000, 0, false)
		require.ErrorIs(t, off.prefix.Put(ids(18), nil), cache.ErrOff)
	})
}

// TestFillingIsItsOwn: between Fill and Commit the tree may forget all that it has, and take the same prefix from
// elsewhere; the filled prefix is whole in the end, and nothing of it is left when it is given up.
func TestFillingIsItsOwn(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		const n = 18
		from := newWorld(t, l, 10000, 10000, false)
		from.store(t, ids(n), n)
		contents := take(t, from, ids(n))
		for _, has := range []int{0, 4, 12, n} {
			for name, meanwhile := range map[string]func(w *world){
				"forgotten": func(w *world) { w.prefix.Clear() },
				"computed":  func(w *world) { w.run(t, ids(n), n) },
				"longer":    func(w *world) { w.run(t, ids(n+6), n+6) },
			} {
				w := newWorld(t, l, 10000, 10000, false)
				if has > 0 {
					w.store(t, ids(has), has)
				}
				f, err := w.prefix.Fill(ids(n))
				require.NoError(t, err)
				w.device.Give(f.Units(), contents)
				meanwhile(w)
				require.NoError(t, f.Commit(), "%s, %d", name, has)
				f.Close()
				w.check(t)
				require.Equal(t, n, w.prefix.Lookup(ids(n)).Pos)
				require.Equal(t, contents, take(t, w, ids(n)))
				f, err = w.prefix.Fill(append(ids(n), 99, 98))
				require.NoError(t, err)
				w.prefix.Clear()
				f.Close()
				require.Zero(t, w.memory.Used(), "%s, %d", name, has)
			}
		}
	})
}
