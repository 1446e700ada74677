package batch_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/schedule"
)

// random makes a request. Some share their beginnings.
func random(r *rand.Rand, sampler bool) batch.Request {
	q := plain()
	common := []int{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22}
	q.Prompt = append(q.Prompt, common[:r.IntN(len(common))]...)
	for range 1 + r.IntN(20) {
		q.Prompt = append(q.Prompt, 4+r.IntN(testVocab-4))
	}
	q.MaxTokens = 1 + r.IntN(20)
	if sampler && r.IntN(2) == 0 {
		q.Sampling = batch.Sampling{Temperature: r.Float32() * 2, TopK: int64(r.IntN(10)), TopP: 1 - r.Float32()/2,
			Seed: int64(r.Int32())}
	}
	return q
}

// TestManyAnswerAsOneAlone: what a stream gives does not depend on who runs beside it, on cancelled streams, on the
// prefix cache or on preemption.
func TestManyAnswerAsOneAlone(t *testing.T) {
	for name, c := range map[string]struct {
		sampler, stays    bool
		sequences, states int
	}{
		"logits":      {false, false, 4, 20},
		"tokens":      {true, false, 4, 20},
		"short":       {false, false, 6, 5},
		"no copies":   {true, true, 3, 3},
		"one by one":  {false, false, 1, 2},
		"many states": {false, false, 16, 200},
	} {
		t.Run(name, func(t *testing.T) {
			random1 := rand.New(rand.NewPCG(7, 9))
			run := start(t, &hasher{stays: c.stays}, c.sampler, c.sequences, c.states)
			var wait sync.WaitGroup
			for range 60 {
				q := random(random1, c.sampler)
				cancelled := random1.IntN(5) == 0
				ctx, cancel := context.WithCancel(t.Context())
				s, err := run.Submit(ctx, q)
				require.NoError(t, err)
				wait.Go(func() {
					defer cancel()
					if cancelled {
						s.Next(ctx)
						cancel()
						drain(t, s)
						return
					}
					got, end := collect(t, s)
					want := alone(t, c.sampler, q)
					require.Equal(t, want.Tokens, slices.Clip(got), "prompt %v", q.Prompt)
					require.Equal(t, string(want.Reason), end.Reason.String())
				})
			}
			wait.Wait()
			stats := run.Stats()
			require.Zero(t, stats.Running+stats.Waiting)
			require.Zero(t, run.Active())
			require.Equal(t, stats.Used, stats.Idle, "blocks are held by nobody")
		})
	}
}

func TestPrefixIsNotComputedAgain(t *testing.T) {
	run := start(t, &hasher{}, false, 2, 40)
	q := plain(5, 6, 7, 8, 9, 10, 11, 12, 13)
	first, err := run.Submit(t.Context(), q)
	require.NoError(t, err)
	answer, end := collect(t, first)
	require.Zero(t, end.Cached)
	again, err := run.Submit(t.Context(), q)
	require.NoError(t, err)
	same, end := collect(t, again)
	require.Equal(t, answer, same)
	kept := len(q.Prompt) + len(answer)
	if end.Reason == batch.Length {
		kept-- // its last token was not fed
	}
	require.Equal(t, len(q.Prompt)-1, end.Cached)
	turn := plain(append(append(slices.Clone(q.Prompt), answer...), 20, 21)...)
	next, err := run.Submit(t.Context(), turn)
	require.NoError(t, err)
	got, end := collect(t, next)
	require.Equal(t, alone(t, false, turn).Tokens, got)
	require.Equal(t, kept, end.Cached, "the answer's state is kept too")
}

// TestDeviceErrorEndsItsCallOnly: the streams of a call that failed fail, and what comes after is right.
func TestDeviceErrorEndsItsCallOnly(t *testing.T) {
	e := &hasher{}
	run := start(t, e, false, 2, 20)
	q := plain(5, 6, 7)
	before, err := run.Submit(t.Context(), q)
	require.NoError(t, err)
	want, _ := collect(t, before)
	e.fail.Store(3)
	broken, err := run.Submit(t.Context(), plain(9, 9, 9, 9, 4))
	require.NoError(t, err)
	for range 20 {
		if _, ok := broken.Next(t.Context()); !ok {
			break
		}
	}
	_, err = broken.End()
	require.ErrorIs(t, err, errDevice)
	after, err := run.Submit(t.Context(), q)
	require.NoError(t, err)
	got, _ := collect(t, after)
	require.Equal(t, want, got)
	require.EqualValues(t, 1, run.Stats().Failed)
}

