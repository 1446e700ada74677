package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/template"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// Keys of the named data that etc export adds to a file; other runtimes ignore them.
const (
	keyTokenizer        = "metadata.tokenizer.json"
	keyTokenizerConfig  = "metadata.tokenizer_config.json"
	keyChatTemplate     = "metadata.chat_template.jinja"
	keyGenerationConfig = "metadata.generation_config.json"
	keyConfig           = "metadata.config.json"
	keyBuild            = "etc.build"
)

// text is what turns text into a program's tokens and back. Without a tokenizer it knows ids only.
type text struct {
	file      string
	program   func() string // identity of the program, for session files
	precision string        // of the run, for session files
	tokenizer *tokenizer.Tokenizer
	shield    *tokenizer.Shield // made when it is first needed
	sampling  huggingface.Sampling
	unused    []string // keys of the generation config that change answers, which are not supported
	stop      []int
	template  *chatTemplate // nil where the file has none
	think     *bool         // the template's enable_thinking; nil leaves it unset
}

// openText reads the tokenizer and the defaults that a file carries; path names another tokenizer.json.
// Without a tokenizer it is an error unless only ids are asked for.
func openText(p *program.Program, path string, idsOnly bool) (*text, error) {
	t := &text{file: p.File.Name(), program: func() string { return programID(p) }}
	var err error
	if path != "" {
		if t.tokenizer, err = tokenizer.Load(path); err != nil {
			return nil, err
		}
	} else if b, ok := p.File.Lookup(keyTokenizer); ok {
		if t.tokenizer, err = tokenizer.Parse(b, t.file+": "+keyTokenizer); err != nil {
			return nil, err
		}
	} else if !idsOnly {
		return nil, usagef("%s holds no tokenizer: give --tokenizer FILE, or token ids with --tokens", t.file)
	}
	if b, ok := p.File.Lookup(keyGenerationConfig); ok {
		if t.sampling, err = huggingface.ParseSampling(t.file+": "+keyGenerationConfig, b); err != nil {
			return nil, err
		}
		t.unused = unusedSampling(b)
	}
	for _, method := range []string{stopMethod, "get_eos_id"} {
		ids, _, err := p.File.ConstantInts(method) // Ints, or a list or tensor of them
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			t.stop = append(t.stop, int(id))
		}
	}
	t.stop = unique(t.stop)
	return t, nil
}

// neutral are the values of generation_config.json's keys with which they change no answer. Programs have no
// use for these keys; the runtime's own sampler has for some.
var neutral = map[string]any{
	"repetition_penalty": 1.0, "encoder_repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "no_repeat_ngram_size": 0.0,
	"min_p": 0.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "num_beams": 1.0, "penalty_alpha": 0.0, "min_length": 0.0,
	"min_new_tokens": 0.0, "guidance_scale": 1.0,
}

// runtimeKeys are those that the runtime's own sampler has a parameter for.
var runtimeKeys = map[string]bool{"min_p": true, "repetition_penalty": true, "presence_penalty": true, "frequency_penalty": true}

// unusedSampling lists the keys of a generation_config.json that would change answers and are not supported.
func unusedSampling(config []byte) []string {
	var values map[string]any
	if err := json.Unmarshal(config, &values); err != nil {
		return nil // ParseSampling has said so
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(neutral)) {
		if v, ok := values[key]; ok && v != nil && v != neutral[key] {
			out = append(out, key)
		}
	}
	return out
}

// addTurnEnd adds the token with which the chat template ends a turn to the stop tokens, and the eos_token
// where there is none else. Programs from elsewhere may name none.
func (t *text) addTurnEnd() {
	if t.tokenizer == nil {
		return
	}
	if id, ok, err := t.template.turnEnd(t.tokenizer); err == nil && ok {
		t.stop = unique(append(t.stop, id))
	}
	if id, ok := eosToken(t.template.tokens, t.tokenizer); ok && len(t.stop) == 0 {
		t.stop = []int{id}
	}
}

// setArguments sets the variables of --template-arg. A variable that the template never reads is refused, and
// so are --think and --no-think then.
func (t *text) setArguments(cmd *cobra.Command, args []string) error {
	arguments, err := templateArguments(args)
	if err != nil || t.template == nil {
		return err
	}
	for _, flag := range []string{"think", "no-think"} {
		if cmd.Flags().Changed(flag) && !t.template.reads(enableThinking) {
			return usagef("--%s: the chat template of %s does not know of thinking: it has no variable %s", flag, t.file, enableThinking)
		}
	}
	for _, name := range arguments.Keys() {
		if !t.template.reads(name) {
			return usagef("--template-arg %s: the chat template of %s has no such variable", name, t.file)
		}
	}
	t.template.arguments = arguments
	return nil
}

// defaults sets the parameters that the user left open to those of the file. own says that the runtime's sampler draws,
// which knows min-p and penalties, too.
func (t *text) defaults(cmd *cobra.Command, s *session.Sampling, own bool) error {
	g := t.sampling
	if own {
		t.penalties(cmd, s)
	}
	if g.DoSample != nil && !*g.DoSample {
		return nil // greedy is what the flags default to
	}
	if g.Temperature != nil && !anyChanged(cmd, "temperature", "temp") {
		s.Temperature = float32(*g.Temperature)
	}
	if g.TopK != nil && !anyChanged(cmd, "top-k") {
		s.TopK = int64(*g.TopK)
	}
	if g.TopP != nil && !anyChanged(cmd, "top-p") {
		s.TopP = float32(*g.TopP)
	}
	if own && g.MinP != nil && !anyChanged(cmd, "min-p") {
		s.MinP = float32(*g.MinP)
	}
	if err := s.Check(); err != nil {
		return invalidError{fmt.Errorf("%s: generation config: %w", t.file, err)}
	}
	return nil
}

