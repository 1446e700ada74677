package numeric

import (
	"math/rand/v2"
	"sync"
)

// KeySequence hands out a new random key per call, as MLX's
// random::KeySequence does for draws that are given no key. It is safe for
// concurrent use.
type KeySequence struct {
	mu  sync.Mutex
	key [2]uint32
}

// NewKeySequence returns the sequence of keys that MLX gives after
// random::seed(seed).
func NewKeySequence(seed uint64) *KeySequence {
	return &KeySequence{key: Key(seed)}
}

// NewUnseededKeySequence returns a sequence that differs from run to run: its
// seed comes from the operating system's entropy, through math/rand/v2.
func NewUnseededKeySequence() *KeySequence {
	return NewKeySequence(rand.Uint64())
}

// Next advances the sequence and returns the key for one draw.
func (s *KeySequence) Next() [2]uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, key := Split(s.key)
	s.key = next
	return key
}
