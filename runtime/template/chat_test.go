package template

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChatContext(t *testing.T) {
	const show = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{{ tools }} {{ documents }} " +
		"{{ add_generation_prompt }} {{ enable_thinking is defined }} {{ enable_thinking }} {{ bos_token }} {{ x }}"
	no := false
	tokens, arguments := &Dict{}, &Dict{}
	tokens.Set("bos_token", Str("<s>"))
	arguments.Set("x", Int(5))
	arguments.Set("documents", NewList())
	messages := []Value{NewMessage("user", "hi"), NewMessage("assistant", "ho")}
	for _, c := range []struct {
		chat Chat
		want string
	}{
		{Chat{}, "None None False False   "},
		{Chat{Messages: messages, AddGenerationPrompt: true}, "user:hi;assistant:ho;None None True False   "},
		{Chat{Messages: messages[:1], Tools: []Value{Str("t")}, EnableThinking: &no,
			Tokens: tokens, Arguments: arguments},
			"user:hi;['t'] [] False True False <s> 5"},
	} {
		text, err := render(t, show, c.chat.Context())
		require.NoError(t, err)
		require.Equal(t, c.want, text)
	}
}

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig("f", []byte(`{"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null,
		"additional_special_tokens": ["<a>", {"content": "<b>"}], "extra_special_tokens": {"image_token": "<i>"}, "model_max_length": 5,
		"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]}`))
	require.NoError(t, err)
	require.Equal(t, `{"bos_token": "<s>", "eos_token": "</s>", "additional_special_tokens": ["<a>", "<b>"], "image_token": "<i>"}`, dump(t, c.Tokens))
	for name, want := range map[string]string{DefaultTemplate: "D", ToolTemplate: "T"} {
		source, ok := c.Template(name)
		require.True(t, ok)
		require.Equal(t, want, source)
	}
	_, ok := c.Template("rag")
	require.False(t, ok)

	c, err = ParseConfig("f", []byte(`{"chat_template": "one"}`))
	require.NoError(t, err)
	source, ok := c.Template(DefaultTemplate)
	require.True(t, ok)
	require.Equal(t, "one", source)

	for _, text := range []string{`{}`, `{"chat_template": null}`} {
		c, err = ParseConfig("f", []byte(text))
		require.NoError(t, err)
		_, ok = c.Template(DefaultTemplate)
		require.False(t, ok)
	}
	for text, want := range map[string]string{
		`[`:                                  "f: JSON line 1 column 2: expected a value",
		`[]`:                                 "f: a tokenizer_config.json is an object, found a value of type list",
		`{"chat_template": 5}`:               "f: chat_template: it is of type int, want a string or a list",
		`{"chat_template": ["a"]}`:           "f: chat_template: element 0 is of type str, want an object with name and template",
		`{"chat_template": [{"name": "x"}]}`: "f: chat_template: element 0 has no name or no template that is a string",
	} {
		_, err := ParseConfig("f", []byte(text))
		require.EqualError(t, err, want)
	}
}

func TestDict(t *testing.T) {
	d := &Dict{}
	_, ok := d.Get("a")
	require.False(t, ok)
	d.Set("b", Int(1))
	d.Set("a", Int(2))
	c := d.Clone()
	c.Set("b", Int(3))
	c.Set("c", None{})
	require.Equal(t, []string{"b", "a"}, d.Keys())
	require.Equal(t, []string{"b", "a", "c"}, c.Keys())
	require.Equal(t, 2, d.Len())
	v, ok := d.Get("b")
	require.True(t, ok)
	require.Equal(t, Int(1), v)
	v, ok = c.Get("b")
	require.True(t, ok)
	require.Equal(t, Int(3), v)
}
