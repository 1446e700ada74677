package huggingface

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkpointDir writes files into a new directory.
func checkpointDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	return dir
}

func TestLoad(t *testing.T) {
	config, generation := string(readTestdata(t, "gemma4-per-layer.json")),
		string(readTestdata(t, "generation_config.json"))
	tokenizerConfig := string(readTestdata(t, "tokenizer_config.json"))
	dir := checkpointDir(t, map[string]string{
		ConfigFile: config, GenerationConfigFile: generation, TokenizerConfigFile: tokenizerConfig,
		TokenizerFile: `{"version":"1.0"}`, ChatTemplateFile: "{{ x }}",
	})
	m, err := Load(dir)
	require.NoError(t, err)
	yes, temperature, topK, topP := true, 0.7, 20, 0.9
	require.Equal(t, &Model{
		Dir: dir, Architecture: "Gemma4ForCausalLM", Family: "gemma4", Config: &gemmaChat,
		Tokens:       Tokens{BOS: 2, EOS: []int{5, 1}, Pad: 0},
		Sampling:     Sampling{DoSample: &yes, Temperature: &temperature, TopK: &topK, TopP: &topP},
		ChatTemplate: "{{ x }}",
		Files: Files{Config: []byte(config), GenerationConfig: []byte(generation),
			Tokenizer:       []byte(`{"version":"1.0"}`),
			TokenizerConfig: []byte(tokenizerConfig), ChatTemplate: []byte("{{ x }}")},
	}, m)
}

func TestLoadConfigAlone(t *testing.T) {
	config := string(readTestdata(t, "qwen35moe-multimodal.json"))
	dir := checkpointDir(t, map[string]string{ConfigFile: config})
	m, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, &Model{Dir: dir, Architecture: "Qwen3_5MoeForConditionalGeneration",
		Family: "qwen35moe", Config: &qwenTiny,
		Tokens: Tokens{BOS: NoToken, Pad: NoToken}, Files: Files{Config: []byte(config)}}, m)
}

func TestTokens(t *testing.T) {
	const file = "gemma4-multimodal.json" // text_config has bos 2, eos 1, pad 0; 256 ids
	tests := []struct {
		name       string
		edits      []edit
		generation string
		want       Tokens
	}{
		{"from text_config", nil, "", Tokens{BOS: 2, EOS: []int{1}, Pad: 0}},
		{"root goes first", []edit{{"eos_token_id", []any{1, 106}}, {"bos_token_id", 3}}, "",
			Tokens{BOS: 3, EOS: []int{1, 106}, Pad: 0}},
		{"generation_config goes first", []edit{{"eos_token_id", 7}},
			`{"eos_token_id":[106,50],"bos_token_id":4,"pad_token_id":5}`,
			Tokens{BOS: 4, EOS: []int{106, 50, 7, 1}, Pad: 5}},
		{"one id", nil, `{"eos_token_id":9}`, Tokens{BOS: 2, EOS: []int{9, 1}, Pad: 0}},
		{"nulls", []edit{{"text_config.eos_token_id", nil}, {"text_config.bos_token_id", nil},
			{"text_config.pad_token_id", remove}}, `{"eos_token_id":null,"bos_token_id":null}`,
			Tokens{BOS: NoToken, Pad: NoToken}},
		{"last id", nil, `{"eos_token_id":255}`, Tokens{BOS: 2, EOS: []int{255, 1}, Pad: 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files := map[string]string{ConfigFile: string(apply(t, readTestdata(t, file), test.edits...))}
			if test.generation != "" {
				files[GenerationConfigFile] = test.generation
			}
			m, err := Load(checkpointDir(t, files))
			require.NoError(t, err)
			require.Equal(t, test.want, m.Tokens)
		})
	}
}

func TestChatTemplate(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"none", map[string]string{TokenizerConfigFile: `{"bos_token":"<s>"}`}, ""},
		{"in tokenizer_config.json", map[string]string{TokenizerConfigFile: `{"chat_template":"a"}`}, "a"},
		{"null", map[string]string{TokenizerConfigFile: `{"chat_template":null}`,
			"chat_template.json": `{"chat_template":"c"}`}, "c"},
		{"several", map[string]string{TokenizerConfigFile: `{"chat_template":[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]}`}, "d"},
		{"several without a default", map[string]string{TokenizerConfigFile: `{"chat_template":[{"name":"tool_use","template":"t"}]}`}, ""},
		{"chat_template.jinja goes first", map[string]string{TokenizerConfigFile: `{"chat_template":"a"}`,
			ChatTemplateFile: "j", "chat_template.json": `{"chat_template":"c"}`}, "j"},
		{"chat_template.json goes last", map[string]string{TokenizerConfigFile: `{"chat_template":"a"}`,
			"chat_template.json": `{"chat_template":"c"}`}, "a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.files[ConfigFile] = string(readTestdata(t, "qwen35moe.json"))
			m, err := Load(checkpointDir(t, test.files))
			require.NoError(t, err)
			require.Equal(t, test.want, m.ChatTemplate)
		})
	}
}

