package schedule

import (
	"slices"

	"github.com/etc-ml/etc/runtime/cache"
)

// This file plans a call before the tokens of the call before it are known, so that an executor can begin it meanwhile.
// That is possible where the first call has a decoding row of every running sequence and nothing else: the next one has
// the same sequences, each one position further, if none of them ends.
//
// The rows of such a call must leave no trace if they are not wanted in the end. So a row writes the recurrent state to
// a new slot, as the row of a draft does. The scheduler takes an unwanted row back in the same way as a wrong draft.

// ahead is a call that was planned before the call before it had ended.
type ahead struct {
	call *Call
	// picks are those of the sequences that have not ended. The call keeps the rows of those that have: pick.first says
	// which row of the call a sequence has.
	picks []*pick
	// short says that a sequence of the call has ended.
	short bool
}

// Ahead returns the call that follows the one of Next if each of its sequences gets one token and does not end. Done
// fills in its Tokens; it has no copies. The next Next returns the same call. A sequence that ends before that keeps
// its row in the call, but Done takes no result for it. If all sequences end, Next plans another call.
//
// Ahead returns nil where another call may follow: where a prompt runs or can be admitted, a sequence has drafts in
// the call of Next or gets its last token now, or memory has no room. It is called at most once for a call of Next. The
// planned call has no drafts, so Done takes none after Ahead has planned one.
func (s *Scheduler) Ahead() *Call {
	if !s.foreseeable() {
		return nil
	}
	x := cache.Extent{Rows: 1, Exact: true}
	need := make(cache.Demand, s.memory.Layout().Pools())
	for _, p := range s.flight {
		p.q.table.End()
		p.ended = true
		need.Add(p.q.table.Demand(x))
	}
	if slices.ContainsFunc(s.flight, func(p *pick) bool { return p.q.table.Shares() }) || !s.prefix.Reclaim(need) {
		return nil
	}
	a := &ahead{call: &Call{Tokens: make([]int32, len(s.flight))}}
	for row, p := range s.flight {
		p.q.table.Begin(x)
		next := &pick{q: p.q, decode: true, rows: 1, first: row, wanted: true}
		a.picks = append(a.picks, next)
		a.call.Entries = append(a.call.Entries, next.entry(1))
	}
	s.ahead = a
	return a.call
}

// foreseeable reports whether the call of Next is followed by one of the same sequences, unless one of them ends.
func (s *Scheduler) foreseeable() bool {
	admits := len(s.waiting) > 0 && !s.stuck && len(s.running) < s.config.Sequences
	return len(s.flight) > 0 && len(s.flight) == len(s.running) && s.ahead == nil && !s.short && !admits &&
		!slices.ContainsFunc(s.flight, func(p *pick) bool {
			return !p.decode || p.ended || p.drafts > 0 || p.q.cancelled || p.q.drawn()+1 >= p.q.MaxTokens
		})
}

// takeAhead makes the call of Ahead the call of Next.
func (s *Scheduler) takeAhead() *Call {
	a := s.ahead
	s.ahead, s.flight, s.short = nil, a.picks, a.short
	s.stats.Calls++
	s.stats.Rows += len(a.picks)
	s.stats.DecodeRows += len(a.picks)
	return a.call
}

// aheadOf returns the part of the call of Ahead for a sequence, nil where it has none.
func (s *Scheduler) aheadOf(q *sequence) *pick {
	if s.ahead != nil {
		for _, p := range s.ahead.picks {
			if p.q == q {
				return p
			}
		}
	}
	return nil
}

// retract takes back the row that the call of Ahead has for a sequence, if it has one.
func (s *Scheduler) retract(q *sequence) {
	if s.aheadOf(q) == nil {
		return
	}
	q.table.End()
	if err := q.table.Rollback(1); err != nil {
		panic(err) // Ahead has kept the state before the row
	}
	q.table.Settle()
	s.ahead.picks = slices.DeleteFunc(s.ahead.picks, func(p *pick) bool { return p.q == q })
	if s.ahead.short = true; len(s.ahead.picks) == 0 {
		s.ahead = nil
	}
}
