package eval

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// grain is the work, in multiply-adds, below which another goroutine costs more than it saves.
const grain = 1 << 15

// parallel calls f on consecutive parts of [0, n) that cover it, on several goroutines when the work is
// large; cost is the work of one index in multiply-adds. f computes every index by itself, so that no
// result depends on where a part begins.
func parallel(n, cost int, f func(lo, hi int)) {
	workers := min(float64(runtime.GOMAXPROCS(0)), float64(n), float64(n)*float64(cost)/grain)
	if workers < 2 {
		if n > 0 {
			f(0, n)
		}
		return
	}
	// Parts are smaller than n/workers, because the work of an index may vary (causal attention).
	part := max(1, n/(4*int(workers)))
	var next atomic.Int64
	var wait sync.WaitGroup
	for range int(workers) {
		wait.Go(func() {
			for {
				hi := int(next.Add(int64(part)))
				lo := hi - part
				if lo >= n {
					return
				}
				f(lo, min(hi, n))
			}
		})
	}
	wait.Wait()
}
