package schedule

import (
	"errors"
	"slices"

	"github.com/etc-ml/etc/runtime/cache"
)

// pick is the part of a call for one sequence.
type pick struct {
	q           *sequence
	decode      bool // the row of a running stream, else rows of a prompt
	rows        int  // drafts not counted
	drafts      int
	checkpoints []checkpoint // ascending
	first       int          // the first of its rows in the call
	wanted      bool         // the call wants a token of it
	ended       bool         // the table counts its rows already: see Ahead
}

// checkpoint is a position within the rows of a pick whose state is kept. A spare one only has a regular distance from
// the others; nobody is known to come back to it.
type checkpoint struct {
	at    int
	spare bool
}

func isSpare(c checkpoint) bool { return c.spare }

// wants reports whether the pick feeds the last token that is known.
func (p *pick) wants() bool { return p.rows == p.q.left() }

// Next returns the next call, or nil when no sequence has anything to do. The slices of a call are the
// caller's until Done.
func (s *Scheduler) Next() (*Call, error) {
	if s.flight != nil {
		return nil, errors.New("schedule: Next was called again before Done")
	}
	if s.ahead != nil {
		return s.takeAhead(), nil
	}
	s.short = false
	s.admit()
	picks := s.pick()
	slices.SortFunc(picks, func(a, b *pick) int { return a.q.order - b.q.order })
	call := &Call{}
	for _, p := range picks {
		if p.q.table == nil { // preempted by an older one of this call
			continue
		}
		if !s.begin(p, call) {
			s.stats.Stalled++
			continue
		}
		s.flight = append(s.flight, p)
	}
	if len(s.flight) == 0 {
		return nil, nil
	}
	for _, p := range s.flight {
		s.enter(p, call)
	}
	s.stats.Calls++
	return call, nil
}

// pick chooses the rows of all sequences by their number alone; begin looks at memory.
func (s *Scheduler) pick() []*pick {
	var picks []*pick
	for _, q := range s.running {
		if q.decoding() {
			picks = append(picks, &pick{q: q, decode: true, rows: 1})
		}
	}
	decoding := picks
	left := s.config.Rows - len(decoding)
	budget := left
	if len(decoding) > 0 {
		budget = min(left, s.config.Chunk)
	}
	prompts, used := s.turn(budget)
	s.draft(decoding, left-used)
	return append(picks, prompts...)
}

// turn gives the prompts their rows: deficit round robin. The prompt in front has a quantum; when it has
// used it, it goes to the end. A turn that the budget cuts goes on with the next call. A prompt that comes
// goes to the end, so that whatever arrives it waits for at most one quantum of each that is admitted.
func (s *Scheduler) turn(budget int) ([]*pick, int) {
	given := map[*sequence]*pick{}
	var picks []*pick
	var whole []*sequence
	used := 0
	for queue := s.turns; ; {
		if len(queue) == 0 || used == budget {
			s.turns = append(queue, whole...)
			return picks, used
		}
		q := queue[0]
		if given[q] == nil {
			given[q] = &pick{q: q}
			picks = append(picks, given[q])
		}
		p := given[q]
		if q.deficit == 0 {
			q.deficit = s.config.Quantum
		}
		n := min(q.left()-p.rows, q.deficit, budget-used)
		p.rows, q.deficit, used = p.rows+n, q.deficit-n, used+n
		switch {
		case p.rows == q.left(): // it leaves the turns with Done, unless memory has no room for it now
			q.deficit = 0
			queue, whole = queue[1:], append(whole, q)
		case q.deficit == 0:
			queue = append(queue[1:], q)
		}
	}
}

// draft gives decoding sequences rows to verify their drafts, the first of them another one with each call.
func (s *Scheduler) draft(decoding []*pick, left int) {
	for i := range decoding {
		p := decoding[(i+s.stats.Calls)%len(decoding)]
		p.drafts = min(len(p.q.drafts), p.q.mayDraft(), left)
		left -= p.drafts
	}
}

