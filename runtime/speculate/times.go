package speculate

import "slices"

// samples are the last times of a kind of call. Their median is what it takes: what another process or a collector
// does to a call now and then does not matter.
type samples struct {
	last  [sampled]float64 // seconds
	n     int              // of all times
	value float64          // the lower median
}

// sampled is the number of times that are kept.
const sampled = 9

func (s *samples) add(v float64) {
	s.last[s.n%sampled] = v
	s.n++
	sorted := slices.Sorted(slices.Values(s.last[:min(s.n, sampled)]))
	s.value = sorted[(len(sorted)-1)/2]
}

const (
	// leastSamples is the number of calls from which on their median is trusted.
	leastSamples = 3
	// mostOutlier bounds what is booked for a call, in medians.
	mostOutlier = 2
)

const (
	// assumedRow is what a row and its draft are taken to cost at most where that was never measured, in calls without
	// drafts, and likelyRow what they are taken to cost when it is asked whether they could be worth it.
	assumedRow, likelyRow = 1.5, 0.2
)
