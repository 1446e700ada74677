package command

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/template"
)

// chatTemplate turns a conversation into a prompt.
type chatTemplate struct {
	template  *template.Template
	tokens    *template.Dict // special tokens, which templates know by name
	source    string
	arguments *template.Dict // further variables, from --template-arg
}

// openTemplate parses the template of a file, or the one at path; nil where the file has none.
func openTemplate(p *program.Program, path string) (*chatTemplate, error) {
	t, tokens, err := templateOf(p.File)
	source := templateSource(p.File)
	if path != "" {
		b, readError := readAtMost(nil, path, maxTemplateFile)
		if readError != nil {
			return nil, readError
		}
		source = string(b)
		t, err = parseTemplate(path, source)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.File.Name(), err)
	}
	if t == nil {
		return nil, nil
	}
	return &chatTemplate{template: t, tokens: tokens, source: source}, nil
}

// templateSource is the text of a file's chat template, or that of the configuration that it is a part of.
func templateSource(f *container.File) string {
	for _, key := range []string{keyChatTemplate, keyTokenizerConfig} {
		if b, ok := f.Lookup(key); ok {
			return string(b)
		}
	}
	return ""
}

// reads reports whether the template may read a variable: a template names all that it reads.
func (t *chatTemplate) reads(name string) bool { return strings.Contains(t.source, name) }

// render gives the prompt of a conversation.
func (t *chatTemplate) render(messages []chat.Message, generate bool, think *bool) (string, error) {
	now, err := templateClock("")
	if err != nil {
		return "", err
	}
	return t.renderAt(now, messages, generate, think)
}

// renderAt is render at a time.
func (t *chatTemplate) renderAt(now func() time.Time, messages []chat.Message, generate bool, think *bool) (string, error) {
	c := template.Chat{AddGenerationPrompt: generate, EnableThinking: think, Tokens: t.tokens, Arguments: t.arguments}
	for _, m := range messages {
		c.Messages = append(c.Messages, template.NewMessage(m.Role, m.Content))
	}
	return t.template.Render(c.Context(), template.Options{Now: now})
}

// enableThinking is the variable of --think and --no-think.
const enableThinking = "enable_thinking"

// reservedArguments are the variables that a template gets from the conversation and other flags.
var reservedArguments = map[string]string{
	"messages": "the conversation", "add_generation_prompt": "whether an answer is asked for", enableThinking: "--think or --no-think",
}

// templateArguments reads --template-arg NAME=JSON.
func templateArguments(args []string) (*template.Dict, error) {
	d := &template.Dict{}
	for _, a := range args {
		name, text, ok := strings.Cut(a, "=")
		if !ok || !isIdentifier(name) {
			return nil, usagef("--template-arg %q: want NAME=JSON with the name of a variable", a)
		}
		if by, reserved := reservedArguments[name]; reserved {
			return nil, usagef("--template-arg %s: this variable is set by %s", name, by)
		}
		if _, twice := d.Get(name); twice {
			return nil, usagef("--template-arg %s is given twice", name)
		}
		v, err := template.ParseJSON([]byte(text))
		if err != nil {
			return nil, usagef("--template-arg %s: %w; the value is JSON, so a text is written as \"text\"", name, err)
		}
		d.Set(name, v)
	}
	return d, nil
}

// isIdentifier reports whether a template can name a variable so.
func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return s != ""
}
