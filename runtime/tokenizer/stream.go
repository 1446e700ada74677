package tokenizer

import "strings"

// A Stream decodes ids one by one, as a model makes them. Together the texts that Push and Flush return are what
// Decode returns for all the ids; each is valid UTF-8, so that no character is ever split. What is not certain yet is
// held back: the bytes of a character that is not complete, and under ByteFallback the whole of a run of byte tokens,
// since the library makes U+FFFD of every byte of a run that is not UTF-8.
//
// A Stream is for one goroutine. It is of no use after Flush.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	stages      []stage
	out         []func(string) // where each stage passes its tokens on to
	text        strings.Builder
}

// NewStream returns a new stream. With skipSpecial, special tokens are left out.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial}
	for _, newStage := range t.decoder.stages {
		s.stages = append(s.stages, newStage())
	}
	s.out = make([]func(string), len(s.stages)+1)
	for i := range s.stages {
		s.out[i] = func(token string) { s.stages[i].push(token, s.out[i+1]) }
	}
	s.out[len(s.stages)] = func(token string) { s.text.WriteString(token) }
	return s
}

// Push takes the next id and returns the text that is certain now, which may be empty. As in the library, an id that is
// no token is skipped.
func (s *Stream) Push(id int) string {
	s.push(id)
	return s.take()
}

// Flush returns what was held back, as Decode would end.
func (s *Stream) Flush() string {
	s.flush()
	return s.take()
}

func (s *Stream) push(id int) {
	token, ok := s.t.IDToToken(id)
	if !ok || s.skipSpecial && s.t.added.special[token] {
		return
	}
	s.out[0](token)
}

func (s *Stream) flush() {
	for i := range s.stages {
		s.stages[i].end(s.out[i+1])
	}
}

func (s *Stream) take() string {
	text := s.text.String()
	s.text.Reset()
	return text
}
