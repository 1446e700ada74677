package batch

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/etc-ml/etc/runtime/speculate"
)

// Request is what a sequence is asked for. Its slices and maps must not change until the stream has ended.
type Request struct {
	// Prompt are the tokens to answer, at least one.
	Prompt []int
	// MaxTokens bounds the answer; 0 is until a stop token or a full context.
	MaxTokens int
	// Stop are the tokens that end the answer; they are not part of it.
	Stop []int
	// Marks are positions in the prompt, ascending, at which other prompts are likely to part: ends of turns.
	Marks    []int
	Sampling Sampling
	// Drafts bounds the drafts of a call, where it is not 0, below what the runner's [Drafting] says; below 0: none.
	Drafts int
	// DraftLog keeps End.Rounds.
	DraftLog bool
	// Logprobs asks for the logarithm of the probability of each token, and of so many of the most likely ones beside
	// it; below 0: for none.
	Logprobs int
	// Constraint holds the answer to a form; nil: none.
	Constraint Constraint
}

// Constraint says which tokens may come next. Its methods are not called at the same time.
type Constraint interface {
	// Mask sets bit i%64 of word i/64 of dst where token i may come next. It is false where every token may; dst is
	// then of no meaning.
	Mask(dst []uint64) bool
	// Accept goes on by a token, a stop token too.
	Accept(token int) error
	// MaskWords is the length of dst.
	MaskWords() int
}

// Sampling are the parameters of the draws of an answer. Temperature, top-k, top-p and the seed are those of etc run
// and draw the same tokens. The zero value but for TopP 1 chooses the most likely token.
type Sampling struct {
	// Temperature divides the logits; 0 chooses the most likely token. Finite and not negative.
	Temperature float32
	// TopK keeps the k most likely tokens; 0 or less keeps all.
	TopK int64
	// TopP keeps the most likely tokens up to this probability; in (0, 1], 1 keeps all.
	TopP float32
	// MinP drops tokens less likely than MinP times the most likely one; in [0, 1], 0 drops none.
	MinP float32
	// Seed of the first token; the i-th one behind it draws with Seed + i. Its lower 32 bits count.
	Seed int64
	// Repeat divides the positive logits, and multiplies the negative ones, of the tokens among the last RepeatLast of
	// prompt and answer; 0 and 1 change none.
	Repeat float32
	// RepeatLast is how far the penalties look back, below 0 over everything; 0 is 64 for Repeat, and everything for
	// the others.
	RepeatLast int
	// Presence is taken from the logits of the last tokens of the answer, Frequency as often as each came.
	Presence, Frequency float32
	// Bias is added to the logits of tokens.
	Bias map[int]float32
}

// plain reports whether the parameters are those that a program's own sampling head has.
func (s Sampling) plain() bool {
	return s.MinP == 0 && !s.penalizes() && len(s.Bias) == 0
}

func (s Sampling) penalizes() bool {
	return s.repeats() || s.Presence != 0 || s.Frequency != 0
}

func (s Sampling) repeats() bool { return s.Repeat != 0 && s.Repeat != 1 }

// ParameterError says that a parameter of a request is out of range, or that the program cannot do it.
type ParameterError struct {
	// Name of the field of Request or Sampling.
	Name string
	// Reason says what was expected.
	Reason string
}

func (e *ParameterError) Error() string { return e.Name + ": " + e.Reason }

// Errors of Submit.
var (
	// ErrFull says that as many sequences wait as may.
	ErrFull = errors.New("the queue is full")
	// ErrClosed says that the runner takes no more.
	ErrClosed = errors.New("the server is shutting down")
)

// ContextError says that a prompt leaves no room for an answer, or not for one of the wanted length.
type ContextError struct {
	// Prompt and Answer are their tokens, Context the positions of a sequence.
	Prompt, Answer, Context int
}

func (e *ContextError) Error() string {
	if e.Answer > 0 {
		return fmt.Sprintf("the prompt of %d tokens and an answer of %d do not fit the context of %d tokens", e.Prompt,
			e.Answer, e.Context)
	}
	return fmt.Sprintf("the prompt of %d tokens leaves no room for an answer in the context of %d tokens", e.Prompt,
		e.Context)
}