// penalties sets those that the user left open to the file's. They count as many tokens as there can be, as in
// transformers, unless the user says how many.
func (t *text) penalties(cmd *cobra.Command, s *session.Sampling) {
	for _, x := range []struct {
		flag  string
		value *float64
		off   float64
		to    *float32
	}{
		{"repeat-penalty", t.sampling.RepetitionPenalty, 1, &s.RepeatPenalty}, {"presence-penalty", t.sampling.PresencePenalty, 0, &s.PresencePenalty},
		{"frequency-penalty", t.sampling.FrequencyPenalty, 0, &s.FrequencyPenalty},
	} {
		if x.value == nil || *x.value == x.off || anyChanged(cmd, x.flag) {
			continue
		}
		*x.to = float32(*x.value)
		if !anyChanged(cmd, "repeat-last-n") {
			s.LastN = maxLastN
		}
	}
}

// unusedDefaults tells of keys of the generation config that would change answers and do not. own is as for defaults.
func (t *text) unusedDefaults(own bool, log func(format string, args ...any)) {
	for _, key := range t.unused {
		switch known := runtimeKeys[key]; {
		case known && !own:
			log("etc: the %s of the file's generation config is not used; --sampler runtime uses it", key)
		case !known:
			log("etc: the %s of the file's generation config is not supported and not used", key)
		}
	}
}

// encode gives the tokens of a prompt. raw takes the text as it is; else it is a question, after a system
// prompt where that is not empty.
func (t *text) encode(system, prompt string, raw bool) ([]int, error) {
	if t.tokenizer == nil {
		return nil, usagef("%s holds no tokenizer: give --tokenizer FILE, or token ids with --tokens", t.file)
	}
	if raw {
		return t.tokenizer.Encode(prompt, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true}), nil
	}
	return t.render(questionOf(system, prompt), true)
}

// questionOf is the conversation of a question, after a system prompt where that is not empty.
func questionOf(system, question string) []chat.Message {
	var messages []chat.Message
	if system != "" {
		messages = append(messages, chat.Message{Role: "system", Content: system})
	}
	return append(messages, chat.Message{Role: "user", Content: question})
}

// render gives the tokens of a conversation by the chat template; generate adds what makes the model answer.
func (t *text) render(messages []chat.Message, generate bool) ([]int, error) {
	if t.tokenizer == nil {
		return nil, usagef("%s holds no tokenizer: give --tokenizer FILE, or token ids with --tokens", t.file)
	}
	if t.template == nil {
		return nil, usagef("%s holds no chat template: give --chat-template FILE, or --raw to use the prompt as it is", t.file)
	}
	mark := freeMark(messages)
	prompt, err := t.template.render(t.shielded(messages, mark), generate, t.think)
	var failed *template.Error
	if errors.As(err, &failed) {
		if err = fmt.Errorf("%s: %w", t.file, err); failed.Kind == template.Raised {
			return nil, usageError{err} // the template refuses what it is asked
		}
		return nil, invalidError{err}
	}
	if err != nil {
		return nil, err
	}
	return t.tokenizer.Encode(prompt, tokenizer.EncodeOptions{ParseSpecial: true, Mark: mark}), nil
}

// freeMark is a character that no text is to hold (Unicode has 32 such, U+FDD0 to U+FDEF), and that no message has.
func freeMark(messages []chat.Message) rune {
	for mark := '\uFDD0'; mark < '\uFDEF'; mark++ {
		if !slices.ContainsFunc(messages, func(m chat.Message) bool { return strings.ContainsRune(m.Content, mark) }) {
			return mark
		}
	}
	return '\uFDEF'
}

// shielded are messages in which what people wrote names no token that steers the model: special ones, and those that the
// template writes, as <think>. Answers stay as they are: templates look into them, for the end of the thinking.
func (t *text) shielded(messages []chat.Message, mark rune) []chat.Message {
	if t.shield == nil {
		t.shield = t.tokenizer.NewShield(func(name string) bool {
			return strings.ContainsFunc(name, unicode.IsLetter) && strings.Contains(t.template.source, name)
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

// decode gives the text of tokens, "" without a tokenizer.
func (t *text) decode(tokens []int) string {
	if t.tokenizer == nil {
		return ""
	}
	return t.tokenizer.Decode(tokens, true)
}

// textStream writes tokens as text while they come: never a part of a character.
type textStream struct {
	stream *tokenizer.Stream
	ids    int
}

func (t *text) stream() *textStream {
	if t.tokenizer == nil {
		return &textStream{}
	}
	return &textStream{stream: t.tokenizer.NewStream(true)}
}

func (s *textStream) push(token int) string {
	if s.stream != nil {
		return s.stream.Push(token)
	}
	s.ids++
	if s.ids > 1 {
		return fmt.Sprintf(",%d", token)
	}
	return fmt.Sprint(token)
}

func (s *textStream) flush() string {
	if s.stream != nil {
		return s.stream.Flush()
	}
	return ""
}
