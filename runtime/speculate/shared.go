package speculate

import (
	"math"
	"slices"
	"time"
)

// MostDrafts is the largest number of drafts of a sequence in a call.
const MostDrafts = 8

// Shared chooses how many tokens the sequences of shared calls draft. A draft costs a row of a call, which all
// sequences wait for, so the choice is made for all at once: a sequence gets one more draft where that adds more to
// the expected tokens of the call than to its time. Each sequence has a [Member], which learns how often its drafts
// are right; until then its drafts are expected to be as good as those of all others. Times are learned by the number
// of rows of a call.
//
// How often drafts will be right is not known beforehand, so Shared keeps an account of the time that drafting may
// cost. Its unit is the time of a call without drafts. Every token adds a small amount, and calls with drafts add
// what they save or subtract what they lose. A call has drafts only if the account covers the loss when all of them
// are wrong. So a text never takes much longer than without drafts. While drafts do not pay, they are tried again at
// intervals that double.
//
// A Shared is not safe for concurrent use.
type Shared struct {
	most  int
	fixed bool
	times map[sharedCall]*samples
	tune  turns
	left  []int // the last argument of Next: how many tokens each sequence may draft

	all    chances // of the drafts of all sequences
	room   float64 // the account: what may still be lost, in calls without drafts
	pause  int     // see Pause
	plain  float64 // tokens of a sequence since the last measured call without drafts
	totals Totals
}

// The constants of Shared's choice. Tokens are those of one sequence; the account is in calls without drafts.
const (
	// earned is what a token adds to the account, and firstRoom the account before the first token: in 512 tokens
	// 10.2, which is 2 %.
	earned, firstRoom = 0.016, 2.0
	// mostRoom is the largest account. It keeps long gains from hiding that a text has become hard to draft.
	mostRoom = 12.0
	// forget is the factor by which each call reduces the weight of earlier ones.
	forget = 0.98
	// guess is the assumed chance of a draft before anything is known of any sequence, and guessWeight the weight in
	// trials of what is assumed of a new sequence.
	guess, guessWeight = 0.5, 1.5
	// leastGain is the expected speed-up from which on calls draft.
	leastGain = 1.01
	// A try has triedRounds calls. The pause before the next try doubles from firstPause to longestPause calls.
	triedRounds, firstPause, longestPause = 5, 12.0, 384.0
	// plainEvery is the number of tokens after which a call without drafts is measured again.
	plainEvery = 160
)

// sharedCall identifies calls that take about the same time.
type sharedCall struct {
	rows  int // rows of all sequences, as sizeOf rounds them
	chain int // the largest number of drafts of a sequence: how often the draft model ran before the call
}

// turns schedules the tries of drafts that do not seem to pay.
type turns struct {
	wait, pause float64 // calls until the next try, and the last pause
	tries       int     // calls that the current try still has
}

// Member is what Shared knows of one sequence.
type Member struct {
	chances
	totals Totals
}

// Totals returns the counts of the sequence so far.
func (m *Member) Totals() Totals { return m.totals }

// NewShared returns a Shared for sequences that draft at most most tokens in a call. With fixed each drafts that many
// in every call.
func NewShared(most int, fixed bool) *Shared {
	return &Shared{most: min(most, MostDrafts), fixed: fixed, times: map[sharedCall]*samples{}, room: firstRoom,
		tune: turns{pause: firstPause / 2}}
}

// Totals returns the counts of all sequences so far.
func (s *Shared) Totals() Totals { return s.totals }

// Most returns the largest number of drafts of a sequence in a call.
func (s *Shared) Most() int { return s.most }

// Pause estimates how many calls of the program in a row will have no drafts of any sequence. The first of them is the
// call for which Next was asked last; if that has drafts, Pause returns 0. A caller that can run calls without drafts
// faster may plan up to so many. It still asks Next before each of them, and ignores the drafts.
func (s *Shared) Pause() int { return s.pause }

