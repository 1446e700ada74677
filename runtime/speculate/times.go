package speculate

import "slices"

// samples holds the last times of one kind of call. The median stands for them, so that rare delays by another
// process or the garbage collector do not matter.
type samples struct {
	last  [sampled]float64 // seconds
	n     int              // of all times
	value float64          // the lower median
}

// sampled is the number of times that samples holds.
const sampled = 9

func (s *samples) add(v float64) {
	s.last[s.n%sampled] = v
	s.n++
	sorted := slices.Sorted(slices.Values(s.last[:min(s.n, sampled)]))
	s.value = sorted[(len(sorted)-1)/2]
}

const (
	// leastSamples is the number of calls after which their median is trusted.
	leastSamples = 3
	// delayed is the number of measured calls, after one that is not, that may have been delayed: the engine plans and
	// compiles what it runs for the first times, which does not happen again.
	delayed = 1
	// mostOutlier is the most that the account is charged for a call, in medians.
	mostOutlier = 2
)

const (
	// These are costs of a row and its draft that was never measured, in calls without drafts. assumedRow is an upper
	// bound; likelyRow is what is assumed when drafts are looked for that may pay.
	assumedRow, likelyRow = 1.5, 0.2
)
