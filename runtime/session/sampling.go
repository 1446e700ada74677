package session

import (
	"fmt"
	"math"
)

// Sampling are the parameters of a draw.
type Sampling struct {
	// Temperature divides the logits; 0 is greedy. Finite and not negative.
	Temperature float32
	// TopK keeps the k most likely tokens; 0 or less keeps all.
	TopK int64
	// TopP keeps the most likely tokens up to this probability; in (0, 1], 1 keeps all.
	TopP float32
	// Seed of the first token. Programs use its lower 32 bits, sign-extended, as ExecuTorch's runtime does.
	Seed int64

	// What follows needs the runtime's own sampler ([LoadDraws]); zero values are off. Biases, the mask and penalties,
	// in this order, change the logits before the temperature, also where the most likely token is chosen.

	// MinP keeps the tokens that are at least this many times as likely as the most likely one, after top-k and top-p,
	// in [0, 1].
	MinP float32
	// RepeatPenalty divides positive logits of tokens that are among the last ones of prompt and answer, and multiplies
	// negative ones; above 0, 1 is off.
	RepeatPenalty float32
	// PresencePenalty is subtracted from the logits of tokens that are among the last ones of the answer, and
	// FrequencyPenalty as many times as they are.
	PresencePenalty, FrequencyPenalty float32
	// LastN is the number of last tokens that penalties count; 0 stands for [DefaultLastN].
	LastN int
	// Bias is added to the logits of these tokens; -Inf forbids one.
	Bias map[int]float32
	// Logprobs asks for the log-probability of each token of the answer, and TopLogprobs for this number of most likely
	// tokens, by the unchanged logits of the program.
	Logprobs    bool
	TopLogprobs int
	// Mask, where it is set, is called for each draw with a mask of zeros, one bit for each token (bit t%64 of word
	// t/64), and sets those of the tokens that may be drawn. It reports false to allow all. It is called before the
	// call of the program that draws, on the goroutine of the session, and knows all tokens before the one to draw: the
	// mask is an input of that call.
	Mask func(mask []uint64) (bool, error)
}

// DefaultLastN is how many last tokens penalties count where nothing else is said, as in llama.cpp.
const DefaultLastN = 64

// Greedy are the parameters of choosing the most likely token.
var Greedy = Sampling{TopP: 1}

// Check reports a parameter that is out of its range (requirement B19).
func (s Sampling) Check() error {
	if t := float64(s.Temperature); math.IsNaN(t) || math.IsInf(t, 0) || t < 0 {
		return fmt.Errorf("temperature %g, want a finite number of at least 0", s.Temperature)
	}
	if !(s.TopP > 0 && s.TopP <= 1) {
		return fmt.Errorf("top-p %g, want more than 0 and at most 1", s.TopP)
	}
	if !(s.MinP >= 0 && s.MinP <= 1) {
		return fmt.Errorf("min-p %g, want at least 0 and at most 1", s.MinP)
	}
	if r := float64(s.RepeatPenalty); !(r >= 0) || math.IsInf(r, 0) {
		return fmt.Errorf("repeat penalty %g, want a finite number above 0; 1 is off", s.RepeatPenalty)
	}
	for name, v := range map[string]float32{"presence": s.PresencePenalty, "frequency": s.FrequencyPenalty} {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s penalty %g, want a finite number", name, v)
		}
	}
	if s.LastN < 0 {
		return fmt.Errorf("penalties of the last %d tokens, want at least 1", s.LastN)
	}
	if s.TopLogprobs < 0 {
		return fmt.Errorf("log-probabilities of %d tokens, want at least 0", s.TopLogprobs)
	}
	return nil
}

// CheckFor reports a parameter that a program of the given form has no use for: top-k, top-p and seed
// need the sampling head, or the runtime's sampler (requirement B17). given tells which the user gave.
func (s Sampling) CheckFor(form Form, given []string) error {
	if form != Sampler && form != Drawn && len(given) > 0 {
		return fmt.Errorf("%s needs a program with a sampling head (etc export --sample) or Options.Sampler runtime; "+
			"this one supports temperature only", given[0])
	}
	return nil
}

// NeedsRuntime names the first parameter in s that only the runtime's own sampler takes, "" where there is none.
func (s Sampling) NeedsRuntime() string {
	switch {
	case s.MinP > 0:
		return "min-p"
	case s.repeat() != 1:
		return "a repeat penalty"
	case s.PresencePenalty != 0:
		return "a presence penalty"
	case s.FrequencyPenalty != 0:
		return "a frequency penalty"
	case len(s.Bias) > 0:
		return "a logit bias"
	case s.Logprobs:
		return "logprobs"
	case s.Mask != nil:
		return "a constraint"
	}
	return ""
}

// repeat returns the repeat penalty, 1 where it is off.
func (s Sampling) repeat() float32 {
	if s.RepeatPenalty == 0 {
		return 1
	}
	return s.RepeatPenalty
}

// penalizes reports whether any penalty is on.
func (s Sampling) penalizes() bool {
	return s.repeat() != 1 || s.PresencePenalty != 0 || s.FrequencyPenalty != 0
}

// window returns the number of last tokens that penalties count.
func (s Sampling) window() int {
	if s.LastN == 0 {
		return DefaultLastN
	}
	return s.LastN
}
