package batch

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/speculate"
)

// This file books the outputs of a call: what each of its streams gets, which drafts were right, and which streams end.

// booked is the result of a call for one stream.
type booked struct {
	s      *Stream
	tokens []Token // the right drafts and the token drawn after them, up to a stop token
	drafts int
	right  int // the number of right drafts, counted from the first
	ended  bool
}

// book draws the tokens of a call, in parallel, hands them to the streams, and tells the scheduler. took is the time of
// the call, 0 if it says nothing of other calls.
func (r *Runner) book(call *schedule.Call, outs []Output, masked []bool, took time.Duration) {
	all := make([]*booked, 0, len(call.Entries))
	var draws errgroup.Group
	draws.SetLimit(max(1, runtime.GOMAXPROCS(0)))
	for i, e := range call.Entries {
		if e.Wanted == 0 {
			continue
		}
		given := outs[:e.Wanted]
		outs = outs[e.Wanted:]
		if r.streams[e.ID] == nil {
			continue // it had ended when the call had begun
		}
		b := &booked{s: r.streams[e.ID], drafts: e.Drafts}
		all = append(all, b)
		draws.Go(func() error {
			b.take(given, call.Tokens[e.First+e.Rows-e.Drafts:e.First+e.Rows], masked[i])
			return nil
		})
	}
	draws.Wait() //nolint:errcheck // each stream has an error of its own
	now := time.Now()
	results := make([]schedule.Result, len(all))
	for i, b := range all {
		results[i] = schedule.Result{ID: b.s.id, Ended: b.ended}
		for _, t := range b.tokens {
			results[i].Tokens = append(results[i].Tokens, int32(t.ID))
		}
		b.s.answered(now)
		for _, t := range b.answer() {
			b.s.push(t)
		}
	}
	r.drafts.book(call, all, results, took, r.foreseen != nil)
	r.suspect()
	ended, err := r.sched.Done(results)
	if err != nil {
		panic(err) // one result for each entry that wanted one
	}
	r.ended(ended, nil)
}

// take draws the tokens of a stream from the outputs of its rows, up to the first one that differs from its draft.
func (b *booked) take(outs []Output, drafts []int32, masked bool) {
	s, at := b.s, len(b.s.request.Prompt)+len(b.s.answer)
	defer func() {
		for b.right < min(len(drafts), len(b.tokens)) && b.tokens[b.right].ID == int(drafts[b.right]) {
			b.right++
		}
		if s.request.DraftLog && len(drafts) > 0 {
			s.rounds = append(s.rounds, speculate.Round{At: at, Draft: slices.Clone(drafts), Accepted: b.right})
		}
	}()
	for i, out := range outs {
		t, err := s.take(out, masked)
		if err == nil {
			err = s.advance(t.ID)
		}
		b.tokens, s.failure = append(b.tokens, t), err
		if err != nil || s.stops(t.ID) {
			b.ended, s.stop = true, t.ID
			return
		}
		s.add(t)
		s.hidden = out.Hidden
		if i < len(drafts) && t.ID != int(drafts[i]) || len(s.answer) == s.request.MaxTokens {
			return
		}
	}
}

// answer returns the tokens that belong to the answer: all but a stop token.
func (b *booked) answer() []Token {
	if b.ended {
		return b.tokens[:len(b.tokens)-1]
	}
	return b.tokens
}

func (s *Stream) stops(token int) bool {
	return slices.Contains(s.request.Stop, token)
}

// add appends a token to the answer.
func (s *Stream) add(t Token) {
	s.answer = append(s.answer, t.ID)
	if s.counts != nil {
		s.counts[t.ID]++
	}
}
