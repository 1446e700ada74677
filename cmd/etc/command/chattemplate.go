package command

import (
	"fmt"

	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/template"
)

// chatTemplate turns a conversation into a prompt.
type chatTemplate struct {
	template *template.Template
	tokens   *template.Dict // special tokens, which templates know by name
}

// openTemplate parses the template of a file, or the one at path; nil where the file has none.
func openTemplate(p *program.Program, path string) (*chatTemplate, error) {
	t, tokens, err := templateOf(p.File)
	if path != "" {
		b, readError := readAtMost(nil, path, maxTemplateFile)
		if readError != nil {
			return nil, readError
		}
		t, err = parseTemplate(path, string(b))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.File.Name(), err)
	}
	if t == nil {
		return nil, nil
	}
	return &chatTemplate{t, tokens}, nil
}

// render gives the prompt of a conversation.
func (t *chatTemplate) render(messages []chat.Message, generate bool, think *bool) (string, error) {
	now, err := templateClock("")
	if err != nil {
		return "", err
	}
	c := template.Chat{AddGenerationPrompt: generate, EnableThinking: think, Tokens: t.tokens}
	for _, m := range messages {
		c.Messages = append(c.Messages, template.NewMessage(m.Role, m.Content))
	}
	return t.template.Render(c.Context(), template.Options{Now: now})
}
