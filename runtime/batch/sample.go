package batch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir/numeric"
)

// errNothing says that no token of the vocabulary satisfies the constraint.
var errNothing = errors.New("the constraint leaves no token of the vocabulary")

// defaultLast is the default number of tokens that the repetition penalty counts, as in llama.cpp.
const defaultLast = 64

// asksForTokens reports whether the rows of a stream ask for tokens alone, by settings that do not depend on the tokens
// before them.
func (s *Stream) asksForTokens() bool {
	p := s.request.Sampling
	p.MinP = 0 // it is a parameter of the draw, as top-p is
	return s.request.Logprobs < 0 && s.request.Constraint == nil && p.plain()
}

// row returns what the executor has to give for the next token of a stream. If the executor samples, it calls mask.
// Else it gives logits, and take draws; mask is then called after the call.
func (s *Stream) row(samples bool, mask func() []uint64) Row {
	d, p := s.draw(), s.request.Sampling
	top, constrained := s.request.Logprobs, s.request.Constraint != nil
	switch {
	case top < 0 && !constrained && p.plain():
		return Row{Draw: &d}
	case !samples:
		return Row{Logits: true}
	}
	d.MinP = p.MinP
	r := Row{Draw: &d, Logprobs: top >= 0, Top: max(top, 0)}
	if len(p.Bias) > 0 || p.penalizes() {
		r.Adjust = &Adjust{List: s.adjustments(), Repeat: 1, Presence: p.Presence, Frequency: p.Frequency}
		if p.repeats() {
			r.Adjust.Repeat = p.Repeat
		}
	}
	if constrained {
		if r.Adjust == nil {
			r.Adjust = &Adjust{Repeat: 1}
		}
		r.Adjust.Mask = mask
	}
	return r
}

// adjustments returns the tokens whose logits biases and penalties change.
func (s *Stream) adjustments() []Adjustment {
	p, at := s.request.Sampling, map[int]*Adjustment{}
	of := func(token int) *Adjustment {
		if at[token] == nil {
			at[token] = &Adjustment{Token: int32(token)}
		}
		return at[token]
	}
	for t, b := range p.Bias {
		of(t).Bias = b
	}
	if p.repeats() {
		for t := range s.recent() {
			of(t).Repeats = true
		}
	}
	if p.Presence != 0 || p.Frequency != 0 {
		for t, n := range s.counted() {
			of(t).Answered = n
		}
	}
	out := make([]Adjustment, 0, len(at))
	for _, a := range at {
		out = append(out, *a)
	}
	return out
}

// draw returns the parameters of the next draw.
func (s *Stream) draw() Draw {
	p := s.request.Sampling
	return Draw{Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, Seed: p.Seed + int64(len(s.answer))}
}

// take returns the next token from an output. It may change the logits.
func (s *Stream) take(out Output, masked bool) (Token, error) {
	t := Token{ID: int(out.Token), Logprob: out.Logprob, Top: out.Top}
	if out.Logits == nil {
		// Where the constraint or a bias forbids every token, the drawn token is a forbidden one.
		if masked && (s.mask[t.ID/64]>>(t.ID%64)&1 == 0 || s.request.Sampling.Bias[t.ID] == minusInfinity) {
			return t, errNothing
		}
		return t, nil
	}
	var most []Logprob
	var scale softmaxScale
	if s.request.Logprobs >= 0 {
		most, scale = likeliest(out.Logits, s.request.Logprobs)
	}
	raw := out.Logits
	if s.request.Logprobs >= 0 && (masked || !s.request.Sampling.plain()) {
		raw = slices.Clone(raw)
	}
	if err := s.adjust(out.Logits, masked); err != nil {
		return t, err
	}
	t.ID = s.draw().chooseAbove(out.Logits, s.request.Sampling.MinP)
	if masked && s.mask[t.ID/64]>>(t.ID%64)&1 == 0 {
		return t, errNothing
	}
	if s.request.Logprobs >= 0 {
		t.Logprob, t.Top = scale.logprob(raw[t.ID]), most
	}
	return t, nil
}

