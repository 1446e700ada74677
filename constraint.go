package etc

import (
	"fmt"
	"sync"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/guide"
)

// constraints compiles what answers of a program are held to.
type constraints struct {
	text *prompt.Text
	// vocabulary is the number of token ids that the program gives logits of; 0 where it does not say.
	vocabulary int

	once  sync.Once
	model *guide.Model // made when it is first needed
}

// guide returns what constraints need of the program. It has a tokenizer.
func (c *constraints) guide() *guide.Model {
	c.once.Do(func() {
		source := ""
		if c.text.Template != nil {
			source = c.text.Template.Source
		}
		c.model = guide.NewModel(c.text.Tokenizer, format.Find(c.text.Tokenizer, source), c.text.Stop, c.vocabulary)
	})
	return c.model
}

// compile compiles the constraint that parameters ask for; nil where they ask for none.
func (c *constraints) compile(p *Parameters) (*constrain.Grammar, error) {
	var src constrain.Source
	name := ""
	for _, x := range []struct {
		name, text string
		kind       constrain.Kind
	}{{"JSONSchema", p.JSONSchema, constrain.JSONSchema}, {"Grammar", p.Grammar, constrain.GBNF},
		{"Regex", p.Regex, constrain.Regex}} {
		if x.text == "" {
			continue
		}
		if name != "" {
			return nil, kind.Usagef("Parameters.%s and Parameters.%s are set, want one of them", name, x.name)
		}
		name, src = x.name, constrain.Source{Kind: x.kind, Text: x.text}
	}
	switch {
	case name == "":
		return nil, nil
	case p.IgnoreStopTokens:
		return nil, kind.Usagef("Parameters.%s with IgnoreStopTokens: an answer that is whole has to end", name)
	case p.ForceTokens != nil:
		return nil, kind.Usagef("Parameters.%s with ForceTokens: forced tokens are not drawn", name)
	case c.text.Tokenizer == nil:
		return nil, kind.Usagef("Parameters.%s: %s holds no tokenizer, so its tokens have no text: set Options.Tokenizer",
			name, c.text.File)
	case len(c.text.Stop) == 0:
		return nil, kind.Usagef("Parameters.%s: %s has no stop token, by which an answer that is whole could end", name,
			c.text.File)
	}
	grammar, err := c.guide().Compile(src)
	if err != nil {
		return nil, kind.Usagef("Parameters.%s does not compile: %w", name, err)
	}
	return grammar, nil
}

// begin begins an answer that a grammar holds to a form. end are the tokens that the chat template wrote for the answer
// after the messages; nil for a prompt without a template. think is [Parameters.Think].
func (c *constraints) begin(grammar *constrain.Grammar, end []int, think *bool) (*guide.Guide, error) {
	t := c.text.Template
	thinks := end != nil && t != nil && t.Reads(prompt.EnableThinking) && (think == nil || *think)
	g, err := c.guide().New(guide.Options{Text: grammar, Parse: end != nil, Prompt: end, Thinks: thinks})
	if err != nil {
		return nil, fmt.Errorf("%s: the tokenizer: %w", c.text.File, err)
	}
	return g, nil
}