// check reports what in a request is out of its range, or more than the program can do, and sets what was left open.
func (r *Request) check(l Limits) error {
	if len(r.Prompt) == 0 {
		return &ParameterError{"Prompt", "it is empty; at least one token is needed"}
	}
	if r.MaxTokens < 0 {
		return &ParameterError{"MaxTokens", fmt.Sprintf("%d, want 0 or more", r.MaxTokens)}
	}
	if len(r.Prompt)+max(r.MaxTokens, 1) > l.Positions {
		return &ContextError{len(r.Prompt), r.MaxTokens, l.Positions}
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = l.Positions - len(r.Prompt)
	}
	for i, t := range r.Prompt {
		if t < 0 || t > math.MaxInt32 || l.Vocab > 0 && t >= l.Vocab {
			return &ParameterError{"Prompt",
				fmt.Sprintf("token %d (number %d) is not in the vocabulary of %d tokens", t, i,
					l.Vocab)}
		}
	}
	if err := r.Sampling.Check(l); err != nil {
		return err
	}
	if l.NoLogits && (r.Logprobs >= 0 || r.Constraint != nil) {
		name := "Logprobs"
		if r.Constraint != nil {
			name = "Constraint"
		}
		return &ParameterError{name, noLogits}
	}
	return nil
}

const noLogits = "the program gives tokens, not logits; export it without --sample"

// Check reports a parameter that is out of its range, or that a program with these limits has no use for; it is a
// [*ParameterError] then.
func (s Sampling) Check(l Limits) error {
	finite := func(v float32) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }
	for _, c := range []struct {
		name string
		v    float32
		ok   bool
		want string
	}{
		{"Temperature", s.Temperature, finite(s.Temperature) && s.Temperature >= 0, "a finite number of at least 0"},
		{"TopP", s.TopP, s.TopP > 0 && s.TopP <= 1, "more than 0 and at most 1"},
		{"MinP", s.MinP, s.MinP >= 0 && s.MinP <= 1, "0 to 1"},
		{"Repeat", s.Repeat, finite(s.Repeat) && s.Repeat >= 0, "a finite number above 0"},
		{"Presence", s.Presence, finite(s.Presence), "a finite number"},
		{"Frequency", s.Frequency, finite(s.Frequency), "a finite number"},
	} {
		if !c.ok {
			return &ParameterError{c.name, fmt.Sprintf("%g, want %s", c.v, c.want)}
		}
		if l.NoLogits && c.v != 0 && (c.name == "MinP" || c.name == "Presence" || c.name == "Frequency") {
			return &ParameterError{c.name, noLogits}
		}
	}
	for t, v := range s.Bias {
		if t < 0 || l.Vocab > 0 && t >= l.Vocab || math.IsNaN(float64(v)) {
			return &ParameterError{"Bias",
				fmt.Sprintf("token %d: %g, want a number for one of %d tokens", t, v, l.Vocab)}
		}
	}
	return s.checkProgram(l)
}

// checkProgram reports a parameter that a program with these limits has no use for.
func (s Sampling) checkProgram(l Limits) error {
	switch {
	case l.NoLogits && s.repeats():
		return &ParameterError{"Repeat", noLogits}
	case l.NoLogits && len(s.Bias) > 0:
		return &ParameterError{"Bias", noLogits}
	case l.NoSeed && s.TopK > 0:
		return &ParameterError{"TopK", noHead}
	case l.NoSeed && s.TopP < 1:
		return &ParameterError{"TopP", noHead}
	}
	return nil
}

const noHead = "the program's own sampler takes a temperature only"

// Token is one of an answer.
type Token struct {
	ID int
	// Logprob is the natural logarithm of the token's probability by the raw logits, where it was asked for.
	Logprob float32
	// Top are the most likely tokens, the likeliest first, where they were asked for.
	Top []Logprob
}

// Logprob is the natural logarithm of a token's probability.
type Logprob struct {
	ID      int
	Logprob float32
}

// Reason says why an answer ended.
type Reason uint8

// The reasons of an end.
const (
	Stopped   Reason = iota // a stop token
	Length                  // MaxTokens, or a full context
	Cancelled               // Cancel, or the end of the context of Submit
	Failed                  // the error of Stream.End
)

// String names the reason as etc run --json does.
func (r Reason) String() string { return [...]string{"eos", "length", "cancelled", "failed"}[r] }

// End is what is known of an answer when it has ended.
type End struct {
	Reason Reason
	// Stop is the stop token of Stopped.
	Stop int
	// Tokens is how many the answer has, Cached how many of the prompt were not computed.
	Tokens, Cached int
	// Queued is the time until the first call, Prefill from there to the first token, Decode from there to the end.
	Queued, Prefill, Decode time.Duration
	// Drafts counts the drafts of the stream, and Rounds tells them, where Request.DraftLog asks for it.
	Drafts speculate.Totals
	Rounds speculate.Log
}
