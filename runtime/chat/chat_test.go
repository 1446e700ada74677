package chat_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

var questions = []string{"Hello", "Why?", "And then?", "x", "Go on, please.", "Thanks"}

var samplings = map[string]session.Sampling{"greedy": session.Greedy, "sampled": {Temperature: 1, TopP: 1, Seed: 77}}

// Every turn answers as if its whole prompt had been fed at once, whatever the template, the device and the
// sampling; and nothing is fed twice that need not be.
func TestTurns(t *testing.T) {
	for name, p := range samplings {
		for _, test := range []struct {
			name   string
			render renderer
			kept   bool
			again  func(prompt, before []int) int // how many tokens of a prompt are fed, given the last turn's history
		}{
			{"a template that keeps answers", plain, true, nil},
			{"a template that forgets thoughts", forgetful, true,
				func(prompt, before []int) int { return len(prompt) - len(before) }},
			{"a device without snapshots", forgetful, false, func(prompt, _ []int) int { return len(prompt) }},
		} {
			t.Run(name+", "+test.name, func(t *testing.T) {
				e := &recurrent{kept: test.kept}
				c, s := converse(t, e, test.render, "Be kind.")
				var before []int
				back := 0
				for turn, q := range questions {
					fed := e.fed
					messages := append(c.Messages(), chat.Message{Role: "user", Content: q})
					seen := s.Tokens()
					prompt, err := test.render(messages, true)
					require.NoError(t, err)
					a, err := c.Ask(t.Context(), q, request(p))
					require.NoError(t, err)
					require.Equal(t, scratch(t, test.render, messages, p), text(a.Tokens), "turn %d", turn)
					require.Equal(t, append(messages, chat.Message{Role: "assistant", Content: text(a.Tokens)}),
						c.Messages())
					require.Equal(t, append(prompt, a.Tokens...), s.Tokens())
					require.Equal(t, e.fed-fed, a.Prompt+a.Decoded, "what is counted is what was fed")
					want := len(prompt) - len(seen)
					if !strings.HasPrefix(text(prompt), text(seen)) {
						back++
						want = test.again(prompt, before)
					}
					require.Equal(t, want, a.Prompt, "turn %d", turn)
					before, err = test.render(messages, false)
					require.NoError(t, err)
				}
				require.Equal(t, test.again != nil, back > 0, "thoughts came up in %d turns", back)
			})
		}
	}
}

// Two conversations of one model that take turns answer as if each were alone.
func TestConversationsDoNotMeet(t *testing.T) {
	alone := map[string][]chat.Message{}
	for _, system := range []string{"A", "B"} {
		c, _ := converse(t, &recurrent{kept: true}, forgetful, system)
		for _, q := range questions {
			_, err := c.Ask(t.Context(), q, request(samplings["sampled"]))
			require.NoError(t, err)
		}
		alone[system] = c.Messages()
	}
	e := &recurrent{kept: true}
	a, _ := converse(t, e, forgetful, "A")
	b, _ := converse(t, e, forgetful, "B")
	for _, q := range questions {
		for _, c := range []*chat.Conversation{a, b} {
			_, err := c.Ask(t.Context(), q, request(samplings["sampled"]))
			require.NoError(t, err)
		}
	}
	require.Equal(t, alone["A"], a.Messages())
	require.Equal(t, alone["B"], b.Messages())
	require.NotEqual(t, a.Messages()[2], b.Messages()[2])
}

// A new system prompt, or none, starts anew.
func TestReset(t *testing.T) {
	c, s := converse(t, &recurrent{kept: true}, plain, "")
	first, err := c.Ask(t.Context(), "Hello", request(session.Greedy))
	require.NoError(t, err)
	require.NoError(t, c.Reset("Be brief."))
	require.Equal(t, []chat.Message{{Role: "system", Content: "Be brief."}}, c.Messages())
	require.Zero(t, s.Position())
	other, err := c.Ask(t.Context(), "Hello", request(session.Greedy))
	require.NoError(t, err)
	require.NotEqual(t, first.Tokens, other.Tokens)
	require.NoError(t, c.Reset(""))
	require.Empty(t, c.Messages())
	again, err := c.Ask(t.Context(), "Hello", request(session.Greedy))
	require.NoError(t, err)
	require.Equal(t, first.Tokens, again.Tokens)
	require.Equal(t, first.Prompt, again.Prompt)
}

