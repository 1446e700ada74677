// Package chat holds a conversation with a model: it renders the messages by the model's chat template,
// feeds only what the session has not seen, and keeps the answers.
//
// Templates may render an answer otherwise once it is history (Qwen's leaves the thoughts out), so what
// has been fed need not be the beginning of the next prompt. The state of the recurrent layers cannot be
// rolled back; so a conversation keeps a snapshot of the session from before each answer and goes back
// to it.
//
// Package chat imports runtime/session and must never import a template engine, a tokenizer or the
// command line: they are functions here.
package chat

import (
	"context"
	"fmt"
	"slices"

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
	base     *session.Snapshot // before the last answer
}

// New starts a conversation in a session; system, where not empty, is the first message.
func New(s *session.Session, system string) *Conversation {
	c := &Conversation{session: s}
	if system != "" {
		c.messages = []Message{{"system", system}}
	}
	return c
}

// Messages are the turns so far.
func (c *Conversation) Messages() []Message { return slices.Clone(c.messages) }

// SetMessages replaces the turns. What the session holds is used as far as it fits.
func (c *Conversation) SetMessages(m []Message) { c.messages = slices.Clone(m) }

// Reset forgets everything but a new system message, none where it is empty.
func (c *Conversation) Reset(system string) error {
	c.messages, c.base = nil, nil
	if system != "" {
		c.messages = []Message{{"system", system}}
	}
	return c.session.Reset()
}

// ContextError says that a conversation has become longer than the program's context.
type ContextError struct{ Tokens, Context int }

func (e *ContextError) Error() string {
	return fmt.Sprintf("the conversation is %d tokens long and leaves no room for an answer in a context of %d", e.Tokens, e.Context)
}

// Ask adds a question and generates the answer. The request's Prompt is set here. After an error the
// question is not part of the conversation; after a cancelled answer its beginning is.
func (c *Conversation) Ask(ctx context.Context, question string, r session.Request) (session.Answer, error) {
	messages := append(slices.Clone(c.messages), Message{"user", question})
	prompt, err := c.Render(messages, true)
	if err != nil {
		return session.Answer{}, err
	}
	history, err := c.Render(messages, false)
	if err != nil {
		return session.Answer{}, err
	}
	if r.Prompt, err = c.feed(ctx, prompt, history, r.Sampling); err != nil {
		return session.Answer{}, err
	}
	a, err := c.session.Generate(ctx, r)
	if err != nil {
		return a, err
	}
	c.messages = append(messages, Message{"assistant", c.Text(a.Tokens)})
	return a, nil
}

// feed brings the session as near to the prompt as it can, keeps a snapshot at the end of the history,
// and gives the tokens that are left.
func (c *Conversation) feed(ctx context.Context, prompt, history []int, p session.Sampling) ([]int, error) {
	if most := c.session.Model().MaxSeqLen; len(prompt) >= most {
		return nil, &ContextError{len(prompt), most}
	}
	switch seen := c.session.Tokens(); {
	case isPrefix(seen, prompt):
	case c.base != nil && isPrefix(c.base.Tokens, prompt):
		if err := c.session.Restore(c.base); err != nil {
			return nil, err
		}
	default:
		if err := c.session.Reset(); err != nil {
			return nil, err
		}
	}
	at := c.session.Position()
	if at < len(history) && isPrefix(history, prompt) {
		if _, err := c.session.Prefill(ctx, history[at:], p); err != nil {
			return nil, err
		}
		at = len(history)
		var err error
		if c.base, err = c.session.Snapshot(); err != nil {
			c.base = nil // the device keeps no snapshots: the next turn feeds the conversation again
		}
	}
	return prompt[at:], nil
}

// isPrefix reports whether a is a beginning of b, and not all of it: at least one token must be fed.
func isPrefix(a, b []int) bool { return len(a) < len(b) && slices.Equal(a, b[:len(a)]) }
