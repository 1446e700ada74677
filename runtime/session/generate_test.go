package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

// How answers end, and how many tokens are fed for them.
func TestGenerate(t *testing.T) {
	for _, test := range []struct {
		name   string
		r      session.Request
		want   []int
		reason session.StopReason
		fed    int // tokens fed after the prompt
	}{
		{"length", session.Request{Prompt: sequence(0, 3), MaxNewTokens: 4}, sequence(3, 4), session.StopLength, 3},
		{"one token", session.Request{Prompt: sequence(0, 3), MaxNewTokens: 1}, sequence(3, 1), session.StopLength, 0},
		{"a stop token is not part of the answer", session.Request{Prompt: sequence(0, 3), Stop: []int{9, 6}},
			sequence(3, 3), session.StopEOS, 3},
		{"a stop token first", session.Request{Prompt: sequence(0, 3), Stop: []int{3}}, nil, session.StopEOS, 0},
		{"length before the stop token", session.Request{Prompt: sequence(0, 3), Stop: []int{6}, MaxNewTokens: 3},
			sequence(3, 3), session.StopLength, 2},
		{"full context", session.Request{Prompt: sequence(0, 20)}, sequence(20, 4), session.StopLength, 3},
		{"a prompt that fills the context", session.Request{Prompt: sequence(0, testContext)}, nil,
			session.StopLength, 0},
		{"forced tokens set the length", session.Request{Prompt: sequence(0, 3), Force: []int{9, 9, 2}}, []int{9, 9, 2},
			session.StopLength, 2},
		{"forced stop tokens do not stop", session.Request{Prompt: sequence(0, 3), Force: []int{6, 6}, Stop: []int{6}},
			[]int{6, 6}, session.StopLength, 1},
		{"the last token fed too", session.Request{Prompt: sequence(0, 3), Force: []int{9, 9, 2}, FeedLast: true},
			[]int{9, 9, 2}, session.StopLength, 3},
		{"the last generated token fed too", session.Request{Prompt: sequence(0, 3), MaxNewTokens: 2, FeedLast: true},
			sequence(3, 2), session.StopLength, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, m := range []struct {
				name   string
				engine *scripted
				load   func() (*session.Model, *session.Session)
			}{{name: "sampler", engine: &scripted{answer: count}},
				{name: "logits", engine: &scripted{answer: countLogits}}} {
				module := samplerModule()
				if m.name == "logits" {
					module = logitsModule()
				}
				_, s := start(t, module, m.engine)
				r := test.r
				r.Sampling = session.Greedy
				var seen []int
				r.Token = func(token int) bool { seen = append(seen, token); return true }
				rows := 0
				r.Logits = func(row []float32) error {
					if m.name == "logits" {
						require.Len(t, row, testVocab)
					}
					rows++
					return nil
				}
				a, err := s.Generate(context.Background(), r)
				require.NoError(t, err)
				require.Equal(t, test.want, a.Tokens, m.name)
				require.Equal(t, test.want, seen, m.name)
				require.Equal(t, test.reason, a.Reason, m.name)
				require.Equal(t, test.fed, a.Decoded, m.name)
				require.Equal(t, 1+test.fed, rows, "a row after the prompt and one after every token that is fed")
				require.Equal(t, len(r.Prompt)+test.fed, s.Position(), m.name)
				require.Equal(t, append(append([]int{}, r.Prompt...), test.want...)[:s.Position()],
					m.engine.fed(t), m.name)
			}
		})
	}
}

// A turn goes on where the last one ended.
func TestTurns(t *testing.T) {
	e := &scripted{answer: count}
	_, s := start(t, samplerModule(), e)
	first, err := s.Generate(context.Background(),
		session.Request{Prompt: []int{1, 2}, Sampling: session.Greedy, MaxNewTokens: 3})
	require.NoError(t, err)
	require.Equal(t, []int{3, 4, 5}, first.Tokens)
	second, err := s.Generate(context.Background(),
		session.Request{Prompt: []int{5, 8}, Sampling: session.Greedy, MaxNewTokens: 2})
	require.NoError(t, err)
	require.Equal(t, []int{9, 10}, second.Tokens)
	require.Equal(t, []int{1, 2, 3, 4, 5, 8, 9}, e.fed(t))
}

