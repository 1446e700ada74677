package execution

import (
	"context"
	"errors"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Answerer answers one request after the other, each as the only sequence of shared calls. It gives the tokens that a
// [session.Session] gives with the runtime's own sampler, and it can draft.
type Answerer struct {
	// Constraint restricts the tokens of the next answer; nil: nothing does.
	Constraint batch.Constraint

	model    *session.Model // the properties of the program, without the program itself
	runner   *batch.Runner
	position int

	drafting  Drafting
	drafts    speculate.Totals // of all answers
	suspected bool
}

// OpenAnswerer compiles the program of a file for one sequence, with the drafts that d asks for.
func OpenAnswerer(path string, m *ir.Module, e engine.Engine, o engine.Options, d Drafting) (*Answerer, error) {
	about, err := session.Describe(m.Only(m.Entry))
	if err != nil {
		return nil, kind.Of(kind.ErrInvalid, err)
	}
	available, where := MemoryOn(e)
	f := Fit{File: path, Need: NeedOf(m, about.MaxSeqLen, e, o.Precision), Context: about.MaxSeqLen, Sessions: 1,
		Device: where}
	if err := f.Check(available); err != nil {
		return nil, err
	}
	x, err := NewExecutor(path, m, e, batch.RaggedOptions{Engine: o, Sequences: 1,
		Positions: about.MaxSeqLen, Draft: d.Kind, Drafts: d.Most}, max(f.Need.State, 1), nil)
	if err != nil {
		return nil, err
	}
	drafting, err := d.On(x)
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	limits, layout := x.Limits(), x.Layout()
	runner, err := batch.New(x, batch.Options{Sequences: 1, Drafting: drafting,
		Budget: layout.Bytes(batch.WithDrafts(layout, about.MaxSeqLen, limits.Rows, drafting.Most))})
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	d.Drafting = drafting
	return &Answerer{runner: runner, drafting: d, model: &session.Model{Form: session.Drawn, MaxSeqLen: about.MaxSeqLen,
		Vocab: limits.Vocab, Device: e.Name()}}, nil
}

// Model returns the properties of the program, such as its vocabulary and its longest context. The result has no
// program in it: the Answerer generates, a session of the result cannot.
func (a *Answerer) Model() *session.Model { return a.model }

// Position returns the number of tokens that were fed for the last answer.
func (a *Answerer) Position() int { return a.position }

// Close frees the program.
func (a *Answerer) Close() error { return a.runner.Close() }

// Generate is [session.Session.Generate] from an empty context. It ignores what only sessions have: Request.Force,
// FeedLast and Logits, the logits of Request.Step, and Sampling.Mask, in whose place there is Constraint.
func (a *Answerer) Generate(ctx context.Context, r session.Request) (out session.Answer, err error) {
	q := batch.Request{DraftLog: true, Prompt: r.Prompt, MaxTokens: r.MaxNewTokens, Stop: r.Stop,
		Constraint: a.Constraint, Logprobs: -1, Sampling: samplingOf(r.Sampling)}
	if r.Sampling.Logprobs {
		q.Logprobs = r.Sampling.TopLogprobs
	}
	stream, err := a.runner.Submit(ctx, q)
	if engine.Ended(err) {
		return session.Answer{Reason: session.StopCancelled}, nil
	}
	if err != nil {
		return out, RequestError(err)
	}
	// The stream ends with the context. The tokens that it gave before belong to the answer.
	end, err := stream.Read(context.WithoutCancel(ctx), func(t batch.Token) bool {
		out.Tokens = append(out.Tokens, t.ID)
		p := logprobsOf(t)
		if r.Sampling.Logprobs {
			out.Logprobs = append(out.Logprobs, p)
		}
		if r.Step != nil {
			r.Step(session.Step{Token: t.ID, Logprob: p.Logprob.Logprob, Top: p.Top})
		}
		return r.Token == nil || r.Token(t.ID)
	})
	if err != nil {
		return out, err
	}
	out.Reason = reasons[end.Reason]
	out.Prompt, out.PrefillTime, out.DecodeTime = len(r.Prompt), end.Queued+end.Prefill, end.Decode
	out.Decoded = max(0, len(out.Tokens)-1)
	out.Drafts, out.Rounds = end.Drafts, end.Rounds
	a.position = len(r.Prompt) + out.Decoded
	if a.drafts.Add(end.Drafts); !a.suspected && a.drafting.Kind != speculate.None && a.drafts.Suspicious() {
		a.suspected = true // after the answer, so that the note does not interrupt it
		a.drafting.Suspect(a.drafts)
	}
	return out, nil
}

// reasons translates the reasons of package batch to those of package session.
var reasons = map[batch.Reason]session.StopReason{batch.Stopped: session.StopEOS, batch.Length: session.StopLength,
	batch.Cancelled: session.StopCancelled}

// samplingOf translates sampling parameters of package session to those of package batch.
func samplingOf(p session.Sampling) batch.Sampling {
	return batch.Sampling{Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, Seed: p.Seed,
		Repeat: p.RepeatPenalty, RepeatLast: p.LastN, Presence: p.PresencePenalty, Frequency: p.FrequencyPenalty,
		Bias: p.Bias}
}

// logprobsOf translates log-probabilities of package batch to those of package session.
func logprobsOf(t batch.Token) session.TokenLogprobs {
	out := session.TokenLogprobs{Logprob: session.Logprob{Token: t.ID, Logprob: t.Logprob}}
	for _, v := range t.Top {
		out.Top = append(out.Top, session.Logprob{Token: v.ID, Logprob: v.Logprob})
	}
	return out
}

// RequestError gives an error of [batch.Runner.Submit] its kind.
func RequestError(err error) error {
	var parameter *batch.ParameterError
	var context *batch.ContextError
	switch {
	case errors.As(err, &parameter), errors.As(err, &context):
		return kind.Of(kind.ErrUsage, err)
	case errors.Is(err, schedule.ErrTooLong):
		return kind.Of(kind.ErrMemory, err)
	}
	return err
}
