package command

import (
	"io"
	"strings"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/session"
)

// answerText is the text of an answer while its tokens come, up to a text that ends it.
type answerText struct {
	tokens *prompt.Stream
	stop   *session.TextStop
	out    io.Writer       // where it is written; nil for nowhere
	all    strings.Builder // what was written, or would have been
	whole  func(tokens []int) string

	finished bool
}

// newAnswerText makes the text of an answer, which goes to out unless --json is given.
func (f runFlags) newAnswerText(t *text, out io.Writer) *answerText {
	if f.json {
		out = nil
	}
	return newAnswerText(t, f.stops, out)
}

func newAnswerText(t *text, stops []string, out io.Writer) *answerText {
	return &answerText{tokens: t.Stream(), stop: session.NewTextStop(stops), out: out, whole: t.Decode}
}

// push takes a token of the answer and reports whether the answer goes on.
func (a *answerText) push(token int) bool {
	text, stopped := a.stop.Push(a.tokens.Push(token))
	return a.write(text) == nil && !stopped
}

func (a *answerText) write(text string) error {
	a.all.WriteString(text)
	if a.out == nil {
		return nil
	}
	_, err := io.WriteString(a.out, visible(a.out, text))
	return err
}

// end writes the rest of the text and a line end, and says why the answer ended, where that was a text.
func (a *answerText) end(answer *session.Answer) error {
	if a.finish(); a.stop.Stopped() {
		answer.Reason = session.StopText
	}
	if a.out == nil {
		return nil
	}
	return a.write("\n")
}

// abandon ends what an error cut short, with a line end where something is written.
func (a *answerText) abandon() {
	if a.finish(); a.out != nil && a.all.Len() > 0 {
		a.write("\n") //nolint:errcheck // the error that cut it short is told
	}
}

// finish takes what the tokens hold back, which may complete a stop text, once.
func (a *answerText) finish() {
	if a.finished {
		return
	}
	a.finished = true
	text, stopped := a.stop.Push(a.tokens.Flush())
	if !stopped {
		text += a.stop.Flush()
	}
	a.write(text) //nolint:errcheck // the line end behind it fails, too
}

// text returns the text of an answer, without the text that has ended it.
func (a *answerText) text(answer session.Answer) string {
	if a.stop.Stopped() {
		return a.all.String()
	}
	return a.whole(answer.Tokens)
}