// TestNobodyWaitsForASlowReader: a stream that nobody reads does not keep others from their tokens.
func TestNobodyWaitsForASlowReader(t *testing.T) {
	run := start(t, &hasher{}, false, 2, 20)
	slow := plain(5, 6)
	slow.MaxTokens, slow.Stop = 50, nil
	unread, err := run.Submit(t.Context(), slow)
	require.NoError(t, err)
	for range 10 {
		s, err := run.Submit(t.Context(), plain(7, 8))
		require.NoError(t, err)
		collect(t, s)
	}
	got, _ := collect(t, unread)
	require.Len(t, got, 50)
}

// TestCancelAbandonsTheCall: a call that nobody waits for any more does not run to its end, and its slot is usable.
func TestCancelAbandonsTheCall(t *testing.T) {
	e := &hasher{entered: make(chan struct{}, 1000), blocked: make(chan struct{})}
	run := start(t, e, false, 2, 20)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := run.Submit(ctx, plain(5, 6, 7))
	require.NoError(t, err)
	<-e.entered
	cancel()
	got, end := collect(t, s)
	require.Empty(t, got)
	require.Equal(t, batch.Cancelled, end.Reason)
	close(e.blocked)
	q := plain(5, 6, 7)
	s, err = run.Submit(t.Context(), q)
	require.NoError(t, err)
	got, _ = collect(t, s)
	require.Equal(t, alone(t, false, q).Tokens, got)
}

// TestStatsOfAnIdleRunner: what a stream held that was cancelled between two calls is not told as held any more.
func TestStatsOfAnIdleRunner(t *testing.T) {
	x, err := batch.NewOneByOne(load(t, &hasher{}, false), 100, 1, "")
	require.NoError(t, err)
	submitted := make(chan *batch.Stream, 1)
	run, err := batch.New(x, batch.Options{Budget: 1000, Observe: func(batch.Step) {
		select {
		case s := <-submitted:
			s.Cancel()
			submitted <- s
		default: // the call after the one that saw the stream
		}
	}})
	require.NoError(t, err)
	s, err := run.Submit(t.Context(), plain(5, 6, 7))
	require.NoError(t, err)
	submitted <- s
	collect(t, s)
	for st := run.Stats(); st.Used > st.Idle || st.Running+st.Waiting > 0 || st.Pressure > 0; st = run.Stats() {
		runtime.Gosched()
	}
	require.NoError(t, run.Close())
}

func TestQueueIsBounded(t *testing.T) {
	e := &hasher{entered: make(chan struct{}, 1000), blocked: make(chan struct{})}
	x, err := batch.NewOneByOne(load(t, e, false), 100, 1, "")
	require.NoError(t, err)
	run, err := batch.New(x, batch.Options{Queue: 1, Budget: 1000})
	require.NoError(t, err)
	defer run.Close()
	first, err := run.Submit(t.Context(), plain(5))
	require.NoError(t, err)
	second, err := run.Submit(t.Context(), plain(6))
	require.NoError(t, err)
	_, err = run.Submit(t.Context(), plain(7))
	require.ErrorIs(t, err, batch.ErrFull)
	close(e.blocked)
	collect(t, first)
	collect(t, second)
	third, err := run.Submit(t.Context(), plain(7))
	require.NoError(t, err)
	collect(t, third)
}

func TestCloseEndsStreams(t *testing.T) {
	e := &hasher{entered: make(chan struct{}, 1000), blocked: make(chan struct{})}
	x, err := batch.NewOneByOne(load(t, e, false), 100, 1, "")
	require.NoError(t, err)
	run, err := batch.New(x, batch.Options{Queue: 5, Budget: 1000})
	require.NoError(t, err)
	running, err := run.Submit(t.Context(), plain(5))
	require.NoError(t, err)
	waiting, err := run.Submit(t.Context(), plain(6))
	require.NoError(t, err)
	<-e.entered
	require.NoError(t, run.Close())
	for _, s := range []*batch.Stream{running, waiting} {
		_, end := collect(t, s)
		require.Equal(t, batch.Cancelled, end.Reason)
	}
	_, err = run.Submit(t.Context(), plain(5))
	require.ErrorIs(t, err, batch.ErrClosed)
	require.Zero(t, e.open.Load())
}

