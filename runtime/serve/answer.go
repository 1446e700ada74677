package serve

import (
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/session"
)

// piece is a part of a choice.
type piece struct {
	format.Event
	tokens []batch.Token // that the text of Content is made of, where log-probabilities were asked for
}

// reader makes pieces of the tokens of a choice: it parses them by the model's format, and ends at stop texts.
type reader struct {
	parser *format.Parser
	stop   *session.TextStop
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

// finish returns what was held back.
func (r *reader) finish() []piece {
	if r.stop.Stopped() {
		return nil
	}
	return r.pieces(r.parser.Finish(), true)
}

// pieces looks for stop texts in events.
func (r *reader) pieces(list []format.Event, last bool) []piece {
	var out []piece
	for _, e := range list {
		if r.stop.Stopped() {
			break
		}
		if e.Kind != format.Content {
			out = r.content(out, r.stop.Flush())
			r.tokens = nil
			out = append(out, piece{Event: e})
			continue
		}
		before, _ := r.stop.Push(e.Text)
		out = r.content(out, before)
	}
	if last && !r.stop.Stopped() {
		out = r.content(out, r.stop.Flush())
	}
	return out
}

// content returns a text of the answer, with the tokens since the last one.
func (r *reader) content(out []piece, text string) []piece {
	if text == "" {
		return out
	}
	tokens := r.tokens
	r.tokens = nil
	return append(out, piece{Event: format.Event{Kind: format.Content, Text: text}, tokens: tokens})
}
