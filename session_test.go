package etc_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc"
	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/runtime/engine"
)

// opened opens the model for one user, on the CPU where the options say nothing else.
func opened(t *testing.T, o etc.Options, p etc.Parameters) *etc.Session {
	t.Helper()
	if o.Device == "" {
		o.Device = "cpu"
	}
	s, err := etc.OpenSession(program(), o, p)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// ids returns the tokens of an answer.
func ids(t *testing.T, tokens func(yield func(etc.Token, error) bool)) []int {
	t.Helper()
	var out []int
	for token, err := range tokens {
		require.NoError(t, err)
		if token.ID >= 0 {
			out = append(out, token.ID)
		}
	}
	return out
}

// A session gives the tokens of a model: greedy and drawn, alone and in a conversation, by what the file says and with
// parameters that only the runtime's own sampler takes, with drafts, and deterministic.
func TestSessionIsAModel(t *testing.T) {
	m, err := etc.Open(program(), etc.Options{Device: "cpu", Precision: "fp32"})
	require.NoError(t, err)
	defer m.Close()
	hi := question("What is the capital of France?")
	for name, p := range map[string]etc.Parameters{
		"greedy": {Temperature: new(0.0)},
		"file":   {Seed: new(int64(3))},
		"drawn":  {Temperature: new(2.0), TopK: new(40), TopP: new(0.95), Seed: new(int64(11)), MaxTokens: 30},
		"own": {Temperature: new(1.5), TopK: new(0), MinP: new(0.02), RepeatPenalty: new(1.2),
			Bias: map[int]float64{270: -1}, Seed: new(int64(5)), MaxTokens: 30},
		"ended": {Temperature: new(0.0), Stop: []string{" is"}},
		"form":  {Temperature: new(0.0), Regex: "(yes|no)", Think: new(false)},
		"last":  {Temperature: new(0.0), RepeatPenalty: new(1.4), RepeatLast: 3, MaxTokens: 20},
	} {
		t.Run(name, func(t *testing.T) {
			want, end := whole(t, m.Chat(t.Context(), hi, p))
			require.Equal(t, want, end.Text)
			for kind, o := range map[string]etc.Options{"": {}, "drafts": {Speculate: "ngram:2"},
				"deterministic": {Deterministic: true}, "runtime": {Sampler: "runtime"}} {
				if o.Precision = "fp32"; kind == "drafts" && p.Regex != "" && testing.Short() {
					continue
				}
				s := opened(t, o, p)
				got, e := whole(t, s.Chat(t.Context(), hi))
				require.Equal(t, want, got, kind)
				require.Equal(t, end.Reason, e.Reason, kind)
				require.Equal(t, end.PromptTokens, e.PromptTokens, kind)
				require.Equal(t, want, e.Text, kind)
			}
			s := opened(t, etc.Options{Precision: "fp32"}, p)
			got, _ := whole(t, s.Ask(t.Context(), hi[0].Content))
			require.Equal(t, want, got)
			require.Equal(t, []etc.Message{hi[0], {Role: "assistant", Content: want}}, s.Messages())
		})
	}
}

// Answers that stand alone do not depend on what came before, and a conversation forgets them.
func TestSessionBeginsAnew(t *testing.T) {
	s := opened(t, etc.Options{}, greedy)
	prompt, err := s.Prompt(question("What is the capital of Spain?"))
	require.NoError(t, err)
	first := ids(t, s.GenerateTokens(t.Context(), prompt...))
	whole(t, s.Generate(t.Context(), "The capital"))
	require.Equal(t, first, ids(t, s.Chat(t.Context(), question("What is the capital of Spain?"))))
	require.Positive(t, s.Len())
	require.NoError(t, s.Reset("Be brief."))
	require.Zero(t, s.Len())
	require.Equal(t, []etc.Message{{Role: "system", Content: "Be brief."}}, s.Messages())
	whole(t, s.Ask(t.Context(), "Hi"))
	require.Len(t, s.Messages(), 3)
	require.NoError(t, s.Reset(""))
	require.Empty(t, s.Messages())
}

// Logits come after the prompt and every token, and those of forced tokens are not drawn.
func TestSessionForced(t *testing.T) {
	for _, sampler := range []string{"file", "runtime"} {
		var rows [][]float32
		p := etc.Parameters{Temperature: new(0.0), ForceTokens: []int{7, 8, 9}, Logits: func(logits []float32) error {
			rows = append(rows, slices.Clone(logits))
			return nil
		}}
		s := opened(t, etc.Options{Sampler: sampler, Precision: "fp32"}, p)
		require.Equal(t, p.ForceTokens, ids(t, s.GenerateTokens(t.Context(), 1, 2, 3)))
		require.Len(t, rows, 4, "the last token is fed too")
		require.Len(t, rows[0], s.Info().VocabularySize)
		forced := rows
		rows, p.ForceTokens, p.MaxTokens = nil, nil, 1
		require.NoError(t, s.SetParameters(p))
		ids(t, s.GenerateTokens(t.Context(), 1, 2, 3, 7, 8))
		require.InDeltaSlice(t, forced[2], rows[0], 1e-4)
	}
}

// A program is compiled to give logits, or not.
func TestSessionLogitsTooLate(t *testing.T) {
	late := greedy
	late.Logits = func([]float32) error { return nil }
	for _, sampler := range []string{"", "file", "runtime"} {
		s := opened(t, etc.Options{Sampler: sampler}, greedy)
		require.NoError(t, s.SetParameters(late))
		require.NoError(t, s.SetParameters(greedy))
		require.NoError(t, s.Compile())
		err := s.SetParameters(late)
		require.ErrorIs(t, err, etc.ErrUsage)
		require.ErrorContains(t, err, "set it before the first answer", sampler)
	}
	s := opened(t, etc.Options{Deterministic: true}, late)
	require.ErrorContains(t, s.Compile(), "leave one out")
}

// The context ends an answer: what came is there, with its end, and part of the conversation, which goes on.
func TestSessionCancelled(t *testing.T) {
	s := opened(t, etc.Options{}, greedy)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var end *etc.End
	var last error
	for token, err := range s.Ask(ctx, "What is the capital of France?") {
		cancel()
		end, last = token.End, err
	}
	require.ErrorIs(t, last, context.Canceled)
	require.Equal(t, etc.Cancelled, end.Reason)
	require.Equal(t, "The", end.Text)
	require.Equal(t, "The", s.Messages()[1].Content)
	for range s.Ask(t.Context(), "What is the capital of Italy?") {
		break // a loop that is left ends the answer, too
	}
	require.Len(t, s.Messages(), 4)
	text, _ := whole(t, s.Ask(t.Context(), "What is the capital of Italy?"))
	require.NotEmpty(t, text)
}

// An answer whose context ends in the middle of its prompt leaves a session that answers the next one.
func TestSessionAbandoned(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := opened(t, etc.Options{Observe: func(*engine.Step) { cancel() }}, greedy)
	require.ErrorIs(t, failedEnd(t, s.Chat(ctx, question("What is the capital of France?"))), context.Canceled)
	text, _ := whole(t, s.Chat(t.Context(), question("What is the capital of France?")))
	require.Equal(t, "The capital of France is Paris.", text)
}

// failedEnd returns the error of an answer, which may have an end.
func failedEnd(t *testing.T, tokens func(yield func(etc.Token, error) bool)) (last error) {
	t.Helper()
	for _, err := range tokens {
		require.NoError(t, last, "an error comes last")
		last = err
	}
	return last
}

// What the chat template reads of variables is known, and what it does not is refused.
func TestTemplateVariables(t *testing.T) {
	template := filepath.Join(t.TempDir(), "t.jinja")
	require.NoError(t, os.WriteFile(template, []byte("{{ opening }}{% for m in messages %}{{ m.content }}{% endfor %}"),
		0o600))
	o := etc.Options{ChatTemplateFile: template}
	p := etc.Parameters{Variables: map[string]json.RawMessage{"opening": json.RawMessage(`"The "`)}}
	s := opened(t, o, p)
	tokens, err := s.Prompt(question("capital"))
	require.NoError(t, err)
	require.Equal(t, "The capital", s.Tokenizer().Decode(tokens))
	require.True(t, s.ChatTemplate().Reads("opening"))
	require.Contains(t, s.ChatTemplate().Source(), "{{ opening }}")
	for name, value := range map[string]string{"other": "1", "messages": "1", "opening": "{"} {
		p := etc.Parameters{Variables: map[string]json.RawMessage{name: json.RawMessage(value)}}
		require.ErrorIs(t, s.SetParameters(p), etc.ErrUsage, name)
	}
	tokens, err = s.Prompt(question("capital"))
	require.NoError(t, err)
	require.Equal(t, "The capital", s.Tokenizer().Decode(tokens), "what is refused changes nothing")
	m, err := etc.Open(program(), etc.Options{Device: "cpu", ChatTemplateFile: template})
	require.NoError(t, err)
	defer m.Close()
	tokens, err = m.Prompt(question("capital"), p)
	require.NoError(t, err)
	require.Equal(t, "The capital", m.Tokenizer().Decode(tokens))
}

func TestSessionErrors(t *testing.T) {
	for name, o := range map[string]etc.Options{
		"sampler": {Sampler: "x"}, "concurrent": {Concurrent: 2}, "cache": {CacheMemory: 1}, "drafts": {Speculate: "x"},
		"templates": {NoChatTemplate: true, ChatTemplate: "x"}, "passes": {Device: "abacus"},
	} {
		_, err := etc.OpenSession(program(), o, etc.Parameters{})
		require.ErrorIs(t, err, etc.ErrUsage, name)
	}
	for name, p := range map[string]etc.Parameters{
		"tokens": {MaxTokens: -1}, "top p": {TopP: new(2.0)}, "temperature": {Temperature: new(-1.0)},
		"min p": {MinP: new(-0.1)}, "last": {RepeatLast: -1}, "form": {Regex: "("}, "schema": {JSONSchema: "{"},
		"forced": {ForceTokens: []int{1}, MaxTokens: 3}, "forced form": {ForceTokens: []int{1}, Regex: "a"},
		"forced logprobs": {ForceTokens: []int{1}, Logprobs: new(0)},
	} {
		_, err := etc.OpenSession(program(), etc.Options{Device: "cpu"}, p)
		require.ErrorIs(t, err, etc.ErrUsage, name)
	}
	_, err := etc.OpenSession(program(), etc.Options{Sampler: "file"}, etc.Parameters{MinP: new(0.1)})
	require.ErrorIs(t, err, etc.ErrUsage)
	_, err = etc.OpenSession(checkpoint+"/config.json", etc.Options{}, etc.Parameters{})
	require.ErrorIs(t, err, etc.ErrInvalid)
	_, err = etc.OpenSession("none.pte", etc.Options{}, etc.Parameters{})
	require.ErrorIs(t, err, os.ErrNotExist)

	s := opened(t, etc.Options{Sampler: "file"}, greedy)
	require.NoError(t, s.Compile())
	for name, p := range map[string]etc.Parameters{
		"head": {TopK: new(3)}, "runtime": {MinP: new(0.1)}, "form": {Regex: "a"}, "bias": {Bias: map[int]float64{9999: 1}},
	} {
		require.ErrorIs(t, s.SetParameters(p), etc.ErrUsage, name)
	}
	require.Nil(t, s.Parameters().TopK, "the program has no use for it")
	require.Nil(t, s.Parameters().MinP)
	require.ErrorIs(t, failed(t, s.GenerateTokens(t.Context())), etc.ErrUsage)
	require.ErrorIs(t, failed(t, s.GenerateTokens(t.Context(), 99999)), etc.ErrUsage)
	require.ErrorIs(t, failed(t, s.Generate(t.Context(), strings.Repeat("a b ", 500))), etc.ErrUsage)
	require.ErrorIs(t, failed(t, s.Ask(t.Context(), strings.Repeat("a b ", 500))), etc.ErrUsage)
	for _, o := range []etc.Options{{Speculate: "ngram"}, {Deterministic: true}} {
		s := opened(t, o, greedy)
		require.ErrorIs(t, s.Reset(""), etc.ErrUsage)
		require.ErrorIs(t, s.SetParameters(etc.Parameters{Regex: "("}), etc.ErrUsage)
		require.NoError(t, s.SetParameters(etc.Parameters{ForceTokens: []int{1}}))
		require.ErrorIs(t, s.Compile(), etc.ErrUsage)
		require.ErrorIs(t, s.Compile(), etc.ErrUsage, "what is wrong stays wrong")
		require.ErrorIs(t, failed(t, s.GenerateTokens(t.Context(), 1)), etc.ErrUsage)
	}
}

// A conversation is kept for its program and its precision, and a file that is no session is an invalid one.
func TestSessionFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chat")
	s := opened(t, etc.Options{}, greedy)
	whole(t, s.Ask(t.Context(), "What is the capital of France?"))
	require.NoError(t, s.Save(file))
	other := opened(t, etc.Options{Precision: "fp32"}, greedy)
	require.ErrorIs(t, other.Load(file), etc.ErrUsage)
	require.ErrorIs(t, s.Load("go.mod"), etc.ErrInvalid)
	require.Len(t, s.Messages(), 2)
	require.Error(t, s.Save(program()), "a program is not replaced")
}