// A later turn without a length ends where the context does.
func TestTurnToTheEnd(t *testing.T) {
	_, s := start(t, samplerModule(), &scripted{answer: count})
	_, err := s.Prefill(context.Background(), sequence(0, testContext-3), session.Greedy)
	require.NoError(t, err)
	a, err := s.Generate(context.Background(), session.Request{Prompt: []int{1}, Sampling: session.Greedy})
	require.NoError(t, err)
	require.Equal(t, session.StopLength, a.Reason)
	require.Equal(t, []int{2, 3}, a.Tokens)
	require.Equal(t, testContext-1, s.Position(), "the last token is not fed")
}

// A cancelled context, and a Token function that wants no more, end an answer; what has come is kept.
func TestCancel(t *testing.T) {
	t.Run("between chunks of the prompt", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		e := &scripted{answer: func(c call) (*eval.Tensor, error) {
			if c.positions[0] == 4 {
				cancel()
			}
			return count(c)
		}}
		_, s := start(t, samplerModule(method("get_max_prefill_chunk", int64(4))), e)
		a, err := s.Generate(ctx, session.Request{Prompt: sequence(0, 16), Sampling: session.Greedy})
		require.NoError(t, err)
		require.Equal(t, session.StopCancelled, a.Reason)
		require.Empty(t, a.Tokens)
		require.Equal(t, []int{4, 4}, e.lengths())
		require.Equal(t, 8, s.Position())
	})
	t.Run("between tokens", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		e := &scripted{answer: count}
		_, s := start(t, samplerModule(), e)
		a, err := s.Generate(ctx, session.Request{Prompt: sequence(0, 3), Sampling: session.Greedy,
			Token: func(token int) bool {
				if token == 5 {
					cancel()
				}
				return true
			}})
		require.NoError(t, err)
		require.Equal(t, session.StopCancelled, a.Reason)
		require.Equal(t, []int{3, 4, 5}, a.Tokens)
	})
	t.Run("by the reader of tokens", func(t *testing.T) {
		_, s := start(t, samplerModule(), &scripted{answer: count})
		a, err := s.Generate(context.Background(), session.Request{Prompt: sequence(0, 3), Sampling: session.Greedy,
			Token: func(token int) bool { return token < 4 }})
		require.NoError(t, err)
		require.Equal(t, session.StopCancelled, a.Reason)
		require.Equal(t, []int{3, 4}, a.Tokens)
	})
	t.Run("deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 0)
		defer cancel()
		_, s := start(t, samplerModule(), &scripted{answer: count})
		_, err := s.Prefill(ctx, sequence(0, 3), session.Greedy)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("by the reader of logits", func(t *testing.T) {
		full := errors.New("disk full")
		_, s := start(t, logitsModule(), &scripted{answer: countLogits})
		_, err := s.Generate(context.Background(),
			session.Request{Prompt: sequence(0, 3), Sampling: session.Greedy, MaxNewTokens: 3,
				Logits: func([]float32) error { return full }})
		require.ErrorIs(t, err, full)
	})
}

