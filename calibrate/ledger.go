package calibrate

import (
	"runtime"
	"sync"
)

// ledger counts the bytes of the arrays that a calibration holds: those of values, moments and weights, and what the
// operations need while they run. It is safe for concurrent use.
type ledger struct {
	bounded    bool // the process must stay within Options.MaxRAM
	mu         sync.Mutex
	held, most int64
}

// take counts n bytes that are about to be held.
func (l *ledger) take(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held += n
	l.most = max(l.most, l.held)
}

// largeBytes is the size from which on arrays are allocated after the garbage was collected. The collector works while
// the program goes on, too late for one of hundreds of megabytes.
const largeBytes = 32 << 20

// reserve is take for arrays of n bytes that are about to be allocated. Before large ones it frees garbage.
func (l *ledger) reserve(n int64) {
	if l.bounded && n >= largeBytes {
		runtime.GC()
	}
	l.take(n)
}

// give counts n bytes that are held no longer.
func (l *ledger) give(n int64) { l.take(-n) }

// floatBytes returns the size of n numbers in float32.
func floatBytes(n int) int64 { return 4 * int64(n) }
