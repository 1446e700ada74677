package speculate

import (
	"slices"
	"time"
)

// MostDrafts bounds the drafts of a sequence in a call.
const MostDrafts = 8

// Shared chooses how many tokens the sequences of shared calls draft. A draft costs a row of a call that all wait for,
// so the choice is one for all: a sequence gets its next draft where that adds more to the tokens of the call than to
// its time. Each sequence has a [Member], which learns how often its drafts are right; the times are those of calls by
// their number of rows.
//
// Shared cannot know what the texts will be like. It therefore keeps an account, in calls without drafts: every token
// earns a small part of what it takes without, what calls with drafts lose or win is booked, and a call has drafts only
// where the account covers it even if every draft is wrong. So the time for a text is never much longer than without
// drafts, whatever is accepted. Where drafts do not pay, they are tried again at intervals, which grow while nothing
// comes of it.
//
// A Shared is not safe for concurrent use.
type Shared struct {
	most  int
	fixed bool
	times map[sharedCall]*samples
	tune  turns
	left  []int // of the last Next: how many tokens each sequence may draft

	room   float64 // what may be lost from now on, in calls without drafts
	plain  float64 // tokens of a sequence since a call without drafts was measured
	totals Totals
}

// What a Shared goes by. Lengths and losses are in tokens of a sequence, that is, in calls without drafts.
const (
	// earned is what a token adds to what may be lost, and firstRoom what may be lost before the first token: in 512
	// tokens 10.2, which is 2 %.
	earned, firstRoom = 0.016, 2.0
	// mostRoom bounds what gains add up to, so that a text that turns bad is noticed.
	mostRoom = 12.0
	// forget is what a call leaves of what was learned.
	forget = 0.98
	// guess is the chance of a draft that nothing is known of, with the weight of so many trials.
	guess, guessWeight = 0.5, 1.5
	// leastGain is the gain from which on drafts are worth it.
	leastGain = 1.01
	// A try has so many calls. The pauses between tries double, from the first to the longest.
	triedRounds, firstPause, longestPause = 5, 12.0, 384.0
	// plainEvery is the number of tokens after which a call without drafts is measured again.
	plainEvery = 160
)

// sharedCall tells calls apart that take different times.
type sharedCall struct {
	rows  int // of all sequences, as a size that stands for some
	chain int // most drafts of a sequence: how often the draft ran before the call
}

// turns are when drafts are tried that do not seem to pay.
type turns struct {
	wait, pause float64 // calls until the next try, and the last wait
	tries       int     // calls left of a try
}

// Member is what is known of one sequence.
type Member struct {
	chances
	totals Totals
}

// Totals are the counts of the sequence so far.
func (m *Member) Totals() Totals { return m.totals }

// NewShared gives a control for sequences that draft at most most tokens each. fixed asks for that many in every call.
func NewShared(most int, fixed bool) *Shared {
	return &Shared{most: min(most, MostDrafts), fixed: fixed, times: map[sharedCall]*samples{}, room: firstRoom,
		tune: turns{pause: firstPause / 2}}
}

// Totals are the counts of all sequences so far.
func (s *Shared) Totals() Totals { return s.totals }

// Most is the most drafts of a sequence in a call.
func (s *Shared) Most() int { return s.most }

// Next gives the number of tokens that each sequence is to draft, at most left[i] of them.
func (s *Shared) Next(members []*Member, left []int) []int {
	out := make([]int, len(members))
	s.left = append(s.left[:0], left...)
	if s.fixed {
		for i := range out {
			out[i] = max(0, min(s.most, left[i]))
		}
		return out
	}
	n := len(members)
	plain, ok := s.measured(n, 0)
	if n == 0 || !ok || s.plain >= plainEvery {
		return out // to measure it
	}
	best, gain := s.best(members, left, plain)
	if gain <= leastGain {
		if s.tune.wait > 0 {
			return out
		}
		if s.tune.tries == 0 {
			s.tune.tries = triedRounds
			for _, m := range members {
				m.doubt()
			}
			best, _ = s.best(members, left, plain)
		}
	}
	for len(best) > 0 {
		count(out, best)
		if s.estimate(n+len(best), slices.Max(out), plain, n, true)/plain-1 <= s.room {
			return out
		}
		best = best[:len(best)/2]
	}
	clear(out)
	return out
}

// count tells how many of the drafts each sequence has.
func count(out []int, drafts []int) {
	clear(out)
	for _, i := range drafts {
		out[i]++
	}
}

