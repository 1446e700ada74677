package serve

import (
	"strings"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/format"
)

// piece is a part of a choice.
type piece struct {
	format.Event
	tokens []batch.Token // that the text of Content is made of, where log-probabilities were asked for
}

// reader makes pieces of the tokens of a choice: it parses them by the model's format, and ends at stop texts.
type reader struct {
	parser *format.Parser
	stops  []string
	held   string // the end of the text that may be the beginning of a stop text
	hit    string // the stop text that was found
	tokens []batch.Token
	keep   bool // tokens, for log-probabilities
	// Counts of tokens.
	count, thought int
}

// push takes a token.
func (r *reader) push(t batch.Token) []piece {
	r.count++
	if r.parser.Thinking() {
		r.thought++
	}
	if r.keep {
		r.tokens = append(r.tokens, t)
	}
	return r.pieces(r.parser.Push(t.ID), false)
}

// finish gives what was held back.
func (r *reader) finish() []piece {
	if r.hit != "" {
		return nil
	}
	return r.pieces(r.parser.Finish(), true)
}

// pieces looks for stop texts in events.
func (r *reader) pieces(list []format.Event, last bool) []piece {
	var out []piece
	for _, e := range list {
		if r.hit != "" {
			break
		}
		if e.Kind != format.Content {
			out = r.release(out)
			r.tokens = nil
			out = append(out, piece{Event: e})
			continue
		}
		r.held += e.Text
		r.find()
		n := len(r.held)
		if r.hit == "" {
			n -= r.open()
		}
		out = r.content(out, n)
	}
	if last && r.hit == "" {
		out = r.release(out)
	}
	return out
}

// release gives held text that something else follows.
func (r *reader) release(out []piece) []piece { return r.content(out, len(r.held)) }

// content gives the first n bytes of the held text.
func (r *reader) content(out []piece, n int) []piece {
	if n == 0 {
		return out
	}
	text := r.held[:n]
	r.held = r.held[n:]
	tokens := r.tokens
	r.tokens = nil
	return append(out, piece{Event: format.Event{Kind: format.Content, Text: text}, tokens: tokens})
}

// find cuts the held text at the first stop text.
func (r *reader) find() {
	at := -1
	for _, s := range r.stops {
		if i := strings.Index(r.held, s); i >= 0 && (at < 0 || i < at) {
			at, r.hit = i, s
		}
	}
	if at >= 0 {
		r.held = r.held[:at]
	}
}

// open is how many bytes at the end of the held text may be the beginning of a stop text.
func (r *reader) open() int {
	longest := 0
	for _, s := range r.stops {
		for n := min(len(s)-1, len(r.held)); n > longest; n-- {
			if strings.HasSuffix(r.held, s[:n]) {
				longest = n
			}
		}
	}
	return longest
}
