package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
)

// addDeterministic adds --deterministic.
func (f *modelFlags) addDeterministic(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.deterministic, "deterministic", false,
		"compute each row alike, whatever other rows share its call, however a prompt is cut and whatever is cached: "+
			"the same bits alone and among others, in more time")
}

// undetermined names what was asked for that --deterministic does not go with: what needs a session, not a sequence.
func (f *runFlags) undetermined(cmd *cobra.Command, args []string) string {
	for _, flag := range []string{"logits", "force-tokens", "session"} {
		if cmd.Flags().Changed(flag) {
			return "--" + flag
		}
	}
	switch {
	case f.keepsChat(cmd, args):
		return "a chat"
	case f.sampler == "file" && cmd.Flags().Changed("sampler"):
		return "--sampler file"
	}
	return ""
}

// answering is what answers one request: a session, or a sequence of an executor of many.
type answering interface {
	Generate(ctx context.Context, r session.Request) (session.Answer, error)
	Model() *session.Model
	// Position is the number of tokens that were fed.
	Position() int
}

// sequenceAnswer answers one request after the other, each by the only sequence of an executor of many.
type sequenceAnswer struct {
	model      *session.Model // what is known of the program; nothing of it runs
	runner     *batch.Runner
	constraint batch.Constraint
	position   int
}

// aloneError says that a program runs one sequence at a time, which cannot verify drafts.
type aloneError struct{ why string }

func (e *aloneError) Error() string {
	return "without drafts: one sequence runs at a time, since " + e.why
}

// openSequence compiles a program as etc serve does, for one sequence.
func openSequence(path string, m *ir.Module, e engine.Engine, o engine.Options, drafts batch.Drafting) (*sequenceAnswer,
	error) {
	d, err := session.Describe(m.Only(m.Entry))
	if err != nil {
		return nil, invalidError{err}
	}
	if e, err = chosen(e, o.Precision); err != nil {
		return nil, loadError(path, err)
	}
	available, where := memoryOn(e)
	f := fit{File: path, Need: needOf(m, d.MaxSeqLen, e, o.Precision), Context: d.MaxSeqLen, Sessions: 1, Device: where}
	if err := f.Check(available); err != nil {
		return nil, err
	}
	x, err := newExecutor(path, m, e, batch.RaggedOptions{Engine: o, Sequences: 1, Rows: 512, Positions: d.MaxSeqLen,
		Draft: drafts.Kind, Drafts: drafts.Most},
		max(f.Need.State, 1), nil)
	if err != nil {
		return nil, err
	}
	limits, layout := x.Limits(), x.Layout()
	if limits.OneByOne && drafts.Most > 0 {
		return nil, errors.Join(&aloneError{limits.Why}, x.Close())
	}
	runner, err := batch.New(x, batch.Options{Sequences: 1, Drafting: drafts,
		Budget: layout.Bytes(batch.WithDrafts(layout, d.MaxSeqLen, limits.Rows, drafts.Most))})
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return &sequenceAnswer{runner: runner,
		model: &session.Model{Form: session.Drawn, MaxSeqLen: d.MaxSeqLen, Vocab: limits.Vocab, Device: e.Name()}}, nil
}

func (s *sequenceAnswer) Model() *session.Model { return s.model }
func (s *sequenceAnswer) Position() int         { return s.position }
func (s *sequenceAnswer) Close() error          { return s.runner.Close() }

// Generate is session.Session.Generate.
func (s *sequenceAnswer) Generate(ctx context.Context, r session.Request) (a session.Answer, err error) {
	p := r.Sampling
	q := batch.Request{DraftLog: true, Prompt: r.Prompt, MaxTokens: r.MaxNewTokens, Stop: r.Stop,
		Constraint: s.constraint, Logprobs: -1,
		Sampling: batch.Sampling{Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, Seed: p.Seed,
			Repeat: p.RepeatPenalty, RepeatLast: p.LastN, Presence: p.PresencePenalty, Frequency: p.FrequencyPenalty,
			Bias: p.Bias}}
	if p.Logprobs {
		q.Logprobs = p.TopLogprobs
	}
	stream, err := s.runner.Submit(ctx, q)
	var context *batch.ContextError
	var parameter *batch.ParameterError
	if errors.As(err, &context) || errors.As(err, &parameter) {
		return a, usageError{err}
	}
	if err != nil {
		return a, err
	}
	left := false
	for {
		t, ok := stream.Next(contextWithoutEnd)
		if !ok {
			break
		}
		if left {
			continue // drawn before the stream knew
		}
		a.Tokens = append(a.Tokens, t.ID)
		if p.Logprobs {
			given := session.TokenLogprobs{Logprob: session.Logprob{Token: t.ID, Logprob: t.Logprob}}
			for _, v := range t.Top {
				given.Top = append(given.Top, session.Logprob{Token: v.ID, Logprob: v.Logprob})
			}
			a.Logprobs = append(a.Logprobs, given)
		}
		if r.Token != nil && !r.Token(t.ID) {
			left = true
			stream.Cancel()
		}
	}
	end, err := stream.End()
	if err != nil {
		return a, err
	}
	a.Reason = map[batch.Reason]session.StopReason{batch.Stopped: session.StopEOS, batch.Length: session.StopLength,
		batch.Cancelled: session.StopCancelled}[end.Reason]
	if left {
		a.Reason = session.StopCancelled
	}
	a.Prompt, a.PrefillTime, a.DecodeTime = len(r.Prompt), end.Queued+end.Prefill, end.Decode
	a.Decoded = max(0, len(a.Tokens)-1)
	a.Drafts, a.Rounds = end.Drafts, end.Rounds
	s.position = len(r.Prompt) + a.Decoded
	return a, nil
}

// contextWithoutEnd is for reading a stream, which ends with the context that it was submitted with.
var contextWithoutEnd = context.Background()

// answerSequence answers one prompt by a sequence of an executor of many: as etc serve does, with --deterministic to
// the bit.
func answerSequence(ctx context.Context, cmd *cobra.Command, args []string, f runFlags,
	e engine.Engine, o engine.Options,
	p *program.Program, text *text, r session.Request, hold *held) (err error) {
	drafts, err := f.batched(args[0], p)
	if err != nil {
		return err
	}
	m, err := moduleWith(p, drafts.Kind)
	if err != nil {
		return err
	}
	s, err := openSequence(args[0], m, e, o, drafts)
	var alone *aloneError
	if errors.As(err, &alone) {
		if !f.automatic() {
			return usagef("%s: --speculate %s: %w", args[0], f.speculate, alone)
		}
		logf(cmd.ErrOrStderr(), "etc: --speculate auto: %v", alone)
		s, err = openSequence(args[0], m.Only(m.Entry), e, o, batch.Drafting{})
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := checkSampling(cmd, s.model, &r.Sampling, f); err != nil {
		return err
	}
	prompt, end, err := promptTokens(cmd, args, f, text)
	if err != nil {
		return err
	}
	r.Prompt = prompt
	if hold != nil {
		if err := hold.begin(text, end); err != nil {
			return err
		}
		s.constraint = hold.guide
	}
	if err := checkLength(s.model, r); err != nil {
		return err
	}
	return answer(ctx, cmd, s, text, r, f)
}
