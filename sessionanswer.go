package etc

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/internal/statefile"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/guide"
	"github.com/etc-ml/etc/runtime/session"
)

// Chat answers the last of some messages by the chat template, from an empty state. It ranges over the answer while it
// comes, as [Model.Chat] does. Where the context ends in the middle, the last token has the error and also an End,
// whose reason is [Cancelled].
func (s *Session) Chat(ctx context.Context, messages []Message) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		q, err := renderQuestion(s.text, messages)
		s.alone(ctx, q, err, yield)
	}
}

// Generate answers a prompt as it is, without the chat template, from an empty state. Names of special tokens in it are
// parsed. It ranges over the answer as [Session.Chat] does.
func (s *Session) Generate(ctx context.Context, text string) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		tokens, err := s.text.Encode("", text, true)
		s.alone(ctx, question{tokens: tokens}, err, yield)
	}
}

// GenerateTokens is [Session.Generate] for a prompt of token ids, which needs no tokenizer.
func (s *Session) GenerateTokens(ctx context.Context, ids ...int) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) { s.alone(ctx, question{tokens: ids}, nil, yield) }
}

// Prompt returns the tokens that [Session.Chat] makes of messages.
func (s *Session) Prompt(messages []Message) ([]int, error) {
	q, err := renderQuestion(s.text, messages)
	return q.tokens, err
}

// alone answers a prompt from an empty state. err is an error of the prompt, or nil.
func (s *Session) alone(ctx context.Context, q question, err error, yield func(Token, error) bool) {
	if err == nil {
		err = s.free()
	}
	if err == nil {
		err = s.Compile()
	}
	if err == nil {
		err = s.checkLength(q.tokens)
	}
	if err == nil {
		err = s.empty()
	}
	a := &sessionAnswer{s: s, yield: yield, text: newAnswerText(s.text, s.given.Stop)}
	if err == nil {
		err = a.begin(q.end)
	}
	if err != nil {
		a.fail(err)
		return
	}
	s.answering = true
	defer func() { s.answering = false }()
	a.request.Prompt = q.tokens
	var out session.Answer
	if s.answerer != nil {
		s.answerer.Constraint = nil
		if a.guide != nil {
			s.answerer.Constraint = a.guide
		}
		out, err = s.answerer.Generate(ctx, a.request)
	} else {
		out, err = s.session.Generate(ctx, a.request)
	}
	a.end(ctx, out, len(q.tokens), err)
}

// checkLength refuses a prompt or a length that cannot fit the context, before anything runs.
func (s *Session) checkLength(prompt []int) error {
	n := s.given.MaxTokens
	if s.given.ForceTokens != nil {
		n = len(s.given.ForceTokens)
	}
	if len(prompt) == 0 {
		return kind.Usagef("an empty prompt: at least one token is needed")
	}
	if len(prompt)+n > s.model.MaxSeqLen {
		return kind.Usagef("a prompt of %d tokens and %d new ones do not fit the context of %d tokens", len(prompt), n,
			s.model.MaxSeqLen)
	}
	for i, t := range append(append([]int{}, prompt...), s.given.ForceTokens...) {
		if t < 0 || s.model.Vocab > 0 && t >= s.model.Vocab {
			return kind.Usagef("token %d (number %d) is not in the vocabulary of %d tokens", t, i, s.model.Vocab)
		}
	}
	return nil
}

// Reset begins a conversation, after a system prompt where it is not empty, and forgets the one before.
func (s *Session) Reset(system string) error {
	if err := s.free(); err != nil {
		return err
	}
	if s.conversation != nil {
		return s.conversation.Reset(system)
	}
	if s.shared() {
		return kind.Usagef("a conversation of a session with Options.Speculate or Options.Deterministic, which are for " +
			"answers that stand alone; Model.Chat has them in conversations")
	}
	if err := s.compile(true); err != nil {
		return err
	}
	if err := s.empty(); err != nil {
		return err
	}
	s.conversation = chat.New(s.session, system)
	s.conversation.Render = s.text.Render
	return nil
}

