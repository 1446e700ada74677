package session

import (
	"context"
	"slices"
	"time"

	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Request is the input of [Session.Generate].
type Request struct {
	Prompt   []int
	Sampling Sampling
	// MaxNewTokens bounds the answer; 0 means until a stop token or a full context.
	MaxNewTokens int
	// Stop are the tokens that end the answer; they are not part of it.
	Stop []int
	// Force are tokens to feed instead of those that are chosen; it sets the length of the answer.
	Force []int
	// FeedLast feeds the last token too, so that its logits are seen.
	FeedLast bool
	// Token is called with every token of the answer; false ends the answer.
	Token func(token int) bool
	// Step is called with what each token of the answer was drawn with, before Token is; nil for nothing.
	Step func(Step)
	// Logits is called with the logits after the prompt and after every token that is fed; they are nil where
	// [Model.GivesLogits] is false.
	Logits func(logits []float32) error
}

// StopReason tells why an answer ended.
type StopReason string

const (
	// StopEOS is a stop token.
	StopEOS StopReason = "eos"
	// StopLength is the wanted number of tokens, or a full context.
	StopLength StopReason = "length"
	// StopText is a text that ends the answer; see [StopText].
	StopText StopReason = "stop"
	// StopCancelled is the end of the context, by the user's wish or at its deadline, or a Request.Token that returns
	// false.
	StopCancelled StopReason = "cancelled"
)

// Answer is the result of [Session.Generate].
type Answer struct {
	Tokens []int
	Reason StopReason
	// Logprobs are the log-probabilities of the tokens, if [Sampling.Logprobs] asks for them.
	Logprobs []TokenLogprobs
	// Prompt is the number of tokens that were fed before the first one of the answer.
	Prompt int
	// PrefillTime is the time of the prompt, DecodeTime that of the Decoded tokens after the first.
	PrefillTime, DecodeTime time.Duration
	// Decoded is the number of tokens after the first, each of a call for one token where none was drafted.
	Decoded int
	// Drafts counts what was drafted, and Rounds tells it in full, of answers with drafts. A session has none.
	Drafts speculate.Totals
	Rounds speculate.Log
}

// TokenLogprobs are the log-probability of a token of an answer, and the most likely tokens in its place.
type TokenLogprobs struct {
	Logprob
	Top []Logprob
}

// Generate feeds the prompt and decodes an answer. The prompt draws with the seed of the request, the
// i-th decoded token with seed+i (requirements B9, B10). After a cancelled context the answer so far is
// given and the session holds what has been fed: a call for one token runs to its end, so that the conversation can
// go on. A prompt's chunk is abandoned, and the session with it (see [Session.Abandoned]).
func (s *Session) Generate(ctx context.Context, r Request) (a Answer, err error) {
	start := time.Now()
	step, err := s.Prefill(ctx, r.Prompt, r.Sampling)
	if err != nil {
		if engine.Ended(err) {
			return Answer{Reason: StopCancelled}, nil
		}
		return a, err
	}
	a.Prompt, a.PrefillTime = len(r.Prompt), time.Since(start)
	if err := r.logits(step); err != nil {
		return a, err
	}
	limit := s.model.MaxSeqLen - len(s.tokens)
	if r.MaxNewTokens > 0 {
		limit = r.MaxNewTokens
	}
	if r.Force != nil {
		limit = len(r.Force)
	}
	start = time.Now()
	defer func() { a.DecodeTime = time.Since(start) }()
	a.Reason, err = s.decode(ctx, &r, &a, step, limit)
	return a, err
}

// decode decodes an answer of at most limit tokens after a first step, and says why it ended.
func (s *Session) decode(ctx context.Context, r *Request, a *Answer, step Step, limit int) (_ StopReason, err error) {
	whole := context.WithoutCancel(ctx)
	for p := r.Sampling; ; {
		token := step.Token
		if r.Force != nil && len(a.Tokens) < len(r.Force) {
			token = r.Force[len(a.Tokens)]
		}
		switch {
		case len(a.Tokens) == limit:
			return StopLength, nil
		case r.Force == nil && slices.Contains(r.Stop, token):
			return StopEOS, nil
		case ctx.Err() != nil:
			return StopCancelled, nil
		}
		a.Tokens = append(a.Tokens, token)
		if r.Sampling.Logprobs {
			a.Logprobs = append(a.Logprobs, TokenLogprobs{Logprob{token, step.Logprob}, step.Top})
		}
		if r.Step != nil {
			r.Step(step)
		}
		if r.Token != nil && !r.Token(token) {
			return StopCancelled, nil
		}
		if len(a.Tokens) == limit && !r.FeedLast || len(s.tokens) == s.model.MaxSeqLen {
			return StopLength, nil
		}
		p.Seed++
		if r.Force == nil && (len(a.Tokens)+1 < limit || r.FeedLast && len(a.Tokens) < limit) {
			next := p
			next.Seed++
			step, err = s.DecodePipelined(whole, token, p, next)
		} else {
			step, err = s.Decode(whole, token, p)
		}
		if err != nil {
			return a.Reason, err
		}
		a.Decoded++
		if err := r.logits(step); err != nil {
			return a.Reason, err
		}
	}
}

func (r *Request) logits(s Step) error {
	if r.Logits == nil {
		return nil
	}
	return r.Logits(s.Logits)
}
