package etc

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/template"
)

// Parameters say how an answer is drawn, and when it ends. The zero value takes the defaults of the file's generation
// config, greedy where it has none, and goes on until the model ends the answer or the context is full. A pointer that
// is nil leaves the file's default; new(0.7) is one that does not.
type Parameters struct {
	// MaxTokens is the most tokens of the answer; 0 is as many as fit.
	MaxTokens int
	// Stop are texts that end the answer. They are not part of it.
	Stop []string
	// IgnoreStopTokens continues after the model's own end of the answer.
	IgnoreStopTokens bool

	// Temperature divides the logits; 0 is the most likely token.
	Temperature *float64
	// TopK keeps the k most likely tokens; 0 keeps all.
	TopK *int
	// TopP keeps the most likely tokens of this probability, in (0, 1].
	TopP *float64
	// MinP keeps the tokens that are at least this many times as likely as the most likely one, in [0, 1].
	MinP *float64
	// RepeatPenalty makes tokens less likely that are among the last ones of prompt and answer; 1 is off. RepeatLast is
	// how many last tokens the penalties count; 0 is 64, and all of them for penalties of the file.
	RepeatPenalty *float64
	RepeatLast    int
	// PresencePenalty is subtracted from the logits of tokens that are in the answer, FrequencyPenalty as often as they
	// are.
	PresencePenalty, FrequencyPenalty *float64
	// Bias is added to the logits of tokens, by id; -Inf forbids one.
	Bias map[int]float64
	// Seed is the seed of the first token; the i-th token after it is drawn with Seed + i. Its lower 32 bits count. The
	// same seed gives the tokens of etc run --seed. Nil stands for a random seed, which [End] reports.
	Seed *int64

	// Logprobs asks for the log-probability of each token, and of this number of most likely tokens; nil for none.
	Logprobs *int

	// JSONSchema, Grammar and Regex restrict the answer after its thoughts; at most one of them may be set. JSONSchema
	// is a JSON schema (draft 2020-12), Grammar a grammar in llama.cpp's notation (GBNF), Regex an expression in RE2's
	// syntax that has to match all of the answer. docs/constraints.md says what they may use.
	JSONSchema, Grammar, Regex string

	// Think lets the model think first, or not, where its chat template knows of that; nil leaves it to the template.
	Think *bool
	// Variables are further variables of the chat template, as JSON. One that the template does not read is an error.
	Variables map[string]json.RawMessage

	// ForceTokens are fed in the place of those that are drawn, and set the length of the answer; nil for none. Only a
	// [Session] takes them. They have no Logprobs: those would be of the tokens that are drawn.
	ForceTokens []int
	// Logits is told of the logits, one for each token of the vocabulary, after the prompt and after every token of
	// the answer; nil for nobody. The slice is valid during the call. Only a [Session] takes it, and only before its
	// first answer if it is nil then: a program is compiled to give logits, or not.
	Logits func(logits []float32) error
}

// NeedsRuntime names the first parameter that only the runtime's own sampler takes; "" where there is none.
func (p Parameters) NeedsRuntime() string {
	var s session.Sampling
	if p.set(&s) != nil {
		return "" // drawing with them tells what is wrong
	}
	return s.NeedsRuntime()
}

// check refuses what is wrong with the parameters whatever the program is, except for those of draws.
func (p *Parameters) check(t *prompt.Text) error {
	switch {
	case p.MaxTokens < 0:
		return kind.Usagef("Parameters.MaxTokens is %d, want 0 or more", p.MaxTokens)
	case len(p.Stop) > 0 && t.Tokenizer == nil:
		return kind.Usagef("Parameters.Stop: %s holds no tokenizer, so the answer has no text: set Options.Tokenizer",
			t.File)
	case p.ForceTokens != nil && p.MaxTokens > 0 && p.MaxTokens != len(p.ForceTokens):
		return kind.Usagef("Parameters.MaxTokens is %d with %d tokens of ForceTokens, which set the length", p.MaxTokens,
			len(p.ForceTokens))
	case p.ForceTokens != nil && p.Logprobs != nil:
		return kind.Usagef("Parameters.Logprobs with ForceTokens: forced tokens are not drawn; Logits has their scores")
	}
	return nil
}

// number is a parameter that is a finite number.
type number struct {
	name string
	from *float64 // nil where it is not set
	to   *float32
}

// setNumbers sets what is set, and refuses what float32 does not hold.
func (p *Parameters) setNumbers(numbers ...number) error {
	for _, x := range numbers {
		if x.from == nil {
			continue
		}
		if *x.to = float32(*x.from); math.IsNaN(*x.from) || math.IsInf(float64(*x.to), 0) {
			return kind.Usagef("Parameters.%s is %v, want a finite number", x.name, *x.from)
		}
	}
	switch { // before float32 rounds what is just above 1
	case p.TopP != nil && (*p.TopP > 1 || float32(*p.TopP) <= 0):
		return kind.Usagef("Parameters.TopP is %v, want more than 0 and at most 1", *p.TopP)
	case p.MinP != nil && (*p.MinP > 1 || *p.MinP < 0):
		return kind.Usagef("Parameters.MinP is %v, want at least 0 and at most 1", *p.MinP)
	case p.RepeatPenalty != nil && !(*p.RepeatPenalty > 0):
		return kind.Usagef("Parameters.RepeatPenalty is %v, want more than 0; 1 is off", *p.RepeatPenalty)
	case p.RepeatLast < 0 || p.RepeatLast > prompt.MostLastN:
		return kind.Usagef("Parameters.RepeatLast is %d, want 0 to %d", p.RepeatLast, prompt.MostLastN)
	}
	return nil
}