// adjust applies bias, mask and penalties to raw logits.
func (s *Stream) adjust(logits []float32, masked bool) error {
	p := s.request.Sampling
	for t, b := range p.Bias {
		if t < len(logits) {
			logits[t] += b
		}
	}
	if p.penalizes() {
		s.penalize(logits)
	}
	if !masked {
		return nil
	}
	any := false
	for i := range logits {
		if i/64 >= len(s.mask) || s.mask[i/64]>>(i%64)&1 == 0 {
			logits[i] = minusInfinity
			continue
		}
		any = any || logits[i] > minusInfinity
	}
	if !any {
		return errNothing
	}
	return nil
}

// penalize lowers the logits of tokens that have occurred.
func (s *Stream) penalize(logits []float32) {
	p := s.request.Sampling
	if p.repeats() {
		for t := range s.recent() {
			if v := &logits[t]; *v > 0 {
				*v /= p.Repeat
			} else {
				*v *= p.Repeat
			}
		}
	}
	if p.Presence != 0 || p.Frequency != 0 {
		for t, n := range s.counted() {
			logits[t] = float32(logits[t]-float32(float32(n)*p.Frequency)) - p.Presence
		}
	}
}

// counted returns how often each token occurs in the answer, or in its last RepeatLast tokens if that is set.
func (s *Stream) counted() map[int]int {
	n := s.request.Sampling.RepeatLast
	if n <= 0 || n >= len(s.answer) {
		return s.counts
	}
	counts := map[int]int{}
	for _, t := range s.answer[len(s.answer)-n:] {
		counts[t]++
	}
	return counts
}

// recent returns the tokens that the repetition penalty applies to.
func (s *Stream) recent() map[int]bool {
	n := s.request.Sampling.RepeatLast
	if n == 0 {
		n = defaultLast
	}
	if all := len(s.answer) + len(s.request.Prompt); n < 0 || n > all {
		n = all
	}
	out := make(map[int]bool, n)
	of := min(n, len(s.answer))
	for _, t := range s.answer[len(s.answer)-of:] {
		out[t] = true
	}
	for _, t := range s.request.Prompt[len(s.request.Prompt)-(n-of):] {
		out[t] = true
	}
	return out
}

// softmaxScale turns logits into log-probabilities: highest is the largest logit, logSum the logarithm of the sum of
// e^(v - highest).
type softmaxScale struct{ highest, logSum float32 }

func (s softmaxScale) logprob(v float32) float32 { return float32(float32(v-s.highest) - s.logSum) }

// likeliest returns the n most likely tokens, the likeliest first; of equal ones the one with the lowest id first.
func likeliest(logits []float32, n int) ([]Logprob, softmaxScale) {
	scale := softmaxScale{highest: logits[greatest(logits)]}
	sum := 0.0
	var most []Logprob
	for i, v := range logits {
		if v != v {
			continue
		}
		sum += float64(numeric.Exp32(v - scale.highest))
		if n == 0 || len(most) == n && v <= most[n-1].Logprob {
			continue
		}
		at, _ := slices.BinarySearchFunc(most, v, func(l Logprob, v float32) int {
			if l.Logprob >= v {
				return -1
			}
			return 1
		})
		if len(most) == n {
			most = most[:n-1]
		}
		most = slices.Insert(most, at, Logprob{i, v})
	}
	scale.logSum = numeric.Log32(float32(sum))
	for i := range most {
		most[i].Logprob = scale.logprob(most[i].Logprob)
	}
	return most, scale
}

// advance advances the constraint by a token of the answer.
func (s *Stream) advance(token int) error {
	if s.request.Constraint == nil {
		return nil
	}
	if err := s.request.Constraint.Accept(token); err != nil {
		return fmt.Errorf("constraint: %w", err)
	}
	return nil
}
