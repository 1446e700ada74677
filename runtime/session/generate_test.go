package session_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
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
		{"a stop token is not part of the answer", session.Request{Prompt: sequence(0, 3), Stop: []int{9, 6}}, sequence(3, 3), session.StopEOS, 3},
		{"a stop token first", session.Request{Prompt: sequence(0, 3), Stop: []int{3}}, nil, session.StopEOS, 0},
		{"length before the stop token", session.Request{Prompt: sequence(0, 3), Stop: []int{6}, MaxNewTokens: 3}, sequence(3, 3), session.StopLength, 2},
		{"full context", session.Request{Prompt: sequence(0, 20)}, sequence(20, 4), session.StopLength, 3},
		{"a prompt that fills the context", session.Request{Prompt: sequence(0, testContext)}, nil, session.StopLength, 0},
		{"forced tokens set the length", session.Request{Prompt: sequence(0, 3), Force: []int{9, 9, 2}}, []int{9, 9, 2}, session.StopLength, 2},
		{"forced stop tokens do not stop", session.Request{Prompt: sequence(0, 3), Force: []int{6, 6}, Stop: []int{6}}, []int{6, 6}, session.StopLength, 1},
		{"the last token fed too", session.Request{Prompt: sequence(0, 3), Force: []int{9, 9, 2}, FeedLast: true}, []int{9, 9, 2}, session.StopLength, 3},
		{"the last generated token fed too", session.Request{Prompt: sequence(0, 3), MaxNewTokens: 2, FeedLast: true}, sequence(3, 2), session.StopLength, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, m := range []struct {
				name   string
				engine *scripted
				load   func() (*session.Model, *session.Session)
			}{{name: "sampler", engine: &scripted{answer: count}}, {name: "logits", engine: &scripted{answer: countLogits}}} {
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
				require.Equal(t, append(append([]int{}, r.Prompt...), test.want...)[:s.Position()], m.engine.fed(t), m.name)
			}
		})
	}
}

// A turn goes on where the last one ended.
func TestTurns(t *testing.T) {
	e := &scripted{answer: count}
	_, s := start(t, samplerModule(), e)
	first, err := s.Generate(context.Background(), session.Request{Prompt: []int{1, 2}, Sampling: session.Greedy, MaxNewTokens: 3})
	require.NoError(t, err)
	require.Equal(t, []int{3, 4, 5}, first.Tokens)
	second, err := s.Generate(context.Background(), session.Request{Prompt: []int{5, 8}, Sampling: session.Greedy, MaxNewTokens: 2})
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
		a, err := s.Generate(ctx, session.Request{Prompt: sequence(0, 3), Sampling: session.Greedy, Token: func(token int) bool {
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
		a, err := s.Generate(context.Background(), session.Request{Prompt: sequence(0, 3), Sampling: session.Greedy, Token: func(token int) bool { return token < 4 }})
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
		_, err := s.Generate(context.Background(), session.Request{Prompt: sequence(0, 3), Sampling: session.Greedy, MaxNewTokens: 3,
			Logits: func([]float32) error { return full }})
		require.ErrorIs(t, err, full)
	})
}
