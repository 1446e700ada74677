package session

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/runtime/engine"
)

// Snapshot is a session at one point: the tokens it has seen and its state.
type Snapshot struct {
	Tokens []int
	States []engine.State
}

// Snapshot copies the session. An engine whose state cannot be taken out is an error.
func (s *Session) Snapshot() (*Snapshot, error) {
	x, ok := s.instance.(engine.Stateful)
	if !ok {
		return nil, fmt.Errorf("device %s keeps no snapshots", s.model.Device)
	}
	states, err := x.Snapshot()
	if err != nil {
		return nil, err
	}
	return &Snapshot{s.Tokens(), states}, nil
}

// Restore puts the session back to a snapshot, of this or of another session of the same program.
func (s *Session) Restore(p *Snapshot) error {
	x, ok := s.instance.(engine.Stateful)
	if !ok {
		return fmt.Errorf("device %s keeps no snapshots", s.model.Device)
	}
	if len(p.Tokens) > s.model.MaxSeqLen {
		return fmt.Errorf("a snapshot of %d tokens does not fit the context of %d", len(p.Tokens), s.model.MaxSeqLen)
	}
	if err := x.Restore(p.States); err != nil {
		return err
	}
	s.tokens = slices.Clone(p.Tokens)
	return nil
}
