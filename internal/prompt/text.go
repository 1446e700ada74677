package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/template"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// Keys of the named data that etc export adds to a file; other runtimes ignore them.
const (
	KeyTokenizer        = "metadata.tokenizer.json"
	KeyTokenizerConfig  = "metadata.tokenizer_config.json"
	KeyChatTemplate     = "metadata.chat_template.jinja"
	KeyGenerationConfig = "metadata.generation_config.json"
	KeyConfig           = "metadata.config.json"
)

// Text converts text to a program's tokens and back. Without a tokenizer it handles token ids only. It is not safe
// for concurrent use.
type Text struct {
	// File is the program's file, for messages.
	File string
	// Tokenizer is nil if the file has none.
	Tokenizer *tokenizer.Tokenizer
	// Sampling holds the sampling defaults of the file's generation config.
	Sampling huggingface.Sampling
	// Unused are the keys of the generation config that would change answers but that programs cannot apply.
	Unused []string
	// Stop are the tokens that end an answer.
	Stop []int
	// Template is nil if the file has none, or if none is wanted.
	Template *Template
	// Think is the template's variable [EnableThinking]; nil leaves it unset.
	Think *bool

	shield *tokenizer.Shield // created on first use
}

// Open reads the tokenizer and the defaults of a file. path, if not empty, names another tokenizer.json. A missing
// tokenizer is an error unless idsOnly. Open does not read the chat template: see [OpenTemplate].
func Open(p *program.Program, path string, idsOnly bool) (*Text, error) {
	t := &Text{File: p.File.Name()}
	var err error
	if path != "" {
		if t.Tokenizer, err = tokenizer.Load(path); err != nil {
			return nil, err
		}
	} else if b, ok := p.File.Lookup(KeyTokenizer); ok {
		if t.Tokenizer, err = tokenizer.Parse(b, t.File+": "+KeyTokenizer); err != nil {
			return nil, err
		}
	} else if !idsOnly {
		return nil, kind.Usagef("%s holds no tokenizer: set Options.Tokenizer, or go by token ids", t.File)
	}
	if b, ok := p.File.Lookup(KeyGenerationConfig); ok {
		if t.Sampling, err = huggingface.ParseSampling(t.File+": "+KeyGenerationConfig, b); err != nil {
			return nil, err
		}
		t.Unused = unusedSampling(b)
	}
	for _, method := range []string{StopMethod, "get_eos_id"} {
		ids, _, err := p.File.ConstantInts(method) // one Int output for each, or a list or tensor of them
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			t.Stop = append(t.Stop, int(id))
		}
	}
	t.Stop = unique(t.Stop)
	return t, nil
}

// neutral has the keys of generation_config.json that a program cannot apply, with the values that change no answer.
// The runtime's own sampler can apply some of them.
var neutral = map[string]any{
	"repetition_penalty": 1.0, "encoder_repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
	"no_repeat_ngram_size": 0.0,
	"min_p":                0.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "num_beams": 1.0,
	"penalty_alpha": 0.0, "min_length": 0.0,
	"min_new_tokens": 0.0, "guidance_scale": 1.0,
}

// RuntimeKeys are the keys of a generation config that the runtime's own sampler can apply.
var RuntimeKeys = map[string]bool{"min_p": true, "repetition_penalty": true, "presence_penalty": true,
	"frequency_penalty": true}

// unusedSampling returns the keys of a generation_config.json that would change answers and are not supported.
func unusedSampling(config []byte) []string {
	var values map[string]any
	if err := json.Unmarshal(config, &values); err != nil {
		return nil // ParseSampling has reported it
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(neutral)) {
		if v, ok := values[key]; ok && v != nil && v != neutral[key] {
			out = append(out, key)
		}
	}
	return out
}

