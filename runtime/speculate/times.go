package speculate

import (
	"slices"
	"sync"
	"time"
)

// Times are how long rounds take, by the number of drafts. Sequences of one model share them. It is safe for concurrent
// use; the zero value knows nothing.
type Times struct {
	mu     sync.Mutex
	rounds map[kindOfRound]*samples
}

// kindOfRound tells rounds apart that take different times: a round whose drafts were not all right takes back what the
// wrong ones did.
type kindOfRound struct {
	drafts int
	right  bool // all drafts were accepted
}

// samples are the last times of a kind of round. Their median is what it takes: what another process or a collector
// does to a round now and then does not matter.
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

// known reports whether there is a time.
func (s *samples) known() bool { return s != nil && s.n > 0 }

// add notes a round, and gives the seconds to book for it, which an exception counts little in.
func (t *Times) add(drafts, accepted int, took time.Duration) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rounds == nil {
		t.rounds = map[kindOfRound]*samples{}
	}
	key := kindOfRound{drafts, accepted == drafts}
	s := t.rounds[key]
	if s == nil { // the engine may plan what it runs for the first time, which does not happen again
		t.rounds[key] = &samples{}
		if plain := t.rounds[kindOfRound{0, true}]; plain != nil && plain.n > 0 {
			return min(took.Seconds(), plain.value*(1+assumedRow*float64(drafts)))
		}
		return took.Seconds()
	}
	s.add(took.Seconds())
	if s.n > leastSamples {
		return min(took.Seconds(), mostOutlier*s.value)
	}
	return took.Seconds()
}

const (
	// leastSamples is the number of rounds from which on their median is trusted.
	leastSamples = 3
	// mostOutlier bounds what is booked for a round, in medians.
	mostOutlier = 2
)

const (
	// assumedRow is what a row and its draft are taken to cost at most where that was never measured, in rounds without
	// drafts, and likelyRow what they are taken to cost when it is asked whether they could be worth it.
	assumedRow, likelyRow = 1.5, 0.2
)

// of gives the seconds of a round whose drafts are all right, and of one where they are not. What was never
// measured is derived from the nearest smaller number of drafts that was: rows more are taken to cost no more than
// its last one did, or where atMost asks for it as much as they ever do. Nothing is known before some rounds
// without drafts were measured.
func (t *Times) of(drafts int, atMost bool) (right, wrong float64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	plain := t.rounds[kindOfRound{0, true}]
	if plain == nil || plain.n < leastSamples {
		return 0, 0, false
	}
	known := drafts
	for ; known >= 0; known-- {
		if right, wrong, ok = t.measured(known); ok {
			break
		}
	}
	row := likelyRow * plain.value
	if known > 0 {
		if before, _, ok := t.measured(known - 1); ok {
			row = min(row, max(0, right-before))
		}
	}
	if atMost {
		row = assumedRow * plain.value
	}
	more := float64(drafts-known) * row
	return right + more, wrong + more, true
}

// measured gives what was measured for a number of drafts.
func (t *Times) measured(drafts int) (right, wrong float64, ok bool) {
	a, b := t.rounds[kindOfRound{drafts, true}], t.rounds[kindOfRound{drafts, false}]
	switch {
	case !a.known() && !b.known():
		return 0, 0, false
	case !a.known():
		return b.value, b.value, true
	case !b.known():
		return a.value, a.value, true
	}
	return a.value, max(a.value, b.value), true
}