// A session that does not fit is an error.
func TestSessionMemory(t *testing.T) {
	usable := execution.UsableMemory
	defer func() { execution.UsableMemory = usable }()
	execution.UsableMemory = func() int64 { return 1 << 20 }
	require.ErrorIs(t, opened(t, etc.Options{}, greedy).Compile(), etc.ErrMemory)
}

// Templates and tokenizers are read from programs, and from the files of checkpoints.
func TestLoad(t *testing.T) {
	render := func(path, name string) string {
		c, err := etc.LoadChatTemplate(path, name)
		require.NoError(t, err)
		text, err := c.Render(question("Hi"))
		require.NoError(t, err)
		return text
	}
	ofFile := render(checkpoint+"/tokenizer_config.json", "")
	require.Equal(t, ofFile, render(program(), ""))
	config := filepath.Join(t.TempDir(), "tokenizer_config.json")
	text := `{"bos_token": "<s>", "chat_template": [{"name": "default", "template": "{{ bos_token }}a"},
		{"name": "tool_use", "template": "b"}]}`
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	require.Equal(t, "<s>a", render(config, ""))
	require.Equal(t, "b", render(config, "tool_use"))
	_, err := etc.LoadChatTemplate(config, "none")
	require.Error(t, err)
	_, err = etc.LoadTokenizer("none.json")
	require.ErrorIs(t, err, os.ErrNotExist)
	one, err := etc.LoadTokenizer(program())
	require.NoError(t, err)
	two, err := etc.LoadTokenizer(checkpoint + "/tokenizer.json")
	require.NoError(t, err)
	require.Equal(t, two.Encode("The capital", etc.EncodeOptions{}), one.Encode("The capital", etc.EncodeOptions{}))
	end, _ := one.ID("<|im_end|>")
	require.Equal(t, "<|im_end|>", one.DecodeSpecial([]int{end}))
	require.Empty(t, one.Decode([]int{end}))
}