// best gives the drafts, by the number of their sequence, with which the call has the most tokens for its time, and how
// many it has in the time of one without drafts. One draft is taken where none pays, for a try.
func (s *Shared) best(members []*Member, left []int, plain float64) (drafts []int, gain float64) {
	n := len(members)
	// each is the chance of a sequence's next draft where all before it are right, chance that of it and all before it.
	each, chance, taken := make([]float64, n), make([]float64, n), make([]int, n)
	for i, m := range members {
		each[i] = m.chance(0, guess)
		chance[i] = each[i]
	}
	all, tokens, chain := []int(nil), float64(n), 0
	keep := 0
	for {
		next := -1
		for i := range members {
			if taken[i] < min(s.most, left[i]) && (next < 0 || chance[i] > chance[next]) {
				next = i
			}
		}
		if next < 0 {
			return all[:keep], gain
		}
		all, tokens = append(all, next), tokens+chance[next]
		taken[next]++
		chain = max(chain, taken[next])
		if g := tokens / float64(n) * plain / s.estimate(n+len(all), chain, plain, n, false); g > gain {
			gain, keep = g, len(all)
		}
		each[next] = members[next].chance(taken[next], each[next])
		chance[next] *= each[next]
	}
}

// Done books a call in which each of the sequences drafted so many tokens, of which so many were right. took is 0 where
// the call had other work, too.
func (s *Shared) Done(members []*Member, drafted, accepted []int, took time.Duration) {
	n, rows, chain, tokens := len(members), len(members), 0, 0
	for i, m := range members {
		rows, tokens, chain = rows+drafted[i], tokens+accepted[i]+1, max(chain, drafted[i])
		m.learn(drafted[i], accepted[i])
		if drafted[i] > 0 {
			round := Totals{1, drafted[i], accepted[i]}
			m.totals.Add(round)
			s.totals.Add(round)
		}
	}
	if s.fixed || took <= 0 || n == 0 {
		return
	}
	calls := float64(tokens) / float64(n)
	if s.plain += calls; chain == 0 {
		s.plain = 0
	}
	plain, known := s.measured(n, 0)
	booked := s.add(rows, chain, n, took.Seconds())
	if !known || plain <= 0 {
		return
	}
	s.room += earned * calls
	if chain > 0 {
		s.room -= booked/plain - calls
	}
	s.room = min(s.room, mostRoom)
	s.turn(members, chain, calls, plain)
}

// turn decides whether a try goes on and when the next one is.
func (s *Shared) turn(members []*Member, chain int, calls, plain float64) {
	if chain == 0 {
		s.tune.wait = max(0, s.tune.wait-calls)
		return
	}
	if len(s.left) != len(members) {
		return
	}
	if _, gain := s.best(members, s.left, plain); gain > leastGain {
		s.tune = turns{tries: triedRounds, pause: firstPause / 2}
		return
	}
	if s.tune.tries--; s.tune.tries <= 0 {
		pause := min(2*s.tune.pause, longestPause)
		s.tune = turns{wait: pause, pause: pause}
	}
}

// add notes the time of a call, and gives the seconds to book for it, which an exception counts little in.
func (s *Shared) add(rows, chain, n int, took float64) float64 {
	key := sharedCall{sizeOf(rows), chain}
	have := s.times[key]
	if have == nil { // the engine may plan what it runs for the first time, which does not happen again
		s.times[key] = &samples{}
		if plain, ok := s.measured(n, 0); ok {
			return min(took, plain*(1+assumedRow*float64(rows-n)/float64(n)))
		}
		return took
	}
	have.add(took)
	if have.n > leastSamples {
		return min(took, mostOutlier*have.value)
	}
	return took
}

// measured is the time of calls of so many rows and so long chains of drafts.
func (s *Shared) measured(rows, chain int) (float64, bool) {
	t := s.times[sharedCall{sizeOf(rows), chain}]
	if t == nil || t.n < leastSamples && chain == 0 || t.n == 0 {
		return 0, false
	}
	return t.value, true
}

// estimate is the time of a call of n sequences with so many rows. What was never measured is derived from the
// nearest call with fewer rows or shorter chains that was: what there is more is taken to cost no more than what that
// one has did, or where atMost asks for it as much as it ever does.
func (s *Shared) estimate(rows, chain int, plain float64, n int, atMost bool) float64 {
	base, baseRows, baseChain := plain, n, 0
search:
	for c := chain; c > 0; c-- {
		for r := rows; r > n; r = smaller(sizeOf(r)) {
			if t, ok := s.measured(r, c); ok {
				base, baseRows, baseChain = max(t, plain), r, c
				break search
			}
		}
	}
	// Steps of chains and rows of each sequence: a draft of the only sequence is one of both.
	parts := func(chain, rows int) float64 { return float64(chain) + float64(rows)/float64(n) }
	part := likelyRow / 2 * plain
	if atMost {
		part = assumedRow / 2 * plain
	} else if baseChain > 0 {
		part = min(part, (base-plain)/parts(baseChain, baseRows-n))
	}
	return base + part*parts(chain-baseChain, rows-baseRows)
}

// sizeOf is the size that stands for so many rows: engines run calls padded to few sizes.
func sizeOf(rows int) int {
	if rows <= 4 {
		return rows
	}
	size := 4
	for size < rows {
		if half := size + size/2; half >= rows {
			return half
		}
		size *= 2
	}
	return size
}

// smaller is the size before a size of sizeOf.
func smaller(size int) int {
	switch {
	case size <= 4:
		return size - 1
	case size&(size-1) == 0:
		return size / 4 * 3
	}
	return size / 3 * 2
}
