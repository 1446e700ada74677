package etc

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Token is a token of an answer. The last one of an answer is none of the model's: it has the ID -1, the text that was
// held back, and End.
type Token struct {
	// ID is the token's number in the vocabulary.
	ID int
	// Text is the text that the token adds to the answer. It consists of whole characters. It is empty while a
	// character is not complete, and while it may be the beginning of a text that ends the answer.
	Text string
	// Logprob is the natural logarithm of the token's probability, and Top are the most likely tokens in its place,
	// where Parameters.Logprobs asks for them.
	Logprob float64
	Top     []Candidate
	// End is set with the last token of an answer.
	End *End
}

// Candidate is a token that could have come.
type Candidate struct {
	ID      int
	Logprob float64
}

// Reason tells why an answer ended.
type Reason string

// The reasons.
const (
	StopToken Reason = "eos"       // the model ended it
	StopText  Reason = "stop"      // one of Parameters.Stop
	Length    Reason = "length"    // Parameters.MaxTokens, or a full context
	Cancelled Reason = "cancelled" // the context has ended; only of a Session
)

// End describes an answer that has ended.
type End struct {
	Reason Reason
	// Text is the whole text of the answer.
	Text string
	// PromptTokens is the number of tokens of the prompt, CachedTokens how many of them were not computed anew, and
	// AnswerTokens those of the answer.
	PromptTokens, CachedTokens, AnswerTokens int
	// Seed is the one that the first token was drawn with.
	Seed int64
	// ContextFull tells that the answer has ended because the context is full.
	ContextFull bool
	// Drafted tokens of the answer were drafted in DraftRounds calls, and Accepted of them were right; see
	// Options.Speculate.
	Drafted, Accepted, DraftRounds int
	// Calls is the number of tokens that were fed one by one after the prompt.
	Calls int
	// Queued is the time until the first call, Prefill from there to the first token, Decode from there to the end.
	Queued, Prefill, Decode time.Duration

	rounds speculate.Log
}

// WriteDraftLog writes the rounds of drafts as a JSON array: what was drafted, and how much of it was right.
func (e *End) WriteDraftLog(w io.Writer) error { return e.rounds.Write(w) }

// Message is a turn of a conversation.
type Message struct {
	// Role is who says it: system, user or assistant.
	Role string
	// Content is the text of the message. Nothing in it is read as a control token.
	Content string
}

// Generate answers a prompt as it is, without the chat template; names of special tokens in it are parsed. It ranges
// over the answer while it comes. An error comes last, with the token -1; a loop that is left ends the answer.
func (m *Model) Generate(ctx context.Context, prompt string, p Parameters) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		m.lock.Lock()
		tokens, err := m.text.Encode("", prompt, true)
		m.lock.Unlock()
		m.answer(ctx, question{tokens: tokens}, err, p, yield)
	}
}

// Chat answers the last of some messages by the chat template. It ranges over the answer as [Model.Generate] does. The
// next turn of a conversation is Chat with the answer and the next question after these messages; of them, only what
// is new is computed.
func (m *Model) Chat(ctx context.Context, messages []Message, p Parameters) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		q, err := m.question(messages, p)
		m.answer(ctx, q, err, p, yield)
	}
}

// Prompt returns the tokens that [Model.Chat] makes of messages.
func (m *Model) Prompt(messages []Message, p Parameters) ([]int, error) {
	q, err := m.question(messages, p)
	return q.tokens, err
}

// question is a prompt.
type question struct {
	tokens []int
	// end are the last of the tokens, which the chat template wrote for the answer; nil without a template.
	end []int
	// answered is called with every token of the answer; nil for nothing.
	answered func(id int)
}

// question makes the prompt of messages.
func (m *Model) question(messages []Message, p Parameters) (q question, err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if err := setTemplate(m.text, p); err != nil {
		return q, err
	}
	return renderQuestion(m.text, messages)
}

// answer generates an answer and passes its tokens to yield. err is an error of the prompt, or nil.
func (m *Model) answer(ctx context.Context, q question, err error, p Parameters, yield func(Token, error) bool) {
	fail := func(err error) { yield(Token{ID: -1}, err) }
	if err != nil {
		fail(err)
		return
	}
	r, err := m.request(q, p)
	if err != nil {
		fail(err)
		return
	}
	stream, err := m.runner.Submit(ctx, r)
	if err != nil {
		fail(execution.RequestError(err))
		return
	}
	m.follow(ctx, stream, r, q, p, yield)
}

// request makes the request of a prompt.
func (m *Model) request(q question, p Parameters) (r batch.Request, err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	r = batch.Request{Prompt: q.tokens, MaxTokens: p.MaxTokens, Logprobs: -1, DraftLog: true}
	if err := p.check(m.text); err != nil {
		return r, err
	}
	if p.ForceTokens != nil || p.Logits != nil {
		return r, kind.Usagef("Parameters.ForceTokens and Parameters.Logits are for a Session")
	}
	if p.Logprobs != nil {
		r.Logprobs = *p.Logprobs
	}
	if !p.IgnoreStopTokens {
		r.Stop = m.text.Stop
	}
	if n := len(q.tokens) - len(q.end); q.end != nil && n > 0 {
		r.Marks = []int{n} // where the next turn goes on
	}
	if r.Sampling, err = p.sampling(m.text, m.runner.Limits()); err != nil {
		return r, err
	}
	grammar, err := m.constraints.compile(&p)
	if grammar == nil || err != nil {
		return r, err
	}
	r.Constraint, err = m.constraints.begin(grammar, q.end, p.Think)
	return r, err
}

// follow gives the tokens of a stream until it ends.
func (m *Model) follow(ctx context.Context, stream *batch.Stream, r batch.Request, q question, p Parameters,
	yield func(Token, error) bool) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	text := newAnswerText(m.text, p.Stop)
	count, left := 0, false
	end, err := stream.Read(ctx, func(t batch.Token) bool {
		count++
		if q.answered != nil {
			q.answered(t.ID)
		}
		out, stopped := tokenOf(t), false
		out.Text, stopped = text.push(t.ID)
		if left = !yield(out, nil); left {
			leave() // nobody waits for the end
		}
		return !left && !stopped
	})
	if left {
		return
	}
	last := Token{ID: -1}
	if err == nil {
		last.Text = text.finish()
		if end.Reason == batch.Cancelled && !text.stopped() {
			err = batch.ErrClosed // by Close, in the middle of the answer
		}
	}
	if err != nil {
		yield(last, err)
		return
	}
	last.End = &End{Reason: reasons[end.Reason], Text: text.whole(), PromptTokens: len(r.Prompt),
		CachedTokens: end.Cached, AnswerTokens: count, Drafted: end.Drafts.Drafted, Accepted: end.Drafts.Accepted,
		DraftRounds: end.Drafts.Rounds, Calls: max(0, count-1), Seed: r.Sampling.Seed, Queued: end.Queued,
		Prefill: end.Prefill, Decode: end.Decode, rounds: end.Rounds}
	last.End.ContextFull = end.Reason == batch.Length && count != p.MaxTokens
	if text.stopped() {
		last.End.Reason = StopText
	}
	yield(last, nil)
}

// tokenOf returns a token of a stream, without its text.
func tokenOf(t batch.Token) Token {
	out := Token{ID: t.ID, Logprob: float64(t.Logprob)}
	for _, c := range t.Top {
		out.Top = append(out.Top, Candidate{c.ID, float64(c.Logprob)})
	}
	return out
}

// reasons are those of a stream that has come to its end.
var reasons = map[batch.Reason]Reason{batch.Stopped: StopToken, batch.Length: Length}