// What does not fit the context is refused before anything is fed; one token less fits.
func TestContext(t *testing.T) {
	prompt := func(q string) int { return len("<user:" + q + "><assistant:") }
	fill := func(n int) string { return strings.Repeat("x", n-prompt("")) }
	for _, test := range []struct{ prompt, answer, wanted int }{
		{testSpace, 0, 0}, {testSpace - 3, 4, 4}, {2 * testSpace, 0, 0}, {testSpace - 1, 2, 2},
	} {
		e := &recurrent{kept: true}
		c, _ := converse(t, e, plain, "")
		r := request(session.Greedy)
		r.MaxNewTokens = test.answer
		_, err := c.Ask(t.Context(), fill(test.prompt), r)
		var long *chat.ContextError
		require.ErrorAs(t, err, &long)
		require.Equal(t, &chat.ContextError{Tokens: test.prompt, Answer: test.wanted, Context: testSpace}, long)
		require.Contains(t, err.Error(), fmt.Sprintf("the conversation of %d tokens", test.prompt))
		require.Zero(t, e.fed)
		require.Empty(t, c.Messages())
		if test.prompt <= testSpace {
			_, err = c.Ask(t.Context(), fill(test.prompt-1), r)
			require.NoError(t, err)
		}
	}
}

// A full context ends an answer, and the conversation.
func TestFullContext(t *testing.T) {
	c, s := converse(t, &recurrent{kept: true}, plain, "")
	r := request(session.Greedy)
	r.Stop = nil
	a, err := c.Ask(t.Context(), "Hello", r)
	require.NoError(t, err)
	require.Equal(t, session.StopLength, a.Reason)
	require.Equal(t, testSpace, a.Prompt+len(a.Tokens))
	require.Equal(t, testSpace-1, s.Position(), "nothing is drawn from the last token")
	_, err = c.Ask(t.Context(), "And?", r)
	require.ErrorAs(t, err, new(*chat.ContextError))
	require.Len(t, c.Messages(), 2)
}

// A question whose answer is stopped before its first token is not part of the conversation; of an answer that
// is stopped later the beginning is.
func TestCancelled(t *testing.T) {
	ask := func(after int) (*chat.Conversation, session.Answer) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, _ := converse(t, &recurrent{kept: true, fail: func(position int) error {
			if position >= after {
				cancel()
			}
			return nil
		}}, plain, "")
		r := request(session.Greedy)
		r.Stop = nil
		a, err := c.Ask(ctx, strings.Repeat("long ", 20), r)
		require.NoError(t, err)
		require.Equal(t, session.StopCancelled, a.Reason)
		return c, a
	}
	prompt := len("<user:") + 100 + len("><assistant:")
	for _, after := range []int{1, testChunk + 1, prompt - 3} {
		c, a := ask(after)
		require.Empty(t, a.Tokens)
		require.Empty(t, c.Messages())
		b, err := c.Ask(t.Context(), "Hello", request(session.Greedy))
		require.NoError(t, err)
		require.Equal(t, scratch(t, plain, c.Messages()[:1], session.Greedy), text(b.Tokens))
	}
	c, a := ask(prompt + 3)
	require.Len(t, a.Tokens, 3)
	require.Equal(t, chat.Message{Role: "assistant", Content: text(a.Tokens)}, c.Messages()[1])
	b, err := c.Ask(t.Context(), "Go on", request(session.Greedy))
	require.NoError(t, err)
	require.Equal(t, scratch(t, plain, c.Messages()[:3], session.Greedy), text(b.Tokens))
}

// After an error the conversation is as before, and nothing of the failed call is left.
func TestErrors(t *testing.T) {
	broken := errors.New("device lost")
	fails := false
	e := &recurrent{kept: true, fail: func(int) error {
		if fails {
			return broken
		}
		return nil
	}}
	c, _ := converse(t, e, plain, "")
	_, err := c.Ask(t.Context(), "Hello", request(session.Greedy))
	require.NoError(t, err)
	before := c.Messages()
	fails = true
	_, err = c.Ask(t.Context(), "Why?", request(session.Greedy))
	require.ErrorIs(t, err, broken)
	require.Equal(t, before, c.Messages())
	fails = false
	_, err = c.Ask(t.Context(), "unspeakable", request(session.Greedy))
	require.EqualError(t, err, "the template raised")
	require.Equal(t, before, c.Messages())
	a, err := c.Ask(t.Context(), "Why?", request(session.Greedy))
	require.NoError(t, err)
	require.Equal(t, scratch(t, plain, c.Messages()[:3], session.Greedy), text(a.Tokens))
	prompt, err := plain(c.Messages()[:3], true)
	require.NoError(t, err)
	require.Equal(t, len(prompt)-len("<user:Hello>"), a.Prompt,
		"it went back to before the first answer, not to the start")
}

