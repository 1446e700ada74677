package etc_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc"
)

// A deadline ends an answer as a cancelled context does, in the prompt and after it, whatever runs the program.
func TestSessionDeadline(t *testing.T) {
	past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for name, o := range map[string]etc.Options{"alone": {}, "shared": {Deterministic: true}} {
		s := opened(t, o, greedy)
		check := func(tokens func(yield func(etc.Token, error) bool)) {
			t.Helper()
			var end *etc.End
			var last error
			for token, err := range tokens {
				end, last = token.End, err
			}
			require.ErrorIs(t, last, context.DeadlineExceeded, name)
			require.NotNil(t, end, name)
			require.Equal(t, etc.Cancelled, end.Reason, name)
			require.Zero(t, end.CachedTokens, name)
		}
		check(s.Chat(past, question("What is the capital of France?")))
		if name == "alone" {
			check(s.Ask(past, "What is the capital of France?"))
			require.Empty(t, s.Messages())
		}
		text, _ := whole(t, s.Chat(t.Context(), question("What is the capital of France?")))
		require.Equal(t, "The capital of France is Paris.", text, name)
	}
}

// An answer for which the prompt leaves no room tells that the context is full.
func TestSessionFullPrompt(t *testing.T) {
	s := opened(t, etc.Options{}, greedy)
	prompt := make([]int, s.Info().ContextLength)
	for i := range prompt {
		prompt[i] = 5 + i%50
	}
	_, end := whole(t, s.GenerateTokens(t.Context(), prompt...))
	require.True(t, end.ContextFull)
	_, end = whole(t, s.GenerateTokens(t.Context(), prompt[1:]...))
	require.True(t, end.ContextFull)
	p := greedy
	p.MaxTokens = 1
	require.NoError(t, s.SetParameters(p))
	_, end = whole(t, s.GenerateTokens(t.Context(), prompt[1:]...))
	require.False(t, end.ContextFull, "it has the tokens that were wanted")
}

// A session that was closed says so. Nothing of it runs, and it may be closed again.
func TestSessionClosed(t *testing.T) {
	for _, o := range []etc.Options{{}, {Deterministic: true}} {
		for _, compiled := range []bool{true, false} {
			s := opened(t, o, greedy)
			if compiled {
				require.NoError(t, s.Compile())
			}
			require.NoError(t, s.Close())
			file := filepath.Join(t.TempDir(), "chat")
			for name, err := range map[string]error{
				"chat": failed(t, s.Chat(t.Context(), question("Hi"))), "generate": failed(t, s.Generate(t.Context(), "Hi")),
				"tokens": failed(t, s.GenerateTokens(t.Context(), 1)), "ask": failed(t, s.Ask(t.Context(), "Hi")),
				"compile": s.Compile(), "reset": s.Reset(""), "save": s.Save(file), "load": s.Load(file),
				"tune": s.Tune(t.Context()),
			} {
				require.ErrorIs(t, err, etc.ErrUsage, name)
				require.ErrorContains(t, err, "the session is closed", name)
			}
		}
	}
}

// In a loop over an answer the session refuses whatever would change the state that the answer goes on from.
func TestSessionNested(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chat")
	for _, o := range []etc.Options{{}, {Deterministic: true}} {
		s := opened(t, o, greedy)
		hi := question("What is the capital of France?")
		inside := func() {
			for name, err := range map[string]error{
				"chat": failed(t, s.Chat(t.Context(), hi)), "ask": failed(t, s.Ask(t.Context(), "Hi")), "reset": s.Reset(""),
				"save": s.Save(file), "load": s.Load(file), "tune": s.Tune(t.Context()), "close": s.Close(),
			} {
				require.ErrorIs(t, err, etc.ErrUsage, name)
			}
		}
		text := ""
		for token, err := range s.Chat(t.Context(), hi) {
			require.NoError(t, err)
			if text += token.Text; token.End == nil {
				inside()
			}
		}
		require.Equal(t, "The capital of France is Paris.", text)
		if o.Deterministic {
			continue
		}
		for token := range s.Ask(t.Context(), hi[0].Content) {
			if token.End != nil {
				require.NoError(t, s.Save(file), "the answer has ended")
			}
		}
		require.NoError(t, s.Reset(""))
		for range s.Ask(t.Context(), hi[0].Content) {
			inside()
			break
		}
		require.Equal(t, "The", s.Messages()[1].Content)
		require.NoError(t, s.Save(file), "the loop was left")
	}
}
