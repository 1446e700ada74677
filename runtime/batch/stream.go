package batch

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Stream is a sequence on its way. Tokens wait in it until they are read, so a slow reader delays nobody. Its methods
// may be called by one goroutine beside Cancel.
type Stream struct {
	runner  *Runner
	id      schedule.ID
	request Request

	// Of the runner's goroutine.
	answer  []int
	counts  map[int]int // of the tokens of the answer, where a penalty needs them
	mask    []uint64
	failure error
	hidden  []float32       // behind the last token that was fed, for a draft that starts from it
	index   speculate.Index // of prompt and answer, where drafts come from the text
	rounds  speculate.Log
	member  speculate.Member // what is known of the drafts of the stream
	stop    int
	detach  func() bool // from the context of Submit

	mu     sync.Mutex
	times  Times
	cached int
	tokens []Token
	end    *End
	err    error
	wake   chan struct{} // of one element: something is new
}

// Next gives the next token; false at the end, and when ctx ends before.
func (s *Stream) Next(ctx context.Context) (Token, bool) {
	for {
		s.mu.Lock()
		if len(s.tokens) > 0 {
			t := s.tokens[0]
			s.tokens = s.tokens[1:]
			s.mu.Unlock()
			return t, true
		}
		ended := s.end != nil
		s.mu.Unlock()
		if ended {
			return Token{}, false
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return Token{}, false
		}
	}
}

// Tokens ranges over the answer. The error is that of an answer that failed or was cancelled; it comes last, with no
// token. A loop that is left cancels the stream.
func (s *Stream) Tokens(ctx context.Context) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		left := false
		end, err := s.Read(ctx, func(t Token) bool {
			if left = !yield(t, nil); left {
				leave()
			}
			return !left
		})
		switch {
		case left:
		case err != nil:
			yield(Token{}, err)
		case end.Reason == Cancelled:
			yield(Token{}, context.Canceled)
		}
	}
}

// Read hands the tokens of the answer to each, which tells whether the answer goes on, and says how the answer ended.
// Where each has ended it, that is [Cancelled], and Read waits for the call that runs. When ctx ends, Read cancels the
// stream and returns the error of ctx at once.
func (s *Stream) Read(ctx context.Context, each func(Token) bool) (End, error) {
	defer s.Cancel()
	left := false
	for ctx.Err() == nil {
		t, ok := s.Next(ctx)
		if !ok {
			break
		}
		if !left && !each(t) { // what comes then was drawn before the stream knew
			left = true
			s.Cancel()
		}
	}
	if err := ctx.Err(); err != nil {
		return End{}, err
	}
	end, err := s.End()
	if left {
		end.Reason = Cancelled
	}
	return end, err
}

// Cancel ends the stream within one call of the program. It may be called at any time, more than once.
func (s *Stream) Cancel() { s.runner.cancel(s) }

// End says how the answer ended; the error is that of one that failed. Before Next gave false it is the zero End.
func (s *Stream) End() (End, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		return End{}, nil
	}
	return *s.end, s.err
}

// Cached is how many tokens of the prompt were not computed. It is known when the first token is there.
func (s *Stream) Cached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cached
}

// Times are moments of a stream; zero is what has not come yet.
type Times struct {
	// Arrived is when the request was submitted, Started when its first call began, First when the call ended that
	// gave the first token, and Ended when the runner ended the stream.
	Arrived, Started, First, Ended time.Time
}

// Times tells what has happened so far.
func (s *Stream) Times() Times {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times
}

// begin notes the first call of the stream, which begins behind the tokens that were cached.
func (s *Stream) begin(at time.Time, cached int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times.Started.IsZero() {
		s.times.Started, s.cached = at, cached
	}
}

// answered notes that a call has given tokens.
func (s *Stream) answered(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times.First.IsZero() {
		s.times.First = at
	}
}

// push hands a token to the reader.
func (s *Stream) push(t Token) {
	s.mu.Lock()
	s.tokens = append(s.tokens, t)
	s.mu.Unlock()
	s.notify()
}

func (s *Stream) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// finish ends the stream. It is called once, by the runner.
func (s *Stream) finish(reason Reason, err error) {
	s.detach()
	s.mu.Lock()
	s.times.Ended = time.Now()
	t := s.times
	s.mu.Unlock()
	e := End{Reason: reason, Stop: s.stop, Tokens: len(s.answer), Cached: s.Cached(),
		Drafts: s.member.Totals(), Rounds: s.rounds}
	switch {
	case t.Started.IsZero():
		e.Queued = t.Ended.Sub(t.Arrived)
	case t.First.IsZero():
		e.Queued, e.Prefill = t.Started.Sub(t.Arrived), t.Ended.Sub(t.Started)
	default:
		e.Queued, e.Prefill, e.Decode = t.Started.Sub(t.Arrived), t.First.Sub(t.Started), t.Ended.Sub(t.First)
	}
	s.mu.Lock()
	s.end, s.err = &e, err
	s.mu.Unlock()
	s.notify()
}