// AddTurnEnd adds the token with which the chat template ends a turn to the stop tokens, or the eos_token if there
// are still none. Programs from elsewhere may name no stop token.
func (t *Text) AddTurnEnd() {
	if t.Tokenizer == nil {
		return
	}
	if id, ok, err := t.Template.turnEnd(t.Tokenizer); err == nil && ok {
		t.Stop = unique(append(t.Stop, id))
	}
	if id, ok := eosToken(t.Template.Tokens, t.Tokenizer); ok && len(t.Stop) == 0 {
		t.Stop = []int{id}
	}
}

// Given reports whether the user set one of some parameters. Their names are those of etc run's flags: temperature,
// temp, top-k, top-p, min-p, repeat-penalty, presence-penalty, frequency-penalty, repeat-last-n.
type Given func(names ...string) bool

// Defaults sets the parameters that the user did not set to the file's defaults. own says that the runtime's own
// sampler draws, which also supports min-p and penalties.
func (t *Text) Defaults(given Given, s *session.Sampling, own bool) error {
	g := t.Sampling
	if own {
		t.penalties(given, s)
	}
	if g.DoSample != nil && !*g.DoSample {
		return nil // the zero values are greedy
	}
	if g.Temperature != nil && !given("temperature", "temp") {
		s.Temperature = float32(*g.Temperature)
	}
	if g.TopK != nil && !given("top-k") {
		s.TopK = int64(*g.TopK)
	}
	if g.TopP != nil && !given("top-p") {
		s.TopP = float32(*g.TopP)
	}
	if own && g.MinP != nil && !given("min-p") {
		s.MinP = float32(*g.MinP)
	}
	if err := s.Check(); err != nil {
		return kind.Invalidf("%s: generation config: %w", t.File, err)
	}
	return nil
}

// MostLastN is the largest number of last tokens that penalties count.
const MostLastN = 4096

// penalties sets the penalties that the user did not set to the file's defaults. These count as many tokens as
// possible, as in transformers, unless the user gave a number.
func (t *Text) penalties(given Given, s *session.Sampling) {
	for _, x := range []struct {
		flag  string
		value *float64
		off   float64
		to    *float32
	}{
		{"repeat-penalty", t.Sampling.RepetitionPenalty, 1, &s.RepeatPenalty},
		{"presence-penalty", t.Sampling.PresencePenalty, 0, &s.PresencePenalty},
		{"frequency-penalty", t.Sampling.FrequencyPenalty, 0, &s.FrequencyPenalty},
	} {
		if x.value == nil || *x.value == x.off || given(x.flag) {
			continue
		}
		*x.to = float32(*x.value)
		if !given("repeat-last-n") {
			s.LastN = MostLastN
		}
	}
}

// UnusedDefaults logs the keys of the generation config that would change answers but have no effect. own is as for
// [Text.Defaults].
func (t *Text) UnusedDefaults(own bool, log func(text string)) {
	for _, key := range t.Unused {
		switch known := RuntimeKeys[key]; {
		case known && !own:
			log(fmt.Sprintf("the %s of the file's generation config is not used; Options.Sampler runtime uses it", key))
		case !known:
			log(fmt.Sprintf("the %s of the file's generation config is not supported and not used", key))
		}
	}
}

// Encode returns the tokens of a prompt. With raw it is the text itself; else a question, after a system prompt if
// that is not empty.
func (t *Text) Encode(system, prompt string, raw bool) ([]int, error) {
	if t.Tokenizer == nil {
		return nil, kind.Usagef("%s holds no tokenizer: set Options.Tokenizer, or go by token ids", t.File)
	}
	if raw {
		return t.Tokenizer.Encode(prompt, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true}), nil
	}
	return t.Render(Question(system, prompt), true)
}

// Question returns the conversation of a question, after a system prompt if that is not empty.
func Question(system, question string) []chat.Message {
	var messages []chat.Message
	if system != "" {
		messages = append(messages, chat.Message{Role: "system", Content: system})
	}
	return append(messages, chat.Message{Role: "user", Content: question})
}