// TestAbandoned: after a call that was abandoned in the middle the session feeds nothing and gives no snapshot until it
// is reset or restored; one that was refused before it began is nothing to mend.
func TestAbandoned(t *testing.T) {
	var fail error
	e := &scripted{answer: func(c call) (*eval.Tensor, error) {
		if fail != nil {
			return nil, fail
		}
		return count(c)
	}}
	_, s := start(t, samplerModule(), e)
	feed := func(tokens ...int) error {
		_, err := s.Prefill(t.Context(), tokens, session.Greedy)
		return err
	}
	require.NoError(t, feed(1, 2))
	fail = context.Canceled
	require.ErrorIs(t, feed(3), context.Canceled)
	require.False(t, s.Abandoned(), "refused before it began")
	fail = nil
	require.NoError(t, feed(3))
	fail = fmt.Errorf("forward: %w", &engine.AbandonedError{Cause: context.DeadlineExceeded})
	require.ErrorIs(t, feed(4), context.DeadlineExceeded)
	require.True(t, s.Abandoned())
	require.Equal(t, []int{1, 2, 3}, s.Tokens())
	fail = nil
	calls := len(e.calls)
	require.ErrorIs(t, feed(4), session.ErrAbandoned)
	_, err := s.Decode(t.Context(), 4, session.Greedy)
	require.ErrorIs(t, err, session.ErrAbandoned)
	_, err = s.DecodePipelined(t.Context(), 4, session.Greedy, session.Greedy)
	require.ErrorIs(t, err, session.ErrAbandoned)
	require.Len(t, e.calls, calls, "the engine is not asked")
	require.NoError(t, s.Reset())
	require.False(t, s.Abandoned())
	require.NoError(t, feed(5))
	require.Equal(t, []int{5}, s.Tokens())
}

// TestAbandonedState: the same with an engine that abandons, whose session a snapshot mends.
func TestAbandonedState(t *testing.T) {
	_, s := start(t, attention(t, session.Logits), reference.Engine{})
	_, err := s.Prefill(t.Context(), prompt(4), session.Greedy)
	require.NoError(t, err)
	at, err := s.Snapshot()
	require.NoError(t, err)
	want, err := s.Prefill(t.Context(), prompt(3), session.Greedy)
	require.NoError(t, err)
	require.NoError(t, s.Restore(at))
	for left := range 40 {
		ctx := &enginetest.Countdown{Context: t.Context(), Left: left}
		step, err := s.Prefill(ctx, prompt(3), session.Greedy)
		if err == nil {
			require.Equal(t, want, step)
			require.Greater(t, left, 10, "operations were asked")
			return
		}
		require.ErrorIs(t, err, context.Canceled)
		if s.Abandoned() {
			_, err = s.Snapshot()
			require.ErrorIs(t, err, session.ErrAbandoned)
		} else {
			require.Less(t, left, 3, "before the first operation")
		}
		require.NoError(t, s.Restore(at))
	}
	t.Fatal("the call never ended")
}

// TestGenerateKeepsState: a context that ends in the call for a token of the answer does not reach the engine, so that
// the session can go on; one that ends in a prompt's chunk does.
func TestGenerateKeepsState(t *testing.T) {
	for _, at := range []int{1, 3} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		e := &watcher{cancel: cancel, at: at}
		e.answer = count
		_, s := start(t, samplerModule(), e)
		a, err := s.Generate(ctx, session.Request{Prompt: sequence(0, 3), Sampling: session.Greedy, MaxNewTokens: 9})
		require.NoError(t, err)
		require.Equal(t, session.StopCancelled, a.Reason)
		require.Equal(t, at == 1, s.Abandoned())
		require.Len(t, e.calls, at)
	}
}

// watcher cancels a context in a call, and abandons that where it has ended.
type watcher struct {
	scripted
	cancel func()
	at     int
}

func (e *watcher) Compile(*ir.Module, engine.Options) (engine.Executable, error) { return e, nil }
func (e *watcher) NewInstance() (engine.Instance, error)                         { return e, nil }

func (e *watcher) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	out, err := e.scripted.Run(ctx, inputs)
	if len(e.calls) == e.at {
		e.cancel()
	}
	if ended := ctx.Err(); ended != nil {
		return nil, &engine.AbandonedError{Cause: ended}
	}
	return out, err
}
