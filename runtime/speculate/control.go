package speculate

import (
	"math"
	"time"
)

// MostDrafts bounds the drafts of a round.
const MostDrafts = 8

// Control chooses for one sequence how many tokens to draft in the next round. With K drafts of which the first k
// are right a round gives k + 1 tokens, so the best K is that with the most tokens for the time. The chance of each
// draft being right is learned from the rounds of the sequence, the times are those of all sequences of the model.
//
// Control cannot know what the text will be like. It therefore keeps an account: every token earns a small part of
// what it takes without drafts, what rounds with drafts lose or win is booked, and a round is had only where the
// account covers it even if every draft is wrong. So the time for a text is never much longer than without drafts,
// whatever is accepted. Where drafts do not pay, they are tried again at intervals, which grow while nothing comes
// of it.
//
// A Control is not safe for concurrent use.
type Control struct {
	times *Times
	most  int
	fixed bool

	chances

	room   float64 // what may be lost from now on, in rounds without drafts
	wait   float64 // tokens until drafts are tried again
	pause  float64 // the last wait
	tries  int     // rounds left of a try
	plain  int     // tokens since a round without drafts was measured
	totals Totals
}

// Totals are counts of a sequence, or of many.
type Totals struct {
	Rounds   int `json:"rounds"`   // with drafts
	Drafted  int `json:"drafted"`  // tokens
	Accepted int `json:"accepted"` // of those
}

// Add adds other counts.
func (t *Totals) Add(o Totals) {
	t.Rounds, t.Drafted, t.Accepted = t.Rounds+o.Rounds, t.Drafted+o.Drafted, t.Accepted+o.Accepted
}

// Acceptance is the part of the drafts that was right; 0 where there were none.
func (t Totals) Acceptance() float64 { return float64(t.Accepted) / float64(max(t.Drafted, 1)) }

// What a Control goes by. Lengths and losses are in tokens, that is, in rounds without drafts.
const (
	// earned is what a token adds to what may be lost, and firstRoom what may be lost before the first token: in 512
	// tokens 10.2, which is 2 %.
	earned, firstRoom = 0.016, 2.0
	// mostRoom bounds what gains add up to, so that a text that turns bad is noticed.
	mostRoom = 12.0
	// forget is what a round leaves of what was learned.
	forget = 0.98
	// guess is the chance of a draft that nothing is known of, with the weight of so many trials.
	guess, guessWeight = 0.5, 1.5
	// leastGain is the gain from which on drafts are worth it.
	leastGain = 1.01
	// A try has so many rounds. The pauses between tries double, from the first to the longest.
	triedRounds, firstPause, longestPause = 5, 12.0, 384.0
	// plainEvery is the number of tokens after which a round without drafts is measured again.
	plainEvery = 160
)

// NewControl gives a control for a sequence that drafts at most most tokens. fixed asks for that many in every round.
func NewControl(times *Times, most int, fixed bool) *Control {
	return &Control{times: times, most: min(most, MostDrafts), fixed: fixed, room: firstRoom, pause: firstPause / 2}
}

// Totals are the counts so far.
func (c *Control) Totals() Totals { return c.totals }

// Next gives the number of tokens to draft, at most left. 0 asks for a round without.
func (c *Control) Next(left int) int {
	most := min(c.most, left)
	if most <= 0 {
		return 0
	}
	if c.fixed {
		return most
	}
	plain, _, ok := c.times.of(0, false)
	if !ok || plain <= 0 || c.plain >= plainEvery {
		return 0 // to measure it
	}
	best, gain := c.best(most, plain)
	if gain <= leastGain {
		if c.wait > 0 {
			return 0
		}
		if c.tries == 0 {
			c.begin()
			best, _ = c.best(most, plain)
		}
	}
	for ; best > 0; best-- {
		if _, wrong, _ := c.times.of(best, true); wrong/plain-1 <= c.room {
			return best
		}
	}
	return 0
}

// best gives the number of drafts with the most gain.
func (c *Control) best(most int, plain float64) (best int, gain float64) {
	for k := 1; k <= most; k++ {
		if g := c.gain(k, plain); g > gain {
			best, gain = k, g
		}
	}
	return best, gain
}

// begin begins a try: what it shows counts more than what was before.
func (c *Control) begin() {
	c.tries = triedRounds
	c.doubt()
}

// gain is the number of tokens in the time of one without drafts.
func (c *Control) gain(k int, plain float64) float64 {
	tokens, all := 1.0, 1.0
	chance := guess
	for j := range k {
		chance = c.chance(j, chance)
		all *= chance
		tokens += all
	}
	right, wrong, _ := c.times.of(k, false)
	return tokens * plain / (all*right + (1-all)*wrong)
}

// Done books a round: how many tokens were drafted, which may be fewer than Next gave, how many of them were right, and
// what it took. Tokens of the round are the right ones and one more.
func (c *Control) Done(drafted, accepted int, took time.Duration) {
	booked := c.times.add(drafted, accepted, took)
	if drafted > 0 {
		c.totals.Add(Totals{1, drafted, accepted})
	}
	if c.fixed {
		return
	}
	c.plain += accepted + 1
	if drafted == 0 {
		c.plain = 0
	}
	c.learn(drafted, accepted)
	plain, _, ok := c.times.of(0, false)
	if !ok || plain <= 0 {
		return
	}
	tokens := float64(accepted + 1)
	c.room += earned * tokens
	if drafted > 0 {
		c.room -= booked/plain - tokens
	}
	c.room = min(c.room, mostRoom)
	c.turn(drafted, tokens, plain)
}

// Charge books time that drafts take beside rounds: for what a draft has to know of the text.
func (c *Control) Charge(took time.Duration) {
	if plain, _, ok := c.times.of(0, false); ok && plain > 0 && !c.fixed {
		c.room -= took.Seconds() / plain
	}
}

// turn decides whether a try goes on and when the next one is.
func (c *Control) turn(drafted int, tokens, plain float64) {
	if drafted == 0 {
		c.wait = math.Max(0, c.wait-tokens)
		return
	}
	if _, gain := c.best(c.most, plain); gain > leastGain {
		c.tries, c.wait, c.pause = triedRounds, 0, firstPause/2
		return
	}
	if c.tries--; c.tries <= 0 {
		c.tries = 0
		c.pause = math.Min(2*c.pause, longestPause)
		c.wait = c.pause
	}
}
