package schedule

import (
	"fmt"
	"slices"
)

// Done tells what the call of Next gave: one result for each entry that wanted tokens, in any order. It
// returns the sequences that have ended since the last Done. With an error nothing has changed, and the call
// is still to be answered, with Done or with Fail.
func (s *Scheduler) Done(results []Result) ([]End, error) {
	if s.flight == nil {
		return nil, fmt.Errorf("schedule: Done without a call")
	}
	of := map[ID]*Result{}
	for i := range results {
		of[results[i].ID] = &results[i]
	}
	if err := s.validate(of, len(results)); err != nil {
		return nil, err
	}
	flight := s.flight
	s.flight = nil
	for _, p := range flight {
		s.settle(p, of[p.q.ID])
	}
	s.prefix.Trim()
	return s.Ended(), nil
}

// Drafted gives the drafts of a sequence of the call of Next that were not known when it was planned: as many as its
// entry has. The caller puts them into the call's Tokens itself.
func (s *Scheduler) Drafted(id ID, drafts []int32) error {
	for _, p := range s.flight {
		if p.q.ID != id {
			continue
		}
		if len(drafts) != p.drafts {
			return fmt.Errorf("sequence %d: %d drafts, the call has rows for %d", id, len(drafts), p.drafts)
		}
		p.q.drafts = slices.Clone(drafts)
		return nil
	}
	return fmt.Errorf("sequence %d has drafts and is not in the call", id)
}

// validate compares results with what the call asked for.
func (s *Scheduler) validate(of map[ID]*Result, n int) error {
	wanted := 0
	for _, p := range s.flight {
		if !p.wanted {
			continue
		}
		wanted++
		r := of[p.q.ID]
		if r == nil {
			return fmt.Errorf("sequence %d: the call wanted a token and there is no result", p.q.ID)
		}
		accepted := len(r.Tokens) - 1
		if accepted < 0 || accepted > p.drafts {
			return fmt.Errorf("sequence %d: the result has %d tokens, want 1 to %d", p.q.ID, len(r.Tokens), 1+p.drafts)
		}
		if len(r.Drafts) > 0 && s.aheadOf(p.q) != nil {
			return fmt.Errorf("sequence %d: %d drafts for a call that Ahead has planned without them", p.q.ID, len(r.Drafts))
		}
		if !slices.Equal(r.Tokens[:accepted], p.q.drafts[:accepted]) {
			return fmt.Errorf("sequence %d: the tokens %v that stand do not begin with the drafts %v", p.q.ID, r.Tokens,
				p.q.drafts[:p.drafts])
		}
	}
	if n != wanted || len(of) != wanted {
		return fmt.Errorf("schedule: %d results for %d entries that wanted tokens", n, wanted)
	}
	return nil
}

// settle books one entry of a call.
func (s *Scheduler) settle(p *pick, r *Result) {
	q := p.q
	if !p.ended {
		q.table.End()
	}
	if r == nil { // a part of a prompt
		s.insert(p)
		q.table.Settle()
		if q.decoding() { // only the token that was drawn last is left of a sequence that was filled again
			s.turns = remove(s.turns, q)
		}
		if q.cancelled {
			s.finish(q, Cancelled)
		}
		return
	}
	if next := s.aheadOf(q); next != nil {
		s.ahead.call.Tokens[next.first] = r.Tokens[0]
	} else {
		// The rows of drafts that do not stand are taken back; their states were kept.
		if err := q.table.Rollback(p.drafts - (len(r.Tokens) - 1)); err != nil {
			panic(err)
		}
		s.insert(p)
		q.table.Settle()
	}
	s.turns = remove(s.turns, q)
	q.tokens, q.drafts = append(q.tokens, r.Tokens...), nil
	if q.Drafts > 0 {
		q.drafts = slices.Clone(r.Drafts[:min(len(r.Drafts), q.Drafts)])
	}
	switch {
	case r.Ended:
		s.finish(q, Stopped)
	case q.cancelled:
		s.finish(q, Cancelled)
	case q.drawn() >= q.MaxTokens:
		s.finish(q, Length)
	}
}

// insert puts the rows of a prompt that have run into the prefix tree: its checkpoints, or its whole blocks.
func (s *Scheduler) insert(p *pick) {
	if p.decode {
		return
	}
	s.stuck = false // a prompt that waits may find more of its tokens in the tree now
	for _, c := range p.checkpoints {
		if c.spare {
			s.prefix.InsertSpare(p.q.tokens, p.q.table, c.at)
		} else {
			s.prefix.Insert(p.q.tokens, p.q.table, c.at)
		}
	}
	if l := s.memory.Layout(); !l.Checkpoints() {
		s.prefix.Insert(p.q.tokens, p.q.table, p.q.table.Pos()/l.BlockRows*l.BlockRows)
	}
}

// Fail ends the sequences of the call of Next, whose caches nobody can trust, and returns all that have ended
// since the last Done. The others go on.
func (s *Scheduler) Fail() []End {
	flight := s.flight
	s.flight, s.ahead = nil, nil // the call ahead has the same sequences
	for _, p := range flight {
		s.finish(p.q, Failed)
	}
	return s.Ended()
}

// Ended returns the sequences that have ended since it, Done or Fail was called last. A caller asks for them
// after Cancel, when no call is to come.
func (s *Scheduler) Ended() []End {
	ended := s.ended
	s.ended = nil
	return ended
}
