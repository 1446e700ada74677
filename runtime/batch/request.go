package batch

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/etc-ml/etc/runtime/speculate"
)

// Request is a request for one sequence. Its slices and maps must not change until the stream has ended.
type Request struct {
	// Prompt has the tokens to answer, at least one.
	Prompt []int
	// MaxTokens bounds the answer; 0: until a stop token or a full context.
	MaxTokens int
	// Stop has the tokens that end the answer; they are not part of it.
	Stop []int
	// Marks are positions in the prompt, ascending, from which other prompts are likely to differ: ends of turns.
	Marks    []int
	Sampling Sampling
	// Drafts, if not 0, bounds the number of drafts of a call below the limit of the runner's [Drafting]; below 0: no
	// drafts.
	Drafts int
	// DraftLog fills End.Rounds.
	DraftLog bool
	// Logprobs asks for the log-probability of each token, and of this many of the most likely ones; below 0: for none.
	Logprobs int
	// Constraint restricts the tokens of the answer; nil: nothing does.
	Constraint Constraint
}

// Constraint says which tokens may come next. Its methods are not called at the same time.
type Constraint interface {
	// Mask sets bit i%64 of word i/64 of dst where token i may come next. It returns false where every token may; the
	// content of dst is then undefined.
	Mask(dst []uint64) bool
	// Accept advances the constraint by a token, which may be a stop token.
	Accept(token int) error
	// MaskWords is the length of dst.
	MaskWords() int
}

// Sampling has the parameters of the draws of an answer. Temperature, top-k, top-p and the seed are those of etc run
// and draw the same tokens. The zero value with TopP 1 chooses the most likely token.
type Sampling struct {
	// Temperature divides the logits; 0 chooses the most likely token. Finite and not negative.
	Temperature float32
	// TopK keeps the k most likely tokens; 0 or less keeps all.
	TopK int64
	// TopP keeps the most likely tokens up to this probability; in (0, 1], 1 keeps all.
	TopP float32
	// MinP drops tokens less likely than MinP times the most likely one; in [0, 1], 0 drops none.
	MinP float32
	// Seed is the seed of the first token; the i-th one after it is drawn with Seed + i. Its lower 32 bits count.
	Seed int64
	// Repeat divides the positive logits, and multiplies the negative ones, of tokens among the last RepeatLast of
	// prompt and answer; 0 and 1 change nothing.
	Repeat float32
	// RepeatLast is the number of last tokens that the penalties count, below 0 for all. 0 stands for 64 for Repeat,
	// and for all for the others.
	RepeatLast int
	// Presence is subtracted from the logits of tokens that occur among the last tokens of the answer; Frequency is
	// subtracted once for each occurrence.
	Presence, Frequency float32
	// Bias is added to the logits of tokens.
	Bias map[int]float32
}

// plain reports whether a program's own sampling head supports these parameters.
func (s Sampling) plain() bool {
	return s.MinP == 0 && !s.penalizes() && len(s.Bias) == 0
}

func (s Sampling) penalizes() bool {
	return s.repeats() || s.Presence != 0 || s.Frequency != 0
}

func (s Sampling) repeats() bool { return s.Repeat != 0 && s.Repeat != 1 }

// ParameterError says that a parameter of a request is out of range, or that the program does not support it.
type ParameterError struct {
	// Name is the name of the field of Request or Sampling.
	Name string
	// Reason says what was expected.
	Reason string
}

func (e *ParameterError) Error() string { return e.Name + ": " + e.Reason }

// Errors of Submit.
var (
	// ErrFull says that the maximum number of sequences is waiting.
	ErrFull = errors.New("the queue is full")
	// ErrClosed says that the runner accepts no more requests.
	ErrClosed = errors.New("the server is shutting down")
)

// ContextError says that a prompt leaves too little room in the context for an answer of the wanted length, or for any.
type ContextError struct {
	// Prompt and Answer are numbers of tokens, Context the number of positions of a sequence.
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

// check returns an error for a parameter that is out of range or that the program does not support. It fills in
// defaults.
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

// Check returns a [*ParameterError] for a parameter that is out of range, or that a program with these limits does not
// support.
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

// checkProgram returns an error for a parameter that a program with these limits does not support.
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

// Token is a token of an answer.
type Token struct {
	ID int
	// Logprob is the natural logarithm of the token's probability by the raw logits, if it was asked for.
	Logprob float32
	// Top are the most likely tokens, the likeliest first, if they were asked for.
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
	Failed                  // an error: see Stream.End
)

// String names the reason as etc run --json does.
func (r Reason) String() string { return [...]string{"eos", "length", "cancelled", "failed"}[r] }

// End describes an answer that has ended.
type End struct {
	Reason Reason
	// Stop is the stop token where the reason is Stopped.
	Stop int
	// Tokens is the number of tokens of the answer. Cached is the number of tokens of the prompt that came from the
	// prefix cache.
	Tokens, Cached int
	// Queued is the time until the first call, Prefill the time from there to the first token, Decode the rest.
	Queued, Prefill, Decode time.Duration
	// Drafts counts the drafts of the stream. Rounds lists them, if Request.DraftLog asks for it.
	Drafts speculate.Totals
	Rounds speculate.Log
}
