package pool

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRunPassesEveryIndexOnce(t *testing.T) {
	for _, threads := range []int{-1, 1, 2, 3, 4, 9} {
		p := New(threads)
		require.Equal(t, max(threads, 1), p.Threads())
		for _, c := range []struct{ n, grain int }{{0, 1}, {1, 1}, {2, 1}, {7, 3}, {9, 3}, {1000, 1},
			{1000, 7}, {5, 100}, {-3, 2}} {
			seen := make([]int32, max(c.n, 0))
			for round := range 20 {
				p.Run(c.n, c.grain, func(lo, hi int) {
					if lo%c.grain != 0 || hi-lo > c.grain || hi <= lo {
						t.Errorf("range [%d, %d) for n %d, grain %d", lo, hi, c.n, c.grain)
					}
					for i := lo; i < hi; i++ {
						seen[i]++ // the race detector finds an index that is passed twice
					}
				})
				for i, count := range seen {
					require.EqualValues(t, round+1, count, "index %d of %d in pieces of %d, %d threads",
						i, c.n, c.grain, threads)
				}
			}
		}
		p.Close()
	}
}

// Workers go to sleep between loops and must find each of them.
func TestRunAfterSleep(t *testing.T) {
	p := New(4)
	defer p.Close()
	for range 50 {
		var sum atomic.Int64
		p.Run(100, 1, func(lo, hi int) { sum.Add(int64(lo)) })
		require.EqualValues(t, 4950, sum.Load())
		time.Sleep(time.Millisecond)
	}
}

// Threads work at the same time: two pieces that wait for each other both run.
func TestRunIsParallel(t *testing.T) {
	p := New(2)
	defer p.Close()
	for range 100 {
		var meeting sync.WaitGroup
		meeting.Add(2)
		p.Run(2, 1, func(lo, hi int) {
			meeting.Done()
			meeting.Wait()
		})
	}
}

// Run in a body and Run by several callers make progress and lose nothing.
func TestRunNestedAndConcurrent(t *testing.T) {
	p := New(3)
	defer p.Close()
	var total atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 200 {
				p.Run(8, 1, func(lo, hi int) {
					p.Run(4, 2, func(lo, hi int) { total.Add(int64(hi - lo)) })
				})
			}
		})
	}
	callers.Wait()
	require.EqualValues(t, 4*200*8*4, total.Load())
}

func TestRunPassesPanicOn(t *testing.T) {
	p := New(4)
	defer p.Close()
	want := errors.New("stop")
	for range 50 {
		require.PanicsWithValue(t, want, func() {
			p.Run(1000, 1, func(lo, hi int) {
				if lo == 500 {
					panic(want)
				}
			})
		})
		var count atomic.Int64
		p.Run(10, 1, func(lo, hi int) { count.Add(1) })
		require.EqualValues(t, 10, count.Load())
	}
	require.Panics(t, func() { p.Run(1, 0, func(lo, hi int) {}) })
}

// More threads than processors, and processors that are busy: every loop still ends, and a thread that
// holds no piece keeps nobody waiting.
func TestOversubscription(t *testing.T) {
	processors := runtime.GOMAXPROCS(0)
	p := New(4 * processors)
	defer p.Close()
	var stop atomic.Bool
	var hogs sync.WaitGroup
	for range processors {
		hogs.Go(func() {
			for !stop.Load() {
			}
		})
	}
	var count atomic.Int64
	for range 200 {
		p.Run(64, 1, func(lo, hi int) { count.Add(1) })
	}
	stop.Store(true)
	hogs.Wait()
	require.EqualValues(t, 200*64, count.Load())
}

func TestCloseEndsThreads(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		p := New(5)
		p.Run(10, 1, func(lo, hi int) {})
		p.Close()
		require.Panics(t, func() { p.Run(10, 1, func(lo, hi int) {}) })
	}
	// A worker has said that it is done before it is gone.
	for i := 0; i < 10_000 && runtime.NumGoroutine() > before; i++ {
		time.Sleep(time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

func TestRunDoesNotAllocate(t *testing.T) {
	p := New(4)
	defer p.Close()
	var sum atomic.Int64
	body := func(lo, hi int) { sum.Add(int64(hi - lo)) }
	require.Zero(t, testing.AllocsPerRun(100, func() { p.Run(64, 1, body) }))
}

// BenchmarkDispatch is the time of a loop that has nothing to do but one piece for each thread.
func BenchmarkDispatch(b *testing.B) {
	for _, threads := range []int{1, 2, 4} {
		b.Run(map[int]string{1: "1", 2: "2", 4: "4"}[threads], func(b *testing.B) {
			p := New(threads)
			defer p.Close()
			body := func(lo, hi int) {}
			for b.Loop() {
				p.Run(threads, 1, body)
			}
		})
	}
}

// After done is closed no thread begins another piece, whoever closes it and when.
func TestRunUntil(t *testing.T) {
	for _, threads := range []int{1, 2, 4} {
		p := New(threads)
		for _, at := range []int{0, 3, 500} {
			done := make(chan struct{})
			var pieces atomic.Int64
			var held sync.WaitGroup
			held.Add(1)
			p.RunUntil(done, 1000, 1, func(lo, hi int) {
				pieces.Add(1)
				if lo == at {
					pieces.Store(0)
					close(done)
					held.Done()
				} else if lo > at {
					held.Wait() // a thread in a piece after that one began it before done was closed
				}
			})
			require.Less(t, pieces.Load(), int64(threads), "%d threads, closed in piece %d", threads, at)
			p.RunUntil(done, 1000, 1, func(lo, hi int) { t.Error("a piece ran after the end") })
			p.RunUntil(done, 1, 1, func(lo, hi int) { t.Error("the only piece ran after the end") })
		}
		var sum atomic.Int64
		p.RunUntil(make(chan struct{}), 100, 1, func(lo, hi int) { sum.Add(int64(lo)) })
		p.Run(100, 1, func(lo, hi int) { sum.Add(int64(lo)) })
		require.EqualValues(t, 2*4950, sum.Load(), "loops after one that ended early are whole")
		p.Close()
	}
}
