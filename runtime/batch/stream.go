package batch

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Stream is the answer to a request while it comes. It holds its tokens until they are read, so a slow reader delays
// nobody. One goroutine may call its methods; any may call Cancel.
type Stream struct {
	runner  *Runner
	id      schedule.ID
	request Request

	// The fields up to detach belong to the runner's goroutine.
	answer  []int
	counts  map[int]int // how often a token occurs in the answer; nil without a penalty
	mask    []uint64
	failure error
	hidden  []float32       // the hidden state after the last token that was fed, which a draft starts from
	index   speculate.Index // of prompt and answer, for drafts from the text
	rounds  speculate.Log
	member  speculate.Member // what Shared has learned of the stream's drafts
	stop    int
	detach  func() bool // unregisters the stream from the context of Submit

	mu     sync.Mutex
	times  Times
	cached int
	tokens []Token
	end    *End
	err    error
	wake   chan struct{} // capacity 1: something is new
}

// Next waits for the next token. It returns false at the end of the answer, and when ctx ends before.
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

// Tokens ranges over the answer. If the answer failed or was cancelled, the last pair is that error, without a token.
// Leaving the loop cancels the stream.
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

// Read calls each with the tokens of the answer and returns how it ended. each returns whether the answer goes on: if
// not, Read cancels the stream, waits for the running call, and the reason is [Cancelled]. When ctx ends, Read
// cancels the stream and returns the error of ctx at once.
func (s *Stream) Read(ctx context.Context, each func(Token) bool) (End, error) {
	defer s.Cancel()
	left := false
	for ctx.Err() == nil {
		t, ok := s.Next(ctx)
		if !ok {
			break
		}
		if !left && !each(t) { // tokens that come now were drawn before the stream was cancelled
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

// End returns how the answer ended, and the error if it failed. Before Next has returned false it returns the zero
// End.
func (s *Stream) End() (End, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		return End{}, nil
	}
	return *s.end, s.err
}

// Cached returns the number of tokens of the prompt that came from the prefix cache. It is known once there is a
// token.
func (s *Stream) Cached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cached
}

// Times are the moments of a stream. A zero time has not come yet.
type Times struct {
	// Arrived is when the request was submitted, Started when its first call began, First when the call with its
	// first token ended, and Ended when the runner ended the stream.
	Arrived, Started, First, Ended time.Time
}

// Times returns the moments so far.
func (s *Stream) Times() Times {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times
}

// begin records the first call of the stream. cached is the number of prompt tokens before its rows.
func (s *Stream) begin(at time.Time, cached int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times.Started.IsZero() {
		s.times.Started, s.cached = at, cached
	}
}

// answered records that a call has given the stream tokens.
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

// finish ends the stream. The runner calls it once.
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
