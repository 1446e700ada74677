package serve

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/etc-ml/etc/runtime/template"
)

// inputItem is an item of the input of /v1/responses; which members it has depends on its type.
type inputItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Status    string          `json:"status"`
	Role      string          `json:"role"`
	Phase     *string         `json:"phase"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Namespace *string         `json:"namespace"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	Summary   json.RawMessage `json:"summary"`
	Encrypted *string         `json:"encrypted_content"`
}

// inputItems reads instructions and input as the template's values.
func (o *object) inputItems() []template.Value {
	var list []chatMessage
	var instructions string
	if o.get("instructions", &instructions); instructions != "" {
		list = append(list, chatMessage{Role: "system", Content: marshal(instructions)})
	}
	var text string
	var items []json.RawMessage
	switch raw := o.fields["input"]; {
	case raw == nil:
		o.fail("input", "input is missing")
	case json.Unmarshal(raw, &text) == nil:
		list = append(list, chatMessage{Role: "user", Content: raw})
	default:
		o.get("input", &items)
	}
	for i, raw := range items {
		var err error
		if list, err = addItem(list, raw); err != nil {
			o.fail("input", "input[%d]: %v", i, err)
			return nil
		}
	}
	return o.templateValues("input", list)
}

// addItem appends an item to messages. Thoughts, text and calls of one turn are one message.
func addItem(list []chatMessage, raw json.RawMessage) ([]chatMessage, error) {
	var item inputItem
	if err := decode(raw, &item); err != nil {
		return nil, err
	}
	if item.Type == "" && item.Role != "" {
		item.Type = "message"
	}
	turn := func() *chatMessage {
		if n := len(list); n == 0 || list[n-1].Role != "assistant" {
			list = append(list, chatMessage{Role: "assistant", Content: rawText("")})
		}
		return &list[len(list)-1]
	}
	switch item.Type {
	case "message":
		if item.Role != "assistant" {
			return append(list, chatMessage{Role: item.Role, Content: item.Content}), nil
		}
		m := turn()
		text, err := contentText(item.Content, "content")
		if err != nil {
			return nil, err
		}
		before, _ := contentText(m.Content, "") // it was read before
		m.Content = rawText(before + text)
	case "reasoning":
		text, err := thoughtText(item.Content)
		if err != nil {
			return nil, err
		}
		list = append(list, chatMessage{Role: "assistant", Content: rawText(""), ReasoningContent: &text})
	case "function_call":
		m := turn()
		m.ToolCalls = append(m.ToolCalls, toolCall{ID: item.CallID,
			Function: functionCall{Name: item.Name, Arguments: item.Arguments}})
	case "function_call_output":
		return append(list, chatMessage{Role: "tool", ToolCallID: item.CallID, Content: item.Output}), nil
	default:
		return nil, fmt.Errorf("items of type %q are not supported", item.Type)
	}
	return list, nil
}

// rawText returns a text as JSON.
func rawText(s string) json.RawMessage { return marshal(s) }

// thoughtText reads the parts of thoughts.
func thoughtText(raw json.RawMessage) (string, error) {
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if null(raw) {
		return "", nil
	}
	if err := decode(raw, &parts); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// flatTools reads the functions of /v1/responses, which have no level of their own.
func (o *object) flatTools() *toolSet {
	var list []json.RawMessage
	s := &toolSet{}
	if o.get("tools", &list); len(list) > maxTools {
		o.fail("tools", "tools: %d, at most %d are taken", len(list), maxTools)
		return s
	}
	for i, raw := range list {
		var t struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description *string         `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
			Strict      *bool           `json:"strict"`
		}
		err := decode(raw, &t)
		if err == nil && t.Type != "function" {
			err = fmt.Errorf("the type %q is not supported, want function", t.Type)
		}
		if err == nil {
			err = s.add(functionTool(t.Name, t.Description, t.Parameters), t.Name, t.Parameters)
		}
		if err != nil {
			o.fail("tools", "tools[%d]: %v", i, err)
			return s
		}
	}
	return s
}

// functionTool writes a tool as chat templates know it.
func functionTool(name string, description *string, parameters json.RawMessage) json.RawMessage {
	type function struct {
		Name        string          `json:"name"`
		Description *string         `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	return marshal(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{name, description, parameters}})
}