// biases returns the biases as draws take them; nil for none.
func (p *Parameters) biases() map[int]float32 {
	var out map[int]float32
	for id, bias := range p.Bias {
		if out == nil {
			out = map[int]float32{}
		}
		out[id] = float32(bias)
	}
	return out
}

// sampling returns the parameters of the draws of a [Model]: what is set, and else the file's. limits say what the
// program can do.
func (p *Parameters) sampling(t *prompt.Text, limits batch.Limits) (batch.Sampling, error) {
	s, _, err := t.BatchDefaults(limits)
	if err != nil {
		return s, err
	}
	if err := p.setNumbers(number{"Temperature", p.Temperature, &s.Temperature}, number{"TopP", p.TopP, &s.TopP},
		number{"MinP", p.MinP, &s.MinP}, number{"RepeatPenalty", p.RepeatPenalty, &s.Repeat},
		number{"PresencePenalty", p.PresencePenalty, &s.Presence},
		number{"FrequencyPenalty", p.FrequencyPenalty, &s.Frequency}); err != nil {
		return s, err
	}
	switch {
	case p.RepeatLast > 0:
		s.RepeatLast = p.RepeatLast
	case p.RepeatPenalty != nil:
		s.RepeatLast = 0 // as etc run's, whatever the file's own penalty counts
	}
	if p.TopK != nil {
		s.TopK = int64(*p.TopK)
	}
	switch {
	case p.Seed != nil:
		s.Seed = *p.Seed
	case !limits.NoSeed:
		s.Seed = randomSeed()
	}
	s.Bias = p.biases()
	return s, nil
}

// set sets the parameters of the draws of a [Session] that are set themselves.
func (p *Parameters) set(s *session.Sampling) error {
	if err := p.setNumbers(number{"Temperature", p.Temperature, &s.Temperature}, number{"TopP", p.TopP, &s.TopP},
		number{"MinP", p.MinP, &s.MinP}, number{"RepeatPenalty", p.RepeatPenalty, &s.RepeatPenalty},
		number{"PresencePenalty", p.PresencePenalty, &s.PresencePenalty},
		number{"FrequencyPenalty", p.FrequencyPenalty, &s.FrequencyPenalty}); err != nil {
		return err
	}
	if p.RepeatLast > 0 {
		s.LastN = p.RepeatLast
	}
	if p.TopK != nil {
		s.TopK = int64(*p.TopK)
	}
	if p.Logprobs != nil {
		s.Logprobs, s.TopLogprobs = true, *p.Logprobs
	}
	if p.JSONSchema != "" || p.Grammar != "" || p.Regex != "" {
		s.Mask = func([]uint64) (bool, error) { return false, nil } // the answer's own comes in its place
	}
	s.Bias = p.biases()
	return nil
}

// sessionSampling returns the parameters of the draws of a [Session] without the file's.
func (p *Parameters) sessionSampling() (session.Sampling, error) {
	s := session.Sampling{TopP: 1, RepeatPenalty: 1, LastN: session.DefaultLastN}
	if err := p.set(&s); err != nil {
		return s, err
	}
	if s.Seed = randomSeed(); p.Seed != nil {
		s.Seed = *p.Seed
	}
	return s, kind.Of(kind.ErrUsage, parametersError(s.Check()))
}

// parametersError says what an error of sampling parameters is about.
func parametersError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("Parameters: %w", err)
}

// isSet is prompt.Given.
func (p *Parameters) isSet(names ...string) bool {
	set := map[string]bool{"temperature": p.Temperature != nil, "top-k": p.TopK != nil, "top-p": p.TopP != nil,
		"min-p": p.MinP != nil, "repeat-penalty": p.RepeatPenalty != nil, "presence-penalty": p.PresencePenalty != nil,
		"frequency-penalty": p.FrequencyPenalty != nil, "repeat-last-n": p.RepeatLast > 0}
	return slices.ContainsFunc(names, func(name string) bool { return set[name] })
}

// setTemplate sets the variables of the chat template.
func setTemplate(t *prompt.Text, p Parameters) error {
	t.Think = p.Think
	if t.Template == nil {
		return nil
	}
	if p.Think != nil && !t.Template.Reads(prompt.EnableThinking) {
		return kind.Usagef("Parameters.Think: the chat template of %s does not know of thinking: it has no variable %s",
			t.File, prompt.EnableThinking)
	}
	t.Template.Arguments = nil
	for _, name := range slices.Sorted(maps.Keys(p.Variables)) {
		value, err := template.ParseJSON(p.Variables[name])
		switch {
		case err != nil:
			return kind.Usagef("Parameters.Variables %s: %w", name, err)
		case slices.Contains([]string{"messages", "add_generation_prompt", prompt.EnableThinking}, name):
			return kind.Usagef("Parameters.Variables %s: the conversation and Parameters.Think set this variable", name)
		case !t.Template.Reads(name):
			return kind.Usagef("Parameters.Variables %s: the chat template of %s has no such variable", name, t.File)
		}
		if t.Template.Arguments == nil {
			t.Template.Arguments = &template.Dict{}
		}
		t.Template.Arguments.Set(name, value)
	}
	return nil
}