func TestRequestsAreChecked(t *testing.T) {
	logits, tokens := start(t, &hasher{}, false, 1, 4), start(t, &hasher{}, true, 1, 4)
	long := make([]int, testContext)
	for name, c := range map[string]struct {
		change func(*batch.Request)
		want   string
		head   bool // only a program with a sampling head refuses it
	}{
		"empty":       {func(q *batch.Request) { q.Prompt = nil }, "Prompt", false},
		"unknown":     {func(q *batch.Request) { q.Prompt = []int{testVocab} }, "Prompt", false},
		"negative":    {func(q *batch.Request) { q.Prompt = []int{-1} }, "Prompt", false},
		"temperature": {func(q *batch.Request) { q.Sampling.Temperature = -1 }, "Temperature", false},
		"top-p":       {func(q *batch.Request) { q.Sampling.TopP = 0 }, "TopP", false},
		"min-p":       {func(q *batch.Request) { q.Sampling.MinP = 2 }, "MinP", false},
		"bias":        {func(q *batch.Request) { q.Sampling.Bias = map[int]float32{testVocab: 1} }, "Bias", false},
		"min-p head":  {func(q *batch.Request) { q.Sampling.MinP = .1 }, "MinP", true},
		"repeat head": {func(q *batch.Request) { q.Sampling.Repeat = 1.1 }, "Repeat", true},
		"logprobs":    {func(q *batch.Request) { q.Logprobs = 0 }, "Logprobs", true},
		"presence":    {func(q *batch.Request) { q.Sampling.Presence = 1 }, "Presence", true},
	} {
		q := plain(5)
		c.change(&q)
		for _, run := range []*batch.Runner{logits, tokens} {
			s, err := run.Submit(t.Context(), q)
			if c.head && run == logits {
				require.NoError(t, err, name)
				collect(t, s)
				continue
			}
			var bad *batch.ParameterError
			require.ErrorAs(t, err, &bad, name)
			require.Equal(t, c.want, bad.Name, name)
		}
	}
	_, err := logits.Submit(t.Context(), plain(long...))
	var context *batch.ContextError
	require.ErrorAs(t, err, &context)
	small := start(t, &hasher{}, false, 1, 1)
	_, err = small.Submit(t.Context(), plain(5))
	require.ErrorIs(t, err, schedule.ErrTooLong)
}

// TestRead: all tokens until the answer ends, those until the reader has enough, and none where its context ends.
func TestRead(t *testing.T) {
	run, q := start(t, &hasher{}, false, 1, 4), plain(5, 6)
	q.Stop = nil
	want := alone(t, false, q).Tokens
	for enough, reason := range map[int]batch.Reason{len(want) + 1: batch.Length, 2: batch.Cancelled} {
		s, err := run.Submit(t.Context(), q)
		require.NoError(t, err)
		var got []int
		end, err := s.Read(t.Context(), func(token batch.Token) bool {
			got = append(got, token.ID)
			return len(got) < enough
		})
		require.NoError(t, err)
		require.Equal(t, want[:min(enough, len(want))], got)
		require.Equal(t, reason, end.Reason)
		require.Zero(t, run.Active())
	}
	s, err := run.Submit(t.Context(), q)
	require.NoError(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = s.Read(ended, func(batch.Token) bool { return true })
	require.ErrorIs(t, err, context.Canceled)
}

func TestTokensRange(t *testing.T) {
	run := start(t, &hasher{}, false, 1, 4)
	q := plain(5, 6)
	s, err := run.Submit(t.Context(), q)
	require.NoError(t, err)
	var got []int
	for token, err := range s.Tokens(t.Context()) {
		require.NoError(t, err)
		got = append(got, token.ID)
	}
	require.Equal(t, alone(t, false, q).Tokens, got)
	s, err = run.Submit(t.Context(), q)
	require.NoError(t, err)
	for range s.Tokens(t.Context()) {
		break // cancels
	}
	require.Eventually(t, func() bool { return run.Active() == 0 }, 10*time.Second, time.Millisecond)
}
