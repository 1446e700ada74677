package calibrate

import "sync"

// ledger counts the bytes of the arrays that a calibration holds: those of values, moments and weights, and what the
// operations need while they run. It is safe for concurrent use.
type ledger struct {
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

// give counts n bytes that are held no longer.
func (l *ledger) give(n int64) { l.take(-n) }

// floatBytes returns the size of n numbers in float32.
func floatBytes(n int) int64 { return 4 * int64(n) }
