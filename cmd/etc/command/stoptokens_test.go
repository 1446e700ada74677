package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
)

// trained is the folder of a small trained checkpoint.
func trained(name string) string {
	return filepath.Join("..", "..", "..", "testdata", "checkpoints", name)
}

// absent stands for a file that a variant leaves out.
const absent = "\x00"

// variant makes a checkpoint like a trained one, with other files.
func variant(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir(trained(name))
	require.NoError(t, err)
	for _, e := range entries {
		if _, other := files[e.Name()]; !other {
			b, err := os.ReadFile(filepath.Join(trained(name), e.Name()))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, e.Name()), b, 0o644))
		}
	}
	for file, text := range files {
		if text != absent {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
		}
	}
	return dir
}

// edit gives a file of a trained checkpoint with a text replaced.
func edit(t *testing.T, name, file, old, new string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(trained(name), file))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(b), old), "%s has %q once", file, old)
	return strings.Replace(string(b), old, new, 1)
}

// Stop tokens are those of generation_config.json, config.json, the tokenizer's configuration and the template,
// in this order; the log names them and what is missing.
func TestStopTokens(t *testing.T) {
	const model = "gemma4-chat" // 1 <eos>, 4 <|turn>, 5 <turn|>, 7 <channel|>
	noIDs := map[string]string{"generation_config.json": absent,
		"config.json": edit(t, model, "config.json", `"eos_token_id": 5,`, "")}
	with := func(files map[string]string, more ...string) map[string]string {
		out := map[string]string{}
		for k, v := range files {
			out[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	tokens := func(eos, template string) string {
		return `{"eos_token": ` + eos + `, "chat_template": ` + strconv.Quote(template) + `}`
	}
	const turn = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  []any
		log   []string
	}{
		{"as it is", nil, ids(5, 1), []string{"stop tokens: 5 <turn|>, 1 <eos>"}},
		{"order", map[string]string{"generation_config.json": `{"eos_token_id": 7}`,
			"tokenizer_config.json": tokens(`"<eos>"`, turn+"<|turn>{% endfor %}")},
			ids(7, 5, 1, 4), []string{"stop tokens: 7 <channel|>, 5 <turn|>, 1 <eos>, 4 <|turn>"}},
		{"eos_token as an object, no template",
			map[string]string{"tokenizer_config.json": `{"eos_token": {"content": "<|turn>", "lstrip": false}}`},
			ids(5, 1, 4), []string{"has no chat template: the program runs with --raw or --chat-template",
				"stop tokens: 5 <turn|>, 1 <eos>, 4 <|turn>"}},
		{"turn end behind white space", with(noIDs, "tokenizer_config.json",
			tokens(`null`, turn+" \n<|turn>\n{% endfor %}")), ids(4), []string{"stop tokens: 4 <|turn>"}},
		{"turn end by eos_token", with(noIDs, "tokenizer_config.json",
			tokens(`"<eos>"`, turn+"{{ eos_token }}<|turn>{% endfor %}")), ids(1), []string{"stop tokens: 1 <eos>"}},
		{"no turn end", with(noIDs, "tokenizer_config.json", tokens(`null`, turn+"\n{% endfor %}<")), nil,
			[]string{"stop tokens: none"}},
		{"no turn at all", with(noIDs, "tokenizer_config.json", tokens(`null`, "Answer.<|turn>")), nil,
			[]string{"the chat template tells no stop token: it leaves out the answer of a conversation",
				"stop tokens: none"}},
		{"a template that raises", map[string]string{"tokenizer_config.json": tokens(`null`,
			"{{ raise_exception('no user') }}")}, ids(5, 1),
			[]string{"the chat template tells no stop token: chat_template.jinja:1: TemplateError: no user"}},
		{"a template that does not parse", map[string]string{"tokenizer_config.json": tokens(`null`, "{% for %}")},
			ids(5, 1), []string{"tells no stop token: chat_template.jinja:1: "}},
		{"an eos_token that is none", map[string]string{"tokenizer_config.json": tokens(`"</s>"`, turn+"{% endfor %}")},
			ids(5, 1), []string{`the eos_token "</s>" is not in tokenizer.json and stops no answer`}},
		{"no tokenizer_config.json", map[string]string{"tokenizer_config.json": absent}, ids(5, 1),
			[]string{"stop tokens: 5 <turn|>, 1 <eos>"}},
		{"no tokenizer", map[string]string{"tokenizer.json": absent}, ids(5, 1),
			[]string{"has no tokenizer.json: the program runs with --tokens or --tokenizer", "stop tokens: 5, 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, log, err := stopTokens(t, variant(t, model, test.files))
			require.NoError(t, err)
			var got []any
			for _, x := range m.Metadata {
				if x.Name == prompt.StopMethod {
					got = x.Values
				}
			}
			require.Equal(t, test.want, got)
			for _, line := range test.log {
				require.Contains(t, log, line)
			}
		})
	}
	_, log, err := stopTokens(t, trained("qwen35moe-chat"))
	require.NoError(t, err)
	require.Equal(t, "etc: stop tokens: 762 <|im_end|>, 760 <|endoftext|>\n", log)
}

// A tokenizer that is invalid, or not the model's, is an invalid checkpoint.
func TestStopTokensOfAnotherModel(t *testing.T) {
	const model = "gemma4-chat"
	for want, files := range map[string]map[string]string{
		"the stop token 960 <end> of tokenizer.json is not in the model's vocabulary of 960 tokens": {
			"tokenizer.json": edit(t, model, "tokenizer.json", `"added_tokens": [`,
				`"added_tokens": [{"id": 960, "content": "<end>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},`),
			"tokenizer_config.json": `{"eos_token": "<end>"}`,
		},
		"tokenizer.json: ":        {"tokenizer.json": "{}"},
		"tokenizer_config.json: ": {"tokenizer_config.json": `{"chat_template": 3}`},
	} {
		_, _, err := stopTokens(t, variant(t, model, files))
		require.ErrorContains(t, err, want)
		require.Equal(t, exitInvalid, exitCode(err), err)
	}
}

func ids(values ...int64) []any {
	var out []any
	for _, v := range values {
		out = append(out, v)
	}
	return out
}

// stopTokens builds a checkpoint's module and sets its stop tokens.
func stopTokens(t *testing.T, dir string) (*ir.Module, string, error) {
	t.Helper()
	c, err := loaders.Open(dir)
	if err != nil {
		return nil, "", err
	}
	defer c.Close()
	m, err := c.Build(loaders.Options{MaxSeqLen: 64})
	require.NoError(t, err)
	var log bytes.Buffer
	err = prompt.SetStopTokens(logTo(&log), c, m)
	return m, log.String(), err
}
