package etc

import (
	"strings"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/session"
)

// answerText is the text of an answer while its tokens come, up to a text that ends it.
type answerText struct {
	file     *prompt.Text
	tokens   *prompt.Stream
	stop     *session.TextStop
	ids      []int
	given    strings.Builder
	finished bool
}

// newAnswerText begins the text of an answer, which each of some texts ends.
func newAnswerText(t *prompt.Text, stops []string) *answerText {
	return &answerText{file: t, tokens: t.Stream(), stop: session.NewTextStop(stops)}
}

// push takes a token of the answer. It returns the text that it adds, and whether the answer has ended.
func (a *answerText) push(id int) (text string, stopped bool) {
	a.ids = append(a.ids, id)
	text, stopped = a.stop.Push(a.tokens.Push(id))
	a.given.WriteString(text)
	return text, stopped
}

// finish returns the text that was held back, which may complete a text that ends the answer. Later calls return "".
func (a *answerText) finish() string {
	if a.finished {
		return ""
	}
	a.finished = true
	text, stopped := a.stop.Push(a.tokens.Flush())
	if !stopped {
		text += a.stop.Flush()
	}
	a.given.WriteString(text)
	return text
}

// stopped reports whether a text has ended the answer.
func (a *answerText) stopped() bool { return a.stop.Stopped() }

// whole returns the text of the answer, without the text that has ended it; "" without a tokenizer.
func (a *answerText) whole() string {
	if a.stop.Stopped() {
		return a.given.String()
	}
	return a.file.Decode(a.ids)
}
