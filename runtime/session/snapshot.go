package session

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
)

// Snapshot is a session at one point: the tokens it has seen and its state.
type Snapshot struct {
	Tokens []int
	States []engine.State
}

// Snapshot copies the session. An engine whose state cannot be taken out is an error, and so is a session
// whose last call was abandoned.
func (s *Session) Snapshot() (*Snapshot, error) {
	if s.torn {
		return nil, ErrAbandoned
	}
	x, ok := s.instance.(engine.Stateful)
	if !ok {
		return nil, fmt.Errorf("device %s keeps no snapshots", s.model.Device)
	}
	states, err := x.Snapshot()
	if err != nil {
		return nil, err
	}
	if s.model.held != nil {
		states = moveRings(states, s.model.buffers, len(s.tokens))
	}
	return &Snapshot{s.Tokens(), states}, nil
}

// Stateful reports whether the session's engine gives snapshots.
func (s *Session) Stateful() bool {
	_, ok := s.instance.(engine.Stateful)
	return ok
}

// Restore puts the session back to a snapshot, of this or of another session of the same program. After
// an error the session is as it was.
func (s *Session) Restore(p *Snapshot) error {
	x, ok := s.instance.(engine.Stateful)
	if !ok {
		return fmt.Errorf("device %s keeps no snapshots", s.model.Device)
	}
	if err := s.model.CheckSnapshot(p); err != nil {
		return err
	}
	states := p.States
	if s.model.held != nil {
		states = moveRings(states, s.model.held, len(p.Tokens))
	}
	if err := x.Restore(states); err != nil {
		return err
	}
	s.tokens, s.torn = slices.Clone(p.Tokens), false
	s.answer = len(s.tokens)
	s.newKey()
	return nil
}

// CheckSnapshot reports what in a snapshot is not the program's: tokens, or the names, dtypes and shapes
// of buffers.
func (m *Model) CheckSnapshot(p *Snapshot) error {
	if len(p.Tokens) > m.MaxSeqLen {
		return fmt.Errorf("a snapshot of %d tokens does not fit the context of %d", len(p.Tokens), m.MaxSeqLen)
	}
	for i, t := range p.Tokens {
		if t < 0 || m.Vocab > 0 && t >= m.Vocab {
			return fmt.Errorf("token %d of the snapshot is %d, which is not in the vocabulary of %d tokens", i, t,
				m.Vocab)
		}
	}
	return engine.CheckStates(m.buffers, p.States)
}

// Buffers returns the buffers of the program's state, in the order of a snapshot's.
func (m *Model) Buffers() []*ir.Buffer { return slices.Clone(m.buffers) }