// begin makes room for a pick. Short of memory it does without spare checkpoints, then without the others, then without
// drafts, then takes from sequences that arrived later and are not in the call yet; all later ones are not.
func (s *Scheduler) begin(p *pick, call *Call) bool {
	p.checkpoints = s.checkpoints(p)
	for {
		x := cache.Extent{Rows: p.rows + p.drafts, Exact: p.drafts > 0}
		for _, c := range p.checkpoints {
			if rows := c.at - p.q.table.Pos(); rows < x.Rows && s.memory.Layout().SlotBytes > 0 {
				x.Checkpoints = append(x.Checkpoints, rows)
			}
		}
		if s.prefix.Reclaim(p.q.table.Demand(x)) {
			copies, _ := p.q.table.Begin(x)
			call.Copies = append(call.Copies, copies...)
			return true
		}
		youngest := s.running[len(s.running)-1]
		switch {
		case len(x.Checkpoints) > 0 && slices.ContainsFunc(p.checkpoints, isSpare):
			p.checkpoints = slices.DeleteFunc(p.checkpoints, isSpare)
		case len(x.Checkpoints) > 0:
			p.checkpoints = nil
		case p.drafts > 0:
			p.drafts = 0
		case youngest.order > p.q.order:
			s.preempt(youngest)
		default:
			return false
		}
	}
}

// checkpoints returns the positions within the rows of a prompt whose state is worth keeping: the marks of the
// caller, every some hundred positions, where another prompt parted, and before the last token of the prompt,
// where the same prompt would resume.
func (s *Scheduler) checkpoints(p *pick) []checkpoint {
	if p.decode || !s.memory.Layout().Checkpoints() || !s.prefix.On() {
		return nil
	}
	q := p.q
	start, end := q.table.Pos(), q.table.Pos()+p.rows
	var out []checkpoint
	for _, at := range append([]int{q.junction, len(q.Prompt) - 1}, q.Marks...) {
		out = append(out, checkpoint{at: at})
	}
	if every := s.distance(len(q.tokens)); every > 0 {
		for at := (start/every + 1) * every; at <= end; at += every {
			out = append(out, checkpoint{at, true})
		}
	}
	// Stable: of two at the same position the spare one goes.
	slices.SortStableFunc(out, func(a, b checkpoint) int { return a.at - b.at })
	out = slices.CompactFunc(out, func(a, b checkpoint) bool { return a.at == b.at })
	return slices.DeleteFunc(out, func(c checkpoint) bool { return c.at <= start || c.at > end })
}

// distance returns the positions between the spare checkpoints of n tokens, 0: there are none. It is CheckpointEvery
// times a power of two, so that prompts of different lengths with the same beginning have some at the same positions.
func (s *Scheduler) distance(n int) int {
	every := s.config.CheckpointEvery
	if most := s.config.CheckpointMost; most > 0 && every > 0 {
		for n/every > most {
			every *= 2
		}
	}
	return every
}

// enter writes the entry of a pick for which there is room.
func (s *Scheduler) enter(p *pick, call *Call) {
	q := p.q
	p.first, p.wanted = len(call.Tokens), p.wants()
	wanted := 0
	if p.wanted {
		wanted = 1 + p.drafts
	}
	e := p.entry(wanted)
	call.Tokens = append(call.Tokens, q.tokens[e.Start:e.Start+p.rows]...)
	call.Tokens = append(call.Tokens, q.drafts[:p.drafts]...)
	call.Entries = append(call.Entries, e)
	s.stats.Rows += e.Rows
	s.stats.DraftRows += p.drafts
	if p.decode {
		s.stats.DecodeRows += p.rows
	} else {
		s.stats.PromptRows += p.rows
	}
}

// entry returns the entry of a pick in a call that wants so many tokens of it.
func (p *pick) entry(wanted int) Entry {
	t := p.q.table
	return Entry{ID: p.q.ID, First: p.first, Rows: p.rows + p.drafts, Start: t.Pos(), Drafts: p.drafts, Wanted: wanted,
		Blocks: t.Blocks(), Rings: slices.Clone(t.Rings()), Reads: t.Reads(), Writes: t.Writes()}
}
