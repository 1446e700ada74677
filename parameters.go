package etc

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/guide"
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
	// RepeatPenalty makes tokens less likely that are among the last ones of prompt and answer; 1 is off.
	RepeatPenalty *float64
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
}

// sampling returns the parameters of the draws: what is set, and else the file's. limits say what the program can do.
func (p *Parameters) sampling(t *prompt.Text, limits batch.Limits) (batch.Sampling, error) {
	s, _, err := t.BatchDefaults(limits)
	if err != nil {
		return s, err
	}
	for _, x := range []struct {
		name string
		from *float64
		to   *float32
	}{
		{"Temperature", p.Temperature, &s.Temperature}, {"TopP", p.TopP, &s.TopP}, {"MinP", p.MinP, &s.MinP},
		{"RepeatPenalty", p.RepeatPenalty, &s.Repeat}, {"PresencePenalty", p.PresencePenalty, &s.Presence},
		{"FrequencyPenalty", p.FrequencyPenalty, &s.Frequency},
	} {
		if x.from == nil {
			continue
		}
		if *x.to = float32(*x.from); math.IsNaN(*x.from) || math.IsInf(float64(*x.to), 0) {
			return s, kind.Usagef("Parameters.%s is %v, want a finite number", x.name, *x.from)
		}
	}
	if p.TopP != nil && (*p.TopP > 1 || *p.TopP <= 0) { // before float32 rounds what is just above 1
		return s, kind.Usagef("Parameters.TopP is %v, want more than 0 and at most 1", *p.TopP)
	}
	if p.RepeatPenalty != nil {
		if !(*p.RepeatPenalty > 0) {
			return s, kind.Usagef("Parameters.RepeatPenalty is %v, want more than 0; 1 is off", *p.RepeatPenalty)
		}
		s.RepeatLast = 0 // as etc run's, whatever the file's own penalty counts
	}
	if p.TopK != nil {
		s.TopK = int64(*p.TopK)
	}
	switch {
	case p.Seed != nil:
		s.Seed = *p.Seed
	case !limits.NoSeed:
		s.Seed = rand.Int64N(1 << 31)
	}
	for id, bias := range p.Bias {
		if s.Bias == nil {
			s.Bias = map[int]float32{}
		}
		s.Bias[id] = float32(bias)
	}
	return s, nil
}

// constraint compiles the constraint of the answer, or returns nil. end are the tokens that the chat template wrote for
// the answer after the messages; nil for a prompt without a template. The caller has locked the model.
func (p *Parameters) constraint(m *Model, end []int) (batch.Constraint, error) {
	var src constrain.Source
	name := ""
	for _, x := range []struct {
		name, text string
		kind       constrain.Kind
	}{{"JSONSchema", p.JSONSchema, constrain.JSONSchema}, {"Grammar", p.Grammar, constrain.GBNF},
		{"Regex", p.Regex, constrain.Regex}} {
		if x.text == "" {
			continue
		}
		if name != "" {
			return nil, kind.Usagef("Parameters.%s and Parameters.%s are set, want one of them", name, x.name)
		}
		name, src = x.name, constrain.Source{Kind: x.kind, Text: x.text}
	}
	switch {
	case name == "":
		return nil, nil
	case p.IgnoreStopTokens:
		return nil, kind.Usagef("Parameters.%s with IgnoreStopTokens: an answer that is whole has to end", name)
	case m.text.Tokenizer == nil:
		return nil, kind.Usagef("Parameters.%s: %s holds no tokenizer, so its tokens have no text", name, m.text.File)
	case len(m.text.Stop) == 0:
		return nil, kind.Usagef("Parameters.%s: %s has no stop token, by which an answer that is whole could end", name,
			m.text.File)
	}
	grammar, err := m.guide().Compile(src)
	if err != nil {
		return nil, kind.Usagef("Parameters.%s: %w", name, err)
	}
	template := m.text.Template
	thinks := end != nil && template != nil && template.Reads(prompt.EnableThinking) && (p.Think == nil || *p.Think)
	g, err := m.guide().New(guide.Options{Text: grammar, Parse: end != nil, Prompt: end, Thinks: thinks})
	if err != nil {
		return nil, fmt.Errorf("%s: the tokenizer: %w", m.text.File, err)
	}
	return g, nil
}
