package session

import "strings"

// TextStop finds the end of an answer that a text ends, wherever tokens end within it.
type TextStop struct {
	texts   []string
	held    string // not given yet: it may be the beginning of one of texts
	hit     string // the one that has ended the answer
	stopped bool
}

// NewTextStop makes a search for the first of texts; empty ones stop nothing.
func NewTextStop(texts []string) *TextStop {
	s := &TextStop{}
	for _, t := range texts {
		if t != "" {
			s.texts = append(s.texts, t)
		}
	}
	return s
}

// Push takes more text of the answer and returns the text that certainly comes before a stop text. When a stop text is
// complete, stopped is true: all texts that Push has returned are the answer, and it returns nothing more.
func (s *TextStop) Push(text string) (before string, stopped bool) {
	if s.stopped {
		return "", true
	}
	s.held += text
	first, end := -1, len(s.held)+1
	for _, t := range s.texts { // what is complete first; of those, what begins first
		if at := strings.Index(s.held, t); at >= 0 && (at+len(t) < end || at+len(t) == end && at < first) {
			first, end, s.hit = at, at+len(t), t
		}
	}
	if first >= 0 {
		before, s.held, s.stopped = s.held[:first], "", true
		return before, true
	}
	keep := 0
	for _, t := range s.texts {
		for n := min(len(t)-1, len(s.held)); n > keep; n-- {
			if strings.HasSuffix(s.held, t[:n]) {
				keep = n
			}
		}
	}
	cut := len(s.held) - keep
	before, s.held = s.held[:cut], s.held[cut:]
	return before, false
}

// Flush returns the text that was held back, at the end of an answer that no stop text has ended.
func (s *TextStop) Flush() string {
	rest := s.held
	s.held = ""
	return rest
}

// Hit returns the text that has ended the answer; "" where none has.
func (s *TextStop) Hit() string { return s.hit }

// Stopped reports whether a text has ended the answer.
func (s *TextStop) Stopped() bool { return s.stopped }
