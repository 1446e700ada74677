package etc

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/template"
)

// ChatTemplate makes a prompt of a conversation, as transformers does with the template of the same file. It is safe
// for concurrent use.
type ChatTemplate struct {
	parsed *template.Template
	source string
	tokens *template.Dict // special tokens, which the template refers to by name
}

// LoadChatTemplate reads the chat template of a program (.pte) or of a tokenizer_config.json (.json), with the special
// tokens that it refers to by name; any other file is the text of a template. name chooses one of several in a
// tokenizer_config.json; "" is the one with the name default.
func LoadChatTemplate(path, name string) (*ChatTemplate, error) {
	switch filepath.Ext(path) {
	case ".pte":
		return programTemplate(path)
	case ".json":
		return configTemplate(path, name)
	}
	text, err := prompt.ReadAtMost(path, prompt.MostTemplate)
	if err != nil {
		return nil, err
	}
	parsed, err := prompt.ParseTemplate(path, string(text))
	if err != nil {
		return nil, err
	}
	return &ChatTemplate{parsed: parsed, source: string(text)}, nil
}

// programTemplate reads the template of a program.
func programTemplate(path string) (*ChatTemplate, error) {
	f, err := container.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := prompt.TemplateOf(f)
	if err == nil && t.Parsed == nil {
		err = errors.New("it holds no chat template")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &ChatTemplate{t.Parsed, t.Source, t.Tokens}, nil
}

// configTemplate reads a template of a tokenizer_config.json.
func configTemplate(path, name string) (*ChatTemplate, error) {
	text, err := prompt.ReadAtMost(path, prompt.MostTemplate)
	if err != nil {
		return nil, err
	}
	c, err := template.ParseConfig(path, text)
	if err != nil {
		return nil, kind.Of(kind.ErrInvalid, err)
	}
	fill(&name, template.DefaultTemplate)
	source, ok := c.Template(name)
	if !ok {
		return nil, fmt.Errorf("%s: there is no chat template %q", path, name)
	}
	parsed, err := prompt.ParseTemplate(path, source)
	if err != nil {
		return nil, err
	}
	return &ChatTemplate{parsed, source, c.Tokens}, nil
}

// templateOf returns the chat template of an open file, or nil where it has none.
func templateOf(t *prompt.Text) *ChatTemplate {
	if t.Template == nil {
		return nil
	}
	return &ChatTemplate{t.Template.Parsed, t.Template.Source, t.Template.Tokens}
}

// Source returns the text of the template.
func (t *ChatTemplate) Source() string { return t.source }

// Reads reports whether the template may read a variable, as enable_thinking.
func (t *ChatTemplate) Reads(name string) bool {
	return (&prompt.Template{Source: t.source}).Reads(name)
}

// Render returns the prompt of a conversation as text, up to where the answer begins. For tokens take [Model.Prompt]:
// in the text, a control token and its name in a message look alike.
func (t *ChatTemplate) Render(messages []Message) (string, error) {
	var turns []chat.Message
	for _, m := range messages {
		turns = append(turns, chat.Message(m))
	}
	p := prompt.Template{Parsed: t.parsed, Source: t.source, Tokens: t.tokens}
	return p.Render(turns, true, nil)
}

// RenderJSON renders the template with any variables: a JSON object with messages, add_generation_prompt, tools and
// what else the template reads. Special tokens, as bos_token, are variables too where the object has none of the name.
// A template that asks for the time gets now. What is no JSON object is an [ErrInvalid].
func (t *ChatTemplate) RenderJSON(variables []byte, now time.Time) (string, error) {
	v, err := template.ParseJSON(variables)
	if err != nil {
		return "", kind.Of(kind.ErrInvalid, err)
	}
	context, ok := v.(*template.Dict)
	if !ok {
		return "", kind.Invalidf("a context is a JSON object, found a value of type %s", v.TypeName())
	}
	if t.tokens != nil {
		context = context.Clone()
		for _, name := range t.tokens.Keys() {
			if _, ok := context.Get(name); !ok {
				token, _ := t.tokens.Get(name)
				context.Set(name, token)
			}
		}
	}
	return t.parsed.Render(context, template.Options{Now: func() time.Time { return now }})
}
