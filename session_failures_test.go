package etc_test

import (
	"context"
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
