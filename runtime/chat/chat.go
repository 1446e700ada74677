package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

// Message is a turn of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Conversation is a conversation in a session. It is not safe for concurrent use.
type Conversation struct {
	// Render gives the tokens of a conversation. generate adds what makes the model answer.
	Render func(messages []Message, generate bool) ([]int, error)
	// Text gives the text of an answer's tokens.
	Text func(tokens []int) string

	messages []Message
	session  *session.Session
	base     *session.Snapshot // before the last answer; nil where the device keeps no snapshots
}

// New starts a conversation in a session; system, where not empty, is the first message.
func New(s *session.Session, system string) *Conversation {
	return &Conversation{session: s, messages: opening(system)}
}

func opening(system string) []Message {
	if system == "" {
		return nil
	}
	return []Message{{"system", system}}
}

// Messages returns the turns so far.
func (c *Conversation) Messages() []Message { return slices.Clone(c.messages) }

// Reset forgets everything but a new system message, none where it is empty.
func (c *Conversation) Reset(system string) error {
	c.messages, c.base = opening(system), nil
	return c.session.Reset()
}

// ContextError says that a conversation and the answer to come do not fit the program's context.
type ContextError struct {
	// Tokens is the number of tokens of the conversation, Answer the wanted number for the answer (0: not given).
	Tokens, Answer int
	// Context is how many fit.
	Context int
}

func (e *ContextError) Error() string {
	if e.Answer > 0 {
		return fmt.Sprintf("the conversation of %d tokens and an answer of %d do not fit the context of %d tokens",
			e.Tokens, e.Answer, e.Context)
	}
	return fmt.Sprintf("the conversation of %d tokens leaves no room for an answer in the context of %d tokens",
		e.Tokens, e.Context)
}

// Ask adds a question and generates the answer. The request's Prompt is set here. What cannot fit the
// context is a [*ContextError] before anything is fed. After an error, and where the answer was cancelled
// before its first token, the question is not part of the conversation; else both are, the beginning of
// the answer if it was cancelled.
func (c *Conversation) Ask(ctx context.Context, question string, r session.Request) (session.Answer, error) {
	messages := append(c.Messages(), Message{"user", question})
	prompt, err := c.Render(messages, true)
	if err != nil {
		return session.Answer{}, err
	}
	history, err := c.Render(messages, false)
	if err != nil {
		return session.Answer{}, err
	}
	if most := c.session.Model().MaxSeqLen; len(prompt)+max(r.MaxNewTokens, 1) > most {
		return session.Answer{}, &ContextError{len(prompt), r.MaxNewTokens, most}
	}
	a, err := c.answer(ctx, prompt, history, r)
	if c.session.Abandoned() {
		if mended := c.mend(); mended != nil {
			return a, errors.Join(err, mended)
		}
	}
	switch {
	case engine.Ended(err):
		return session.Answer{Reason: session.StopCancelled}, nil
	case err != nil:
		// What a call that failed has left in the buffers is unknown.
		return a, errors.Join(err, c.session.Reset())
	case len(a.Tokens) > 0 || a.Reason != session.StopCancelled:
		c.messages = append(messages, Message{"assistant", c.Text(a.Tokens)})
	}
	return a, nil
}

// answer feeds what the session lacks of a prompt and generates. On its way it keeps a snapshot at the end
// of the history, which is the prompt without what makes the model answer.
func (c *Conversation) answer(ctx context.Context, prompt, history []int, r session.Request) (session.Answer, error) {
	if err := c.rewind(prompt); err != nil {
		return session.Answer{}, err
	}
	start, at := time.Now(), c.session.Position()
	fed := 0
	if at < len(history) && isPrefix(history, prompt) {
		if _, err := c.session.Prefill(ctx, history[at:], plain(r.Sampling)); err != nil {
			return session.Answer{}, err
		}
		fed, at = len(history)-at, len(history)
		c.base = nil // before the next is made: each is as large as the session
		if s, err := c.session.Snapshot(); err == nil {
			c.base = s
		}
	}
	before := time.Since(start)
	r.Prompt = prompt[at:]
	a, err := c.session.Generate(ctx, r)
	a.Prompt += fed
	a.PrefillTime += before
	return a, err
}

// plain returns parameters of a token that is dropped: without what costs more than that.
func plain(s session.Sampling) session.Sampling {
	return session.Sampling{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, Seed: s.Seed}
}

// mend gives a session whose last call was abandoned a state again: that of before the last answer, or none.
func (c *Conversation) mend() error {
	if c.base != nil {
		return c.session.Restore(c.base)
	}
	return c.session.Reset()
}

// rewind takes the session to the longest beginning of a prompt that it can go to.
func (c *Conversation) rewind(prompt []int) error {
	seen := c.session.Tokens()
	fits := isPrefix(seen, prompt)
	if c.base != nil && isPrefix(c.base.Tokens, prompt) && !(fits && len(seen) >= len(c.base.Tokens)) {
		return c.session.Restore(c.base)
	}
	if !fits {
		return c.session.Reset()
	}
	return nil
}

// isPrefix reports whether a is a beginning of b, and not all of it: at least one token must be fed.
func isPrefix(a, b []int) bool { return len(a) < len(b) && slices.Equal(a, b[:len(a)]) }
