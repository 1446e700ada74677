package chat

import (
	"slices"

	"github.com/etc-ml/etc/runtime/session"
)

// Saved is a conversation outside of a session, from which any session of the same program goes on.
type Saved struct {
	// Messages are the turns.
	Messages []Message
	// State is the session.
	State *session.Snapshot
	// Base is the session before the last answer, to which templates that render history otherwise make
	// it go back; nil where there is none.
	Base *session.Snapshot
}

// Save copies the conversation. A device whose state cannot be taken out is an error.
func (c *Conversation) Save() (*Saved, error) {
	state, err := c.session.Snapshot()
	if err != nil {
		return nil, err
	}
	return &Saved{Messages: c.Messages(), State: state, Base: c.base}, nil
}

// Load replaces the conversation, and the state of its session, by a saved one. After an error both are as
// they were.
func (c *Conversation) Load(s *Saved) error {
	if s.Base != nil {
		if err := c.session.Model().CheckSnapshot(s.Base); err != nil {
			return err
		}
	}
	if err := c.session.Restore(s.State); err != nil {
		return err
	}
	c.messages, c.base = slices.Clone(s.Messages), s.Base
	return nil
}
