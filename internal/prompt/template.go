package prompt

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/template"
)

// Template turns a conversation into a prompt.
type Template struct {
	// Parsed is the parsed template. Source is its text, or the text of the configuration that contains it.
	Parsed *template.Template
	Source string
	// Tokens are the special tokens, which templates refer to by name.
	Tokens *template.Dict
	// Arguments are further variables of the template; nil for none.
	Arguments *template.Dict
}

// OpenTemplate parses the chat template of a program's file. It returns nil if the file has none.
func OpenTemplate(f *container.File) (*Template, error) {
	t, err := TemplateOf(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if t.Parsed == nil {
		return nil, nil
	}
	return t, nil
}

// UseTemplate parses a template to be used in place of the file's own, with the file's special tokens. name is the
// template's name in errors.
func UseTemplate(f *container.File, name, source string) (*Template, error) {
	t, _ := TemplateOf(f) // an error in the file's own template does not matter here
	if t == nil {
		t = &Template{}
	}
	var err error
	if t.Parsed, err = ParseTemplate(name, source); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	t.Source = source
	return t, nil
}

// TemplateOf reads the chat template of a file, if it has one, and the file's special tokens.
func TemplateOf(f *container.File) (*Template, error) {
	config := &template.Config{Tokens: &template.Dict{}}
	if data, ok := f.Lookup(KeyTokenizerConfig); ok {
		c, err := template.ParseConfig(KeyTokenizerConfig, data)
		if err != nil {
			return nil, kind.Of(kind.ErrInvalid, err)
		}
		config = c
	}
	t := &Template{Tokens: config.Tokens, Source: templateSource(f)}
	name, source := KeyTokenizerConfig, ""
	if data, ok := f.Lookup(KeyChatTemplate); ok {
		name, source = KeyChatTemplate, string(data)
	} else if source, ok = config.Template(template.DefaultTemplate); !ok {
		return t, nil
	}
	var err error
	t.Parsed, err = ParseTemplate(name, source)
	return t, err
}

// ParseTemplate parses the text of a template. name is its name in errors.
func ParseTemplate(name, source string) (*template.Template, error) {
	t, err := template.Parse(name, source)
	return t, kind.Of(kind.ErrInvalid, err)
}

// Clock returns the clock of templates that ask for the time: the seconds of SOURCE_DATE_EPOCH in UTC if that is set,
// else the system's.
func Clock() (func() time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Now, nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return nil, kind.Usagef("SOURCE_DATE_EPOCH=%s is not a number of seconds", epoch)
	}
	return func() time.Time { return time.Unix(seconds, 0).UTC() }, nil
}

// templateSource returns the text of a file's chat template, or of the configuration that contains it.
func templateSource(f *container.File) string {
	for _, key := range []string{KeyChatTemplate, KeyTokenizerConfig} {
		if b, ok := f.Lookup(key); ok {
			return string(b)
		}
	}
	return ""
}

// Reads reports whether the template may read a variable, that is, whether its text has the name.
func (t *Template) Reads(name string) bool { return strings.Contains(t.Source, name) }

// Render returns the prompt of a conversation as text. generate appends the beginning of the model's answer. think is
// the variable [EnableThinking]; nil leaves it unset.
func (t *Template) Render(messages []chat.Message, generate bool, think *bool) (string, error) {
	now, err := Clock()
	if err != nil {
		return "", err
	}
	return t.RenderAt(now, messages, generate, think)
}

// RenderAt is [Template.Render] with a given clock.
func (t *Template) RenderAt(now func() time.Time, messages []chat.Message, generate bool, think *bool) (string, error) {
	c := template.Chat{AddGenerationPrompt: generate, EnableThinking: think, Tokens: t.Tokens, Arguments: t.Arguments}
	for _, m := range messages {
		c.Messages = append(c.Messages, template.NewMessage(m.Role, m.Content))
	}
	return t.Parsed.Render(c.Context(), template.Options{Now: now})
}

// EnableThinking is the name of the variable that tells a template whether the model should think first.
const EnableThinking = "enable_thinking"