// Render returns the tokens of a conversation, by the chat template. generate appends the beginning of the model's
// answer.
func (t *Text) Render(messages []chat.Message, generate bool) ([]int, error) {
	if t.Tokenizer == nil {
		return nil, kind.Usagef("%s holds no tokenizer: set Options.Tokenizer, or go by token ids", t.File)
	}
	if t.Template == nil {
		return nil, kind.Usagef("%s holds no chat template: set Options.ChatTemplate, or use the prompt as it is",
			t.File)
	}
	mark := freeMark(messages)
	prompt, err := t.Template.Render(t.shielded(messages, mark), generate, t.Think)
	var failed *template.Error
	if errors.As(err, &failed) {
		if err = fmt.Errorf("%s: %w", t.File, err); failed.Kind == template.Raised {
			return nil, kind.Of(kind.ErrUsage, err) // the template rejects the conversation
		}
		return nil, kind.Of(kind.ErrInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	return t.Tokenizer.Encode(prompt, tokenizer.EncodeOptions{ParseSpecial: true, Mark: mark}), nil
}

// freeMark returns a character that occurs in no message: one of Unicode's 32 noncharacters from U+FDD0 to U+FDEF.
func freeMark(messages []chat.Message) rune {
	for mark := '\uFDD0'; mark < '\uFDEF'; mark++ {
		if !slices.ContainsFunc(messages, func(m chat.Message) bool { return strings.ContainsRune(m.Content, mark) }) {
			return mark
		}
	}
	return '\uFDEF'
}

// shielded returns messages in which the names of control tokens that people wrote are marked as plain text: names of
// special tokens, and those that the template itself writes, as <think>. Answers of the model stay as they are, since
// templates search them for the end of the thinking.
func (t *Text) shielded(messages []chat.Message, mark rune) []chat.Message {
	if t.shield == nil {
		t.shield = t.Tokenizer.NewShield(func(name string) bool {
			return strings.ContainsFunc(name, unicode.IsLetter) && strings.Contains(t.Template.Source, name)
		})
	}
	out := slices.Clone(messages)
	for i, m := range out {
		if m.Role != "assistant" {
			out[i].Content = t.shield.Text(m.Content, mark)
		}
	}
	return out
}

// Decode returns the text of tokens; "" without a tokenizer.
func (t *Text) Decode(tokens []int) string {
	if t.Tokenizer == nil {
		return ""
	}
	return t.Tokenizer.Decode(tokens, true)
}

// Stream turns tokens into text as they come. It never splits a character.
type Stream struct {
	stream *tokenizer.Stream
	ids    int
}

// Stream returns a stream for the text of an answer.
func (t *Text) Stream() *Stream {
	if t.Tokenizer == nil {
		return &Stream{}
	}
	return &Stream{stream: t.Tokenizer.NewStream(true)}
}

// Push returns the text that a token completes; a part of its own text may come with a later token. Without a
// tokenizer it returns the token's id, after a comma unless it is the first.
func (s *Stream) Push(token int) string {
	if s.stream != nil {
		return s.stream.Push(token)
	}
	s.ids++
	if s.ids > 1 {
		return fmt.Sprintf(",%d", token)
	}
	return fmt.Sprint(token)
}

// Flush returns the text that was held back, at the end of an answer.
func (s *Stream) Flush() string {
	if s.stream != nil {
		return s.stream.Flush()
	}
	return ""
}

// PromptEnd returns the end of a prompt that the chat template wrote after the messages, which is the beginning of
// the answer. It returns the whole prompt if the prompt does not begin with the messages alone.
func (t *Text) PromptEnd(messages []chat.Message, prompt []int) []int {
	before, err := t.Render(messages, false)
	if err != nil || len(before) > len(prompt) {
		return prompt
	}
	for i, id := range before {
		if prompt[i] != id {
			return prompt
		}
	}
	return prompt[len(before):]
}
