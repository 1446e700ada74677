package eval

import (
	"runtime"
	"sync/atomic"

	"github.com/etc-ml/etc/internal/fault"
)

// grain is the work, in multiply-adds, below which another goroutine costs more than it saves.
const grain = 1 << 15

// parallel calls f on consecutive parts of [0, n) that cover it, on several goroutines when the work is
// large; cost is the work of one index in multiply-adds. f computes every index by itself, so that no
// result depends on where a part begins. A panic of f is one of the caller, who can recover it.
func parallel(n, cost int, f func(lo, hi int)) { parallelUntil(nil, n, cost, f) }

// longestPart is the work, in multiply-adds, after which a part looks whether it is still wanted: some milliseconds.
const longestPart = 1 << 22

// closed reports whether a channel that carries nothing was closed; nil never is.
func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// parallelUntil is parallel that begins no further part when done is closed; what f makes is then not whole. Where
// done is not nil, parts are small enough that it ends soon.
func parallelUntil(done <-chan struct{}, n, cost int, f func(lo, hi int)) {
	workers := min(float64(runtime.GOMAXPROCS(0)), float64(n), float64(n)*float64(cost)/grain)
	bound := n
	if done != nil {
		bound = max(1, longestPart/max(cost, 1))
	}
	if workers < 2 {
		for lo := 0; lo < n && !closed(done); lo += bound {
			f(lo, min(lo+bound, n))
		}
		return
	}
	// Parts are smaller than n/workers, because the work of an index may vary (causal attention).
	part := min(max(1, n/(4*int(workers))), bound)
	var next atomic.Int64
	var wait fault.Group
	for range int(workers) {
		wait.Go(func() {
			for {
				hi := int(next.Add(int64(part)))
				lo := hi - part
				if lo >= n || closed(done) {
					return
				}
				f(lo, min(hi, n))
			}
		})
	}
	wait.Wait()
}
