package serve

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/template"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// shield keeps clients from naming tokens that steer the model. It puts a mark, a character that no client has sent,
// inside such names while the template renders, and the tokenizer removes it (see [tokenizer.Shield]). So a name
// becomes a token only where the template has written it.
type shield struct {
	text *Text
	mark rune
}

// prepare makes what depends on tokenizer and template alone. Beside special tokens those steer the model that its
// template writes, and those that mark thoughts and calls.
func (t *Text) prepare() {
	t.format = format.Find(t.Tokenizer, t.Source)
	f := t.format
	t.shield = t.Tokenizer.NewShield(func(name string) bool {
		id, _ := t.Tokenizer.TokenToID(name)
		return slices.Contains([]int{f.Open, f.Close, f.Tool, f.End, f.Quote}, id) ||
			strings.ContainsFunc(name, unicode.IsLetter) && t.reads(name)
	})
}

// shieldOf makes the shield of a conversation.
func (t *Text) shieldOf(c conversation) (*shield, error) {
	mark, ok := freeMark(c)
	if !ok {
		return nil, invalid("messages", "the texts hold all of the characters U+FDD0 to U+FDEF, which "+
			"Unicode keeps for "+
			"programs; leave one of them out")
	}
	return &shield{t, mark}, nil
}

// conversation returns a copy of c whose texts name no control tokens. The mark stands after the first character of
// each such name, so that the tokenizer takes the name for plain text. Answers of the model keep the marks of their
// thoughts.
func (s *shield) conversation(c conversation) conversation {
	messages := make([]template.Value, len(c.messages))
	for i, m := range c.messages {
		d, ok := m.(*template.Dict)
		if !ok {
			messages[i] = s.value(m)
			continue
		}
		messages[i] = s.message(d)
	}
	c.messages = messages
	c.tools = s.list(c.tools)
	if c.extra != nil {
		c.extra = s.dict(c.extra)
	}
	return c
}

// message shields a message. The text of an answer of the model keeps the marks of the thoughts that it begins with:
// templates look for them, to leave old thoughts out.
func (s *shield) message(d *template.Dict) *template.Dict {
	out := s.dict(d)
	role, _ := d.Get("role")
	content, _ := d.Get("content")
	if text, ok := content.(template.Str); ok && role == template.Str("assistant") {
		out.Set("content", template.Str(s.answer(string(text))))
	}
	out.Set("role", role) // one of four, by which templates choose
	return out
}

// answer shields an answer: what stands between and after the marks of its thoughts. The mark that opens them may be
// missing, where a template has written it.
func (s *shield) answer(text string) string {
	f := s.text.format
	open, _ := s.text.Tokenizer.IDToToken(f.Open)
	end, _ := s.text.Tokenizer.IDToToken(f.Close)
	at := -1
	if f.Thinks() {
		at = strings.Index(text, end)
	}
	if at < 0 {
		return s.string(text)
	}
	front, thoughts := "", text[:at]
	if i := strings.Index(thoughts, open); i >= 0 {
		if strings.TrimSpace(thoughts[:i]) != "" {
			return s.string(text)
		}
		front, thoughts = thoughts[:i]+open, thoughts[i+len(open):]
	}
	return front + s.string(thoughts) + end + s.string(text[at+len(end):])
}

func (s *shield) string(text string) string { return s.text.shield.Text(text, s.mark) }

// value shields all texts of a value, keys of objects too.
func (s *shield) value(v template.Value) template.Value {
	switch v := v.(type) {
	case template.Str:
		return template.Str(s.string(string(v)))
	case *template.List:
		return template.NewList(s.list(v.Items())...)
	case *template.Dict:
		return s.dict(v)
	}
	return v
}

func (s *shield) list(values []template.Value) []template.Value {
	var out []template.Value // none stay none: templates tell no tools from an empty list of them
	for _, v := range values {
		out = append(out, s.value(v))
	}
	return out
}

func (s *shield) dict(d *template.Dict) *template.Dict {
	out := &template.Dict{}
	for _, key := range d.Keys() {
		v, _ := d.Get(key)
		out.Set(s.string(key), s.value(v))
	}
	return out
}

// encode makes the tokens of a prompt of shielded texts. A template that writes JSON in ASCII has written the mark as
// an escape, which becomes the mark again.
func (s *shield) encode(prompt string) []int {
	prompt = strings.ReplaceAll(prompt, escaped(s.mark), string(s.mark))
	return s.text.Tokenizer.Encode(prompt, tokenizer.EncodeOptions{ParseSpecial: true, Mark: s.mark})
}

// escaped returns a character as an escape of JSON.
func escaped(mark rune) string { return fmt.Sprintf(`\u%04x`, mark) }

// Marks are the characters U+FDD0 to U+FDEF, which Unicode keeps out of texts.
const firstMark, lastMark = '\uFDD0', '\uFDEF'

// freeMark returns a mark that no text of a conversation has, neither as it is nor escaped; false where there is none.
func freeMark(c conversation) (rune, bool) {
	var texts []string
	var gather func(v template.Value)
	gather = func(v template.Value) {
		switch v := v.(type) {
		case template.Str:
			texts = append(texts, string(v))
		case *template.List:
			for _, x := range v.Items() {
				gather(x)
			}
		case *template.Dict:
			for _, key := range v.Keys() {
				texts = append(texts, key)
				x, _ := v.Get(key)
				gather(x)
			}
		}
	}
	gather(template.NewList(c.messages...))
	gather(template.NewList(c.tools...))
	if c.extra != nil {
		gather(c.extra)
	}
	for mark := firstMark; mark <= lastMark; mark++ {
		if !slices.ContainsFunc(texts, func(t string) bool {
			return strings.ContainsRune(t, mark) || strings.Contains(t, escaped(mark))
		}) {
			return mark, true
		}
	}
	return 0, false
}