// empty forgets the state, and the conversation with it, where there is any.
func (s *Session) empty() error {
	if s.session == nil || s.session.Position() == 0 && !s.session.Abandoned() {
		return nil
	}
	s.conversation = nil
	return s.session.Reset()
}

// converse begins a conversation where there is none.
func (s *Session) converse() error {
	if s.conversation == nil {
		return s.Reset("")
	}
	return s.free()
}

// Ask goes on with the conversation: it answers a question, and both become part of it. Of what was said before nothing
// is computed anew. It ranges over the answer as [Session.Chat] does. A question whose answer fails, or ends before its
// first token, is not part of the conversation; an answer that is cut short is, as far as it came.
func (s *Session) Ask(ctx context.Context, text string) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		a := &sessionAnswer{s: s, yield: yield, text: newAnswerText(s.text, s.given.Stop)}
		err := s.converse()
		if err == nil {
			err = a.beginTurn(text)
		}
		if err != nil {
			a.fail(err)
			return
		}
		s.answering = true
		defer func() { s.answering = false }()
		s.conversation.Text = func(tokens []int) string {
			a.text.finish()
			return a.text.whole()
		}
		out, err := s.conversation.Ask(ctx, text, a.request)
		if long := (*chat.ContextError)(nil); errors.As(err, &long) {
			err = kind.Of(kind.ErrUsage, err)
		}
		a.end(ctx, out, s.session.Position()-out.Decoded, err)
	}
}

// Messages returns the turns of the conversation.
func (s *Session) Messages() []Message {
	var out []Message
	if s.conversation != nil {
		for _, m := range s.conversation.Messages() {
			out = append(out, Message(m))
		}
	}
	return out
}

// Len returns the number of tokens that the state has seen.
func (s *Session) Len() int {
	if s.session == nil {
		return 0
	}
	return s.session.Position()
}

// owner describes the program as files of its state do.
func (s *Session) owner() statefile.Owner {
	return statefile.Owner{File: s.info.Path, Program: statefile.Identify(s.program), Precision: s.o.Precision}
}

// Save writes the conversation and its state to a file, which only its owner can read. The file is that of
// etc run --session. A device whose state cannot be taken out is an error.
func (s *Session) Save(path string) error {
	if err := s.converse(); err != nil {
		return err
	}
	saved, err := s.conversation.Save()
	if err != nil {
		return err
	}
	return statefile.WriteSession(path, s.owner(), saved)
}

// Load goes on with the conversation of a file that Save or etc run --session wrote, of this program and this
// precision. After an error the conversation is as it was.
func (s *Session) Load(path string) error {
	if err := s.converse(); err != nil {
		return err
	}
	saved, err := statefile.ReadSession(path, s.owner(), s.model)
	if err != nil {
		return err
	}
	if err := s.conversation.Load(saved); err != nil {
		return kind.Invalidf("%s: %w", path, err)
	}
	return nil
}

// sessionAnswer is one answer of a session.
type sessionAnswer struct {
	s       *Session
	yield   func(Token, error) bool
	text    *answerText
	request session.Request
	guide   *guide.Guide // nil without a constraint
	mask    []uint64
	step    session.Step // what the next token was drawn with
	count   int
	left    bool  // nobody ranges over the answer any more
	err     error // the guide's, of a token that it did not accept
}

// fail ends the answer with an error before anything has run.
func (a *sessionAnswer) fail(err error) { a.yield(Token{ID: -1}, err) }

// beginTurn begins the answer to a question of the conversation.
func (a *sessionAnswer) beginTurn(question string) error {
	var end []int
	if a.s.grammar != nil {
		messages := append(a.s.conversation.Messages(), chat.Message{Role: "user", Content: question})
		tokens, err := a.s.text.Render(messages, true)
		if err != nil {
			return err
		}
		end = a.s.text.PromptEnd(messages, tokens)
	}
	return a.begin(end)
}

