package serve

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/template"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// Text is what turns messages into a model's tokens, and tokens into text.
type Text struct {
	Tokenizer *tokenizer.Tokenizer
	// Template makes prompts of conversations; nil where the file has none. Source is its text.
	Template *template.Template
	Source   string
	// Special are the special tokens that templates know by name.
	Special *template.Dict
	// Stop are the tokens that end an answer.
	Stop []int
	// Defaults are the parameters of requests that name none. MaxTokens, Prompt and Seed are not of them.
	Defaults batch.Sampling
	// Now is the clock of templates.
	Now func() time.Time

	// What prepare makes.
	format *format.Format
	shield *tokenizer.Shield
}

// conversation is the input of a prompt.
type conversation struct {
	messages []template.Value
	tools    []template.Value
	think    *bool
	extra    *template.Dict // chat_template_kwargs
}

// enableThinking is the variable of templates that choose whether the model thinks.
const enableThinking = "enable_thinking"

// reads reports whether the template may read a variable: a template names all that it reads.
func (t *Text) reads(name string) bool { return strings.Contains(t.Source, name) }

// prompt makes the tokens of a conversation, and where in them the history ends: what a next turn has too.
func (t *Text) prompt(c conversation) (tokens []int, history int, err error) {
	if t.Template == nil {
		return nil, 0, invalid("messages", "the model has no chat template; use /v1/completions")
	}
	shield, err := t.shieldOf(c)
	if err != nil {
		return nil, 0, err
	}
	c = shield.conversation(c)
	tokens, err = t.render(c, shield, true)
	if err != nil {
		return nil, 0, err
	}
	if len(tokens) == 0 {
		return nil, 0, invalid("messages", "the chat template makes an empty prompt of them")
	}
	before, err := t.render(c, shield, false)
	if err == nil && len(before) < len(tokens) && slices.Equal(before, tokens[:len(before)]) {
		history = len(before)
	}
	return tokens, history, nil
}

// render returns the tokens of a shielded conversation; answer adds what makes the model answer. What the template
// writes may name tokens, what clients have sent may not: there such a name is text.
func (t *Text) render(c conversation, shield *shield, answer bool) ([]int, error) {
	chat := template.Chat{Messages: c.messages, Tools: c.tools, AddGenerationPrompt: answer, EnableThinking: c.think,
		Tokens: t.Special, Arguments: c.extra}
	text, err := t.Template.Render(chat.Context(), template.Options{Now: t.Now})
	var failed *template.Error
	if errors.As(err, &failed) {
		return nil, invalid("messages", "the chat template refuses them: %v", err)
	}
	if err != nil {
		return nil, err
	}
	return shield.encode(text), nil
}

// raw makes the tokens of a text as it is; special tokens in it are parsed.
func (t *Text) raw(text string) []int {
	return t.Tokenizer.Encode(text, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
}

// checkExtra refuses variables that the template never reads, and those that other parameters set.
func (t *Text) checkExtra(d *template.Dict) error {
	const param = "chat_template_kwargs"
	for _, name := range d.Keys() {
		switch {
		case slices.Contains([]string{"messages", "tools", "documents", "add_generation_prompt"}, name):
			return invalid(param, "%s: the variable %q is set by other parameters", param, name)
		case !t.reads(name):
			return invalid(param, "%s: the model's chat template has no variable %q", param, name)
		}
	}
	return nil
}