// Next returns the number of tokens that each sequence is to draft, at most left[i].
func (s *Shared) Next(members []*Member, left []int) []int {
	out := make([]int, len(members))
	s.left, s.pause = append(s.left[:0], left...), 0
	if s.fixed {
		for i := range out {
			out[i] = max(0, min(s.most, left[i]))
		}
		return out
	}
	n := len(members)
	plain, ok := s.measured(n, 0)
	if n == 0 || !ok || s.plain >= plainEvery {
		s.pause = s.missing(n) + 1 // to measure it; the first of these calls may not be like the others
		return out
	}
	best, gain := s.best(members, left, plain)
	if gain <= leastGain {
		if s.tune.wait > 0 {
			s.pause = int(math.Ceil(s.tune.wait)) - 1 // the last of these calls can prepare for drafts
			return out
		}
		if s.tune.tries == 0 {
			s.tune.tries = triedRounds
			s.all.doubt()
			for _, m := range members {
				m.doubt()
			}
			best, _ = s.best(members, left, plain)
		}
	}
	pays := gain > leastGain
	for len(best) > 0 {
		count(out, best)
		loss := s.estimate(n+len(best), slices.Max(out), plain, n, true)/plain - 1
		if loss <= s.room {
			return out
		}
		saved, fewer := int(math.Ceil((loss-s.room)/earned)), best[:len(best)/2]
		if len(fewer) == 0 || pays && s.gain(s.prospect(members, fewer...), plain) <= leastGain {
			s.pause = saved // fewer drafts would only spend what is saved for as many as pay
			break
		}
		best = fewer
	}
	clear(out)
	return out
}

// missing returns how many calls of this size without drafts have to be measured before their time is known, at least
// one.
func (s *Shared) missing(rows int) int {
	if t := s.samples(rows, 0); t != nil {
		return max(1, leastSamples-t.n)
	}
	return leastSamples + 1 // the first time does not count
}

// count adds up the drafts of each sequence; drafts lists a sequence once for each of its drafts.
func count(out []int, drafts []int) {
	clear(out)
	for _, i := range drafts {
		out[i]++
	}
}

// best returns the drafts with which a call has the most tokens for its time, as one index of a sequence for each
// draft, and the expected speed-up over a call without drafts. If no draft pays, it returns one draft, for a try.
func (s *Shared) best(members []*Member, left []int, plain float64) (drafts []int, gain float64) {
	p := s.prospect(members)
	all, keep := []int(nil), 0
	for {
		next := -1
		for i := range members {
			if p.taken[i] < min(s.most, left[i]) && (next < 0 || p.chance[i] > p.chance[next]) {
				next = i
			}
		}
		if next < 0 {
			return all[:keep], gain
		}
		p.add(next)
		all = append(all, next)
		if g := s.gain(p, plain); g > gain {
			gain, keep = g, len(all)
		}
	}
}

// gain returns the expected speed-up of a call with the drafts of p over one without any.
func (s *Shared) gain(p *prospect, plain float64) float64 {
	n := len(p.members)
	return p.tokens / float64(n) * plain / s.estimate(n+p.drafts, p.chain, plain, n, false)
}

// prospect is what is expected of a call to which drafts are added one by one.
type prospect struct {
	members []*Member
	tokens  float64 // of all sequences
	drafts  int     // of all sequences
	chain   int     // the largest number of drafts of a sequence
	taken   []int   // the drafts of each sequence
	// each is the chance that a sequence's next draft is right if all before it are; chance, that all up to it are
	// right.
	each, chance []float64
}

// prospect returns a call with these drafts, as one index of a sequence for each. The drafts of a new sequence are
// expected to be as good as those of the others.
func (s *Shared) prospect(members []*Member, drafts ...int) *prospect {
	n, expected := len(members), s.all.chance(0, guess)
	p := &prospect{members: members, tokens: float64(n), taken: make([]int, n), each: make([]float64, n)}
	for i, m := range members {
		p.each[i] = m.chance(0, expected)
	}
	p.chance = slices.Clone(p.each)
	for _, i := range drafts {
		p.add(i)
	}
	return p
}