// A conversation that is saved after any turn and loaded elsewhere goes on as if it had never stopped, and feeds
// no more.
func TestSaved(t *testing.T) {
	for name, p := range samplings {
		for _, r := range []renderer{plain, forgetful} {
			want, _ := converse(t, &recurrent{kept: true}, r, "Be kind.")
			var answers []session.Answer
			for _, q := range questions {
				a, err := want.Ask(t.Context(), q, request(p))
				require.NoError(t, err)
				answers = append(answers, a)
			}
			for stop := range questions {
				c, _ := converse(t, &recurrent{kept: true}, r, "Be kind.")
				for _, q := range questions[:stop] {
					_, err := c.Ask(t.Context(), q, request(p))
					require.NoError(t, err)
				}
				saved, err := c.Save()
				require.NoError(t, err)
				_, err = c.Ask(t.Context(), "something else", request(p)) // changes nothing of what is saved
				require.NoError(t, err)
				d, _ := converse(t, &recurrent{kept: true}, r, "")
				require.NoError(t, d.Load(saved))
				for i, q := range questions[stop:] {
					a, err := d.Ask(t.Context(), q, request(p))
					require.NoError(t, err)
					require.Equal(t, answers[stop+i].Tokens, a.Tokens, "%s, stopped after %d turns", name, stop)
					require.Equal(t, answers[stop+i].Prompt, a.Prompt, "%s, stopped after %d turns", name, stop)
				}
				require.Equal(t, want.Messages(), d.Messages())
			}
		}
	}
}

// What is no state of the program is refused, and the conversation goes on as it was.
func TestLoadRefuses(t *testing.T) {
	other, _ := converse(t, &recurrent{kept: true}, plain, "")
	_, err := other.Ask(t.Context(), "Hello", request(session.Greedy))
	require.NoError(t, err)
	saved := func(change func(*chat.Saved)) *chat.Saved {
		s, err := other.Save()
		require.NoError(t, err)
		base := *s.Base
		s.Base = &base
		change(s)
		return s
	}
	c, s := converse(t, &recurrent{kept: true}, plain, "")
	_, err = c.Ask(t.Context(), "Who?", request(session.Greedy))
	require.NoError(t, err)
	messages, seen := c.Messages(), s.Tokens()
	for want, change := range map[string]func(*chat.Saved){
		"0 buffers in the snapshot":                    func(s *chat.Saved) { s.State.States = nil },
		"0 buffers in the snapshot, the program has 1": func(s *chat.Saved) { s.Base.States = nil },
		"token 0 of the snapshot is 256":               func(s *chat.Saved) { s.Base.Tokens = []int{vocabulary} },
		"a snapshot of 401 tokens does not fit the context": func(s *chat.Saved) {
			s.State.Tokens = make([]int,
				testSpace+1)
		},
	} {
		require.ErrorContains(t, c.Load(saved(change)), want)
		require.Equal(t, messages, c.Messages())
		require.Equal(t, seen, s.Tokens())
	}
	a, err := c.Ask(t.Context(), "Why?", request(session.Greedy))
	require.NoError(t, err)
	require.Equal(t, scratch(t, plain, c.Messages()[:3], session.Greedy), text(a.Tokens))

	stateless, _ := converse(t, &recurrent{}, plain, "")
	_, err = stateless.Save()
	require.ErrorContains(t, err, "device recurrent keeps no snapshots")
	require.ErrorContains(t, stateless.Load(saved(func(*chat.Saved) {})), "device recurrent keeps no snapshots")
}

// A call that is abandoned in the middle leaves nothing behind: the conversation goes on from before the last answer,
// or from its beginning, and can be saved.
func TestAbandoned(t *testing.T) {
	for _, kept := range []bool{false, true} {
		at := 0 // the position of the call that is abandoned, 0 for none
		e := &recurrent{kept: kept, fail: func(position int) error {
			if at > 0 && position >= at {
				return &engine.AbandonedError{Cause: context.Canceled}
			}
			return nil
		}}
		c, _ := converse(t, e, plain, "")
		ask := func(question string) session.Answer {
			a, err := c.Ask(t.Context(), question, request(session.Greedy))
			require.NoError(t, err)
			return a
		}
		ask("Hello")
		before := c.Messages()
		at = 1
		a := ask("Never")
		require.Equal(t, session.StopCancelled, a.Reason)
		require.Equal(t, before, c.Messages())
		if kept {
			_, err := c.Save()
			require.NoError(t, err)
		}
		at = 0
		got := ask("Go on")
		require.Equal(t, scratch(t, plain, c.Messages()[:3], session.Greedy), text(got.Tokens))
	}
}
