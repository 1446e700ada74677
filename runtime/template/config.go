package template

import (
	"fmt"
)

// Config is the part of a checkpoint's tokenizer_config.json about prompts.
type Config struct {
	// Tokens are the special tokens by name, such as bos_token, as templates know them.
	Tokens *Dict

	templates map[string]string
}

// The names of templates in a tokenizer_config.json that has several.
const (
	DefaultTemplate = "default"
	ToolTemplate    = "tool_use" // for conversations with tools, where there is one
)

// specialTokens are the names that tokenizers of transformers have for special tokens.
var specialTokens = []string{
	"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
	"additional_special_tokens",
}

// ParseConfig parses a tokenizer_config.json; name is for errors.
func ParseConfig(name string, data []byte) (*Config, error) {
	v, err := ParseJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("%s: a tokenizer_config.json is an object, found a value of type %s", name, v.TypeName())
	}
	c := &Config{Tokens: &Dict{}, templates: map[string]string{}}
	for _, key := range specialTokens {
		if v, ok := d.Get(key); ok {
			c.token(key, v)
		}
	}
	if v, ok := d.Get("extra_special_tokens"); ok {
		if extra, ok := v.(*Dict); ok {
			for _, key := range extra.Keys() {
				v, _ := extra.Get(key)
				c.token(key, v)
			}
		}
	}
	if v, ok := d.Get("chat_template"); ok {
		if err := c.readTemplates(v); err != nil {
			return nil, fmt.Errorf("%s: chat_template: %w", name, err)
		}
	}
	return c, nil
}

// tokenText returns the text of a special token: a string, or an object whose content it is.
func tokenText(v Value) (Value, bool) {
	if d, ok := v.(*Dict); ok {
		v, _ = d.Get("content")
	}
	s, ok := v.(Str)
	return s, ok
}

func (c *Config) token(name string, v Value) {
	if list, ok := v.(*List); ok {
		var items []Value
		for _, x := range list.Items() {
			if s, ok := tokenText(x); ok {
				items = append(items, s)
			}
		}
		c.Tokens.Set(name, NewList(items...))
		return
	}
	if s, ok := tokenText(v); ok {
		c.Tokens.Set(name, s)
	}
}

// readTemplates takes one template, or a list of objects with name and template.
func (c *Config) readTemplates(v Value) error {
	switch v := v.(type) {
	case None:
		return nil
	case Str:
		c.templates[DefaultTemplate] = string(v)
		return nil
	case *List:
		for i, x := range v.Items() {
			d, ok := x.(*Dict)
			if !ok {
				return fmt.Errorf("element %d is of type %s, want an object with name and template", i, x.TypeName())
			}
			name, _ := d.Get("name")
			source, _ := d.Get("template")
			n, okName := name.(Str)
			s, okSource := source.(Str)
			if !okName || !okSource {
				return fmt.Errorf("element %d has no name or no template that is a string", i)
			}
			c.templates[string(n)] = string(s)
		}
		return nil
	}
	return fmt.Errorf("it is of type %s, want a string or a list", v.TypeName())
}

// Template returns the source of the template of a name; ok is false if there is none.
func (c *Config) Template(name string) (source string, ok bool) {
	source, ok = c.templates[name]
	return source, ok
}
