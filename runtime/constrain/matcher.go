package constrain

import "fmt"

// Matcher follows one text through a grammar, token by token. It is not safe for use by several goroutines at once;
// matchers of one grammar may be used at once.
type Matcher struct {
	k     *masker
	trail []*state // the state before each token, and the current one
	stop  int      // stop tokens accepted: 0, or 1 as the last one
}

// NewMatcher starts a text. Matchers of one grammar and one vocabulary share their masks.
func NewMatcher(g *Grammar, v *Vocab) *Matcher {
	k := g.masker(v)
	return &Matcher{k: k, trail: []*state{k.m.start}}
}

func (m *Matcher) state() *state { return m.trail[len(m.trail)-1] }

// Clone returns a matcher of its own at the same place.
func (m *Matcher) Clone() *Matcher {
	return &Matcher{k: m.k, trail: append([]*state(nil), m.trail...), stop: m.stop}
}

// Accept goes on by one token. An error (ErrToken, ErrTooComplex) leaves the matcher as it was.
func (m *Matcher) Accept(token int) error {
	if m.stop > 0 {
		return fmt.Errorf("token %d after a stop token: %w", token, ErrToken)
	}
	v := m.k.v
	if token < 0 || token >= len(v.tokens) {
		return fmt.Errorf("token %d of a vocabulary of %d: %w", token, len(v.tokens), ErrToken)
	}
	s := m.state()
	if v.IsStop(token) {
		if !s.ends {
			return fmt.Errorf("stop token %d before the text is whole: %w", token, ErrToken)
		}
		m.stop = 1
		m.trail = append(m.trail, s)
		return nil
	}
	if len(v.tokens[token]) == 0 {
		return fmt.Errorf("token %d is a special one: %w", token, ErrToken)
	}
	s, err := m.follow(s, v.tokens[token])
	if err != nil {
		return fmt.Errorf("token %d (%q): %w", token, v.tokens[token], err)
	}
	m.trail = append(m.trail, s)
	return nil
}

// AcceptBytes advances by several bytes at once. Rollback counts them as one token.
func (m *Matcher) AcceptBytes(text []byte) error {
	if m.stop > 0 {
		return fmt.Errorf("bytes after a stop token: %w", ErrToken)
	}
	s, err := m.follow(m.state(), text)
	if err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	m.trail = append(m.trail, s)
	return nil
}

func (m *Matcher) follow(s *state, text []byte) (*state, error) {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	for _, b := range text {
		s = m.k.m.step(s, b)
	}
	switch s {
	case m.k.m.dead:
		return nil, ErrToken
	case m.k.m.complex:
		return nil, ErrTooComplex
	}
	return s, nil
}

// Rollback takes back the last n tokens.
func (m *Matcher) Rollback(n int) error {
	if n < 0 || n >= len(m.trail) {
		return fmt.Errorf("cannot take back %d tokens of %d", n, len(m.trail)-1)
	}
	if n > 0 {
		clear(m.trail[len(m.trail)-n:])
		m.trail = m.trail[:len(m.trail)-n]
		m.stop = 0
	}
	return nil
}

// CanEnd reports whether the text so far is whole.
func (m *Matcher) CanEnd() bool { return m.state().ends }

// Stopped reports whether the last token accepted is a stop token.
func (m *Matcher) Stopped() bool { return m.stop > 0 }

// Mask sets dst to the tokens that may follow: bit i%64 of word i/64 is token i. dst has MaskWords words. Behind a stop
// token, none may. Where the vocabulary cannot spell what the grammar asks for, the mask may be all zero.
func (m *Matcher) Mask(dst []uint64) {
	v := m.k.v
	if len(dst) != v.MaskWords() {
		panic(fmt.Sprintf("constrain: a mask of %d words for a vocabulary that needs %d", len(dst), v.MaskWords()))
	}
	clear(dst)
	if m.stop > 0 {
		return
	}
	s := m.state()
	m.k.mu.Lock()
	m.k.mask(s, dst)
	m.k.mu.Unlock()
	if s.ends {
		for _, id := range v.stop {
			dst[id>>6] |= 1 << (id & 63)
		}
	}
}

// Forced returns the bytes that have to follow, at most limit: each is the only one possible. They can be put after
// the text without asking the model.
func (m *Matcher) Forced(limit int) []byte {
	if m.stop > 0 {
		return nil
	}
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	var out []byte
	for s := m.state(); len(out) < limit; {
		b, ok := m.k.m.forced(s)
		if !ok {
			break
		}
		out = append(out, b)
		s = m.k.m.step(s, b)
	}
	return out
}