func TestQuantization(t *testing.T) {
	mlx := map[string]any{"bits": 4, "group_size": 64}
	tests := []struct {
		name string
		edit edit
		want string
	}{
		{"MLX", edit{"quantization", mlx}, `{"bits":4,"group_size":64}`},
		{"Hugging Face", edit{"quantization_config", map[string]any{"quant_method": "fp8"}}, `{"quant_method":"fp8"}`},
		{"in text_config", edit{"text_config.quantization_config", mlx}, `{"bits":4,"group_size":64}`},
		{"null", edit{"quantization_config", nil}, ``},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := Load(checkpointDir(t,
				map[string]string{ConfigFile: string(apply(t, readTestdata(t, "qwen35moe-multimodal.json"),
					test.edit))}))
			require.NoError(t, err)
			require.Equal(t, test.want, string(m.Quantization))
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	tests := []struct{ name, file, text, message string }{
		{"config syntax", ConfigFile, `{`, `config.json: expected JSON, found the end of the text`},
		{"config contents", ConfigFile, `{"architectures":["GPT2LMHeadModel"]}`,
			`config.json: architectures: expected one of Gemma4ForCausalLM`},
		{"generation syntax", GenerationConfigFile, `x`, `generation_config.json: expected JSON`},
		{"generation array", GenerationConfigFile, `[]`, `generation_config.json: expected a JSON object, found []`},
		{"eos over the vocabulary", GenerationConfigFile, `{"eos_token_id":[1,768]}`,
			`generation_config.json: eos_token_id: expected a token id below vocab_size (768), or an array of them, found [1,768]`},
		{"eos negative", GenerationConfigFile, `{"eos_token_id":-1}`, `, found -1`},
		{"eos text", GenerationConfigFile, `{"eos_token_id":"<eos>"}`, `, found "<eos>"`},
		{"bos over the vocabulary", GenerationConfigFile, `{"bos_token_id":768}`,
			`bos_token_id: expected an integer from 0 to 767, found 768`},
		{"pad array", GenerationConfigFile, `{"pad_token_id":[1]}`,
			`pad_token_id: expected an integer from 0 to 767, found [1]`},
		{"temperature", GenerationConfigFile, `{"temperature":-0.5}`, `temperature: expected a number ≥ 0, found -0.5`},
		{"top_p", GenerationConfigFile, `{"top_p":0}`, `top_p: expected a number above 0 up to 1, found 0`},
		{"top_k", GenerationConfigFile, `{"top_k":1.5}`, `top_k: expected an integer from -1 to 2147483647, found 1.5`},
		{"do_sample", GenerationConfigFile, `{"do_sample":1}`, `do_sample: expected true or false, found 1`},
		{"tokenizer_config syntax", TokenizerConfigFile, `{"a":1,"a":1}`,
			`tokenizer_config.json: expected JSON, found key "a" twice`},
		{"template number", TokenizerConfigFile, `{"chat_template":1}`,
			`tokenizer_config.json: chat_template: expected a string, found 1`},
		{"template entry", TokenizerConfigFile, `{"chat_template":["a"]}`,
			`chat_template[0]: expected an object with name and template, found "a"`},
		{"template without text", TokenizerConfigFile, `{"chat_template":[{"name":"default","template":1}]}`,
			`chat_template[0].template: expected a string, found 1`},
		{"template not UTF-8", ChatTemplateFile, "\xff",
			`chat_template.jinja: expected text in UTF-8, found other bytes`},
		{"old template", "chat_template.json", `[]`, `chat_template.json: expected a JSON object, found []`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files := map[string]string{ConfigFile: string(readTestdata(t, "qwen35moe.json"))}
			files[test.file] = test.text
			m, err := Load(checkpointDir(t, files))
			require.ErrorContains(t, err, test.message)
			require.Nil(t, m)
			var fault *ConfigError
			require.ErrorAs(t, err, &fault)
		})
	}
}

func TestLoadFileErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, filepath.Join(dir, ConfigFile))

	path := filepath.Join(dir, ConfigFile)
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	require.NoError(t, os.Truncate(path, maxTextBytes+1))
	_, err = Load(dir)
	require.EqualError(t, err, path+": expected at most 16777216 bytes, found more")
}