// begin makes the request. end is the end of the prompt that the chat template wrote for the answer; nil for none.
func (a *sessionAnswer) begin(end []int) (err error) {
	s := a.s
	r := session.Request{Sampling: s.sampling, MaxNewTokens: s.given.MaxTokens, Force: s.given.ForceTokens,
		Logits: s.given.Logits, FeedLast: s.given.Logits != nil}
	if !s.given.IgnoreStopTokens {
		r.Stop = s.text.Stop
	}
	r.Sampling.Mask = nil
	if s.grammar != nil {
		if a.guide, err = s.constraints.begin(s.grammar, end, s.given.Think); err != nil {
			return err
		}
		a.mask = make([]uint64, a.guide.MaskWords())
		r.Sampling.Mask = a.allow
	}
	r.Step, r.Token = a.drawn, a.push
	a.request = r
	return nil
}

// allow is session.Sampling.Mask.
func (a *sessionAnswer) allow(mask []uint64) (bool, error) {
	if a.err != nil {
		return false, a.err
	}
	if !a.guide.Mask(a.mask) {
		return false, nil
	}
	any := false
	for _, w := range a.mask {
		any = any || w != 0
	}
	if !any {
		return false, fmt.Errorf("the vocabulary has no token with which the constraint goes on")
	}
	copy(mask, a.mask)
	return true, nil
}

// drawn is session.Request.Step.
func (a *sessionAnswer) drawn(step session.Step) {
	if a.step = step; a.guide != nil && a.s.answerer == nil && a.err == nil {
		a.err = a.guide.Accept(step.Token)
	}
}

// push is session.Request.Token: it gives a token to whoever ranges over the answer, and reports whether it goes on.
func (a *sessionAnswer) push(id int) bool {
	a.count++
	t := Token{ID: id}
	if a.request.Sampling.Logprobs {
		t.Logprob = float64(a.step.Logprob)
		for _, c := range a.step.Top {
			t.Top = append(t.Top, Candidate{c.Token, float64(c.Logprob)})
		}
	}
	stopped := false
	t.Text, stopped = a.text.push(id)
	a.left = !a.yield(t, nil)
	return !a.left && !stopped
}

// end gives the last token, with the end of the answer. prompt is the number of its prompt's tokens.
func (a *sessionAnswer) end(ctx context.Context, out session.Answer, prompt int, err error) {
	last := Token{ID: -1, Text: a.text.finish()}
	a.s.answering = false // nothing of the state is needed any more
	if a.left {
		return
	}
	if err != nil {
		a.yield(last, err)
		return
	}
	s := a.s
	e := &End{Reason: Reason(out.Reason), Text: a.text.whole(), PromptTokens: prompt,
		AnswerTokens: len(out.Tokens), Seed: s.sampling.Seed,
		Drafted: out.Drafts.Drafted, Accepted: out.Drafts.Accepted, DraftRounds: out.Drafts.Rounds,
		Calls: out.Decoded, Prefill: out.PrefillTime, Decode: out.DecodeTime, rounds: out.Rounds}
	if out.Prompt > 0 { // else it ended in the prompt
		e.CachedTokens = max(0, prompt-out.Prompt)
	}
	switch {
	case a.text.stopped():
		e.Reason = StopText
	case out.Reason == session.StopLength && s.given.ForceTokens == nil &&
		(s.given.MaxTokens == 0 || len(out.Tokens) < s.given.MaxTokens):
		e.ContextFull = s.position()+1 >= s.model.MaxSeqLen
	case e.Reason == Cancelled:
		err = ctx.Err()
	}
	last.End = e
	a.yield(last, err)
}

// position returns the number of tokens that were fed.
func (s *Session) position() int {
	if s.answerer != nil {
		return s.answerer.Position()
	}
	return s.session.Position()
}

// renderQuestion makes the prompt of messages by the chat template.
func renderQuestion(t *prompt.Text, messages []Message) (q question, err error) {
	var turns []chat.Message
	for _, x := range messages {
		turns = append(turns, chat.Message(x))
	}
	if q.tokens, err = t.Render(turns, true); err == nil {
		q.end = t.PromptEnd(turns, q.tokens)
	}
	return q, err
}