// add adds a draft of a sequence.
func (p *prospect) add(i int) {
	p.tokens += p.chance[i]
	p.drafts++
	p.taken[i]++
	p.chain = max(p.chain, p.taken[i])
	p.each[i] = p.members[i].chance(p.taken[i], p.each[i])
	p.chance[i] *= p.each[i]
}

// Done records a call. Sequence i drafted drafted[i] tokens, and the first accepted[i] of them were right. took is 0
// if the call did other work too, so that its time says nothing.
func (s *Shared) Done(members []*Member, drafted, accepted []int, took time.Duration) {
	n, rows, chain, tokens := len(members), len(members), 0, 0
	for i, m := range members {
		rows, tokens, chain = rows+drafted[i], tokens+accepted[i]+1, max(chain, drafted[i])
		m.learn(drafted[i], accepted[i])
		if drafted[i] > 0 {
			s.all.learn(drafted[i], accepted[i])
			round := Totals{1, drafted[i], accepted[i]}
			m.totals.Add(round)
			s.totals.Add(round)
		}
	}
	if s.fixed || n == 0 {
		return
	}
	calls := float64(tokens) / float64(n)
	if took <= 0 {
		if chain == 0 {
			s.tune.wait, s.room = max(0, s.tune.wait-calls), min(s.room+earned*calls, mostRoom)
		}
		return
	}
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

// turn decides whether a try goes on, and when the next one begins.
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

// add records the time of a call and returns the seconds that the account is charged for it. An exceptionally long
// call is charged for less than it took.
func (s *Shared) add(rows, chain, n int, took float64) float64 {
	key := sharedCall{sizeOf(rows), chain}
	have := s.times[key]
	if have == nil {
		have = &samples{}
		s.times[key] = have
	} else {
		have.add(took)
	}
	if have.n > leastSamples {
		return min(took, mostOutlier*have.value)
	}
	if plain, ok := s.measured(n, 0); ok && have.n <= delayed {
		return min(took, mostOf(rows, chain, n, plain))
	}
	return took
}

// mostOf returns an upper bound for the time of a call of n sequences and rows rows after chain steps of the draft
// model, as long as few or none were measured.
func mostOf(rows, chain, n int, plain float64) float64 {
	return plain * (1 + assumedRow/2*(float64(chain)+float64(rows-n)/float64(n)))
}

// samples returns the times of calls of this size, nil before the first one.
func (s *Shared) samples(rows, chain int) *samples { return s.times[sharedCall{sizeOf(rows), chain}] }

// measured returns the median time of calls of this size, and whether there is one.
func (s *Shared) measured(rows, chain int) (float64, bool) {
	t := s.samples(rows, chain)
	if t == nil || t.n < leastSamples && chain == 0 || t.n == 0 {
		return 0, false
	}
	return t.value, true
}

// estimate returns the expected time of a call of n sequences and rows rows after chain steps of the draft model. A
// size that was never measured is derived from the nearest smaller one that was: rows and steps beyond it are assumed
// to cost no more than its own, or, with atMost, as much as they ever do.
func (s *Shared) estimate(rows, chain int, plain float64, n int, atMost bool) float64 {
	base, baseRows, baseChain := plain, n, 0
search:
	for c := chain; c > 0; c-- {
		for r := rows; r > n; r = smaller(sizeOf(r)) {
			if t, ok := s.measured(r, c); ok {
				if s.samples(r, c).n <= delayed {
					if !atMost {
						continue // as if it had not been measured
					}
					t = min(t, mostOf(r, c, n, plain))
				}
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

// sizeOf rounds a number of rows up to one of few sizes, as engines pad calls.
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

// smaller returns the size before a size of sizeOf.
func smaller(size int) int {
	switch {
	case size <= 4:
		return size - 1
	case size&(size-1) == 0:
		return size / 4 * 3
	}
	return size / 3 * 2
}
