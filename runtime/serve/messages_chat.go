package serve

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/template"
)

// chatMessage is a message of OpenAI's chat completions.
type chatMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Name             string          `json:"name"`
	ToolCalls        []toolCall      `json:"tool_calls"`
	ToolCallID       string          `json:"tool_call_id"`
	ReasoningContent *string         `json:"reasoning_content"`
	Reasoning        *string         `json:"reasoning"`
	Refusal          *string         `json:"refusal"`
	// Clients send these back with an assistant's message; they are null or empty in answers of this server.
	Annotations  []json.RawMessage `json:"annotations"`
	Audio        json.RawMessage   `json:"audio"`
	FunctionCall json.RawMessage   `json:"function_call"`
}

// toolCall is a call of a function.
type toolCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// tool is a function that the model may call.
type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"function"`
}

// messages reads the messages of a chat as the template's values.
func (o *object) messages() []template.Value {
	var list []json.RawMessage
	if o.get("messages", &list); len(list) == 0 {
		o.fail("messages", "messages: it is missing or empty, want at least one")
	}
	var out []template.Value
	for i, raw := range list {
		at := fmt.Sprintf("messages[%d]", i)
		var m chatMessage
		if err := decode(raw, &m); err != nil {
			o.fail("messages", "%s: %v", at, err)
			return nil
		}
		v, ok := o.templateValue("messages", i, m)
		if !ok {
			return nil
		}
		out = append(out, v)
	}
	return out
}

// templateValues returns the messages of a parameter as templates know them; none after one that is wrong, which fails
// the request.
func (o *object) templateValues(parameter string, list []chatMessage) []template.Value {
	var out []template.Value
	for i, m := range list {
		v, ok := o.templateValue(parameter, i, m)
		if !ok {
			return nil
		}
		out = append(out, v)
	}
	return out
}

// templateValue returns message i of a parameter; false where it is wrong.
func (o *object) templateValue(parameter string, i int, m chatMessage) (template.Value, bool) {
	v, err := m.value(fmt.Sprintf("%s[%d]", parameter, i))
	if err != nil {
		if o.err == nil {
			o.err = err.within(parameter)
		}
		return nil, false
	}
	return v, true
}

func null(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// value makes a message as templates know it.
func (m chatMessage) value(at string) (*template.Dict, *apiError) {
	role := m.Role
	switch role {
	case "developer":
		role = "system"
	case "system", "user", "assistant", "tool":
	default:
		return nil, invalid("", "%s.role: %q, want system, developer, user, assistant or tool", at, m.Role)
	}
	text, err := contentText(m.Content, at+".content")
	if err != nil {
		return nil, err
	}
	if null(m.Content) && (role != "assistant" || len(m.ToolCalls) == 0 && m.Refusal == nil) {
		return nil, invalid("", "%s.content is missing", at)
	}
	if !null(m.Audio) || !null(m.FunctionCall) {
		return nil, invalid("", "%s: audio and function_call are not supported", at)
	}
	if m.Refusal != nil && text == "" {
		text = *m.Refusal
	}
	d := template.NewMessage(role, text)
	if m.Name != "" {
		d.Set("name", template.Str(m.Name))
	}
	switch {
	case role == "tool":
		if m.ToolCallID == "" {
			return nil, invalid("", "%s.tool_call_id is missing", at)
		}
		d.Set("tool_call_id", template.Str(m.ToolCallID))
	case role != "assistant" && (m.ToolCallID != "" || len(m.ToolCalls) > 0):
		return nil, invalid("", "%s: a message of role %s calls no tools and answers none", at, m.Role)
	}
	if thought := m.ReasoningContent; role == "assistant" && (thought != nil || m.Reasoning != nil) {
		if thought == nil {
			thought = m.Reasoning
		}
		d.Set("reasoning_content", template.Str(*thought))
	}
	if len(m.ToolCalls) > 0 {
		return d, setCalls(d, m.ToolCalls, at)
	}
	return d, nil
}

// setCalls gives a message its calls. Templates take the arguments as an object.
func setCalls(d *template.Dict, calls []toolCall, at string) *apiError {
	var list []template.Value
	for i, c := range calls {
		if c.Type != "" && c.Type != "function" || c.Function.Name == "" {
			return invalid("", "%s.tool_calls[%d]: want a function with a name", at, i)
		}
		text := c.Function.Arguments
		if strings.TrimSpace(text) == "" {
			text = "{}"
		}
		arguments, err := template.ParseJSON([]byte(text))
		if _, ok := arguments.(*template.Dict); err != nil || !ok {
			return invalid("", "%s.tool_calls[%d].function.arguments: not a JSON object", at, i)
		}
		f, call := &template.Dict{}, &template.Dict{}
		f.Set("name", template.Str(c.Function.Name))
		f.Set("arguments", arguments)
		call.Set("id", template.Str(c.ID))
		call.Set("type", template.Str("function"))
		call.Set("function", f)
		list = append(list, call)
	}
	d.Set("tool_calls", template.NewList(list...))
	return nil
}

// contentText reads a text, or an array of parts that are all text.
func contentText(raw json.RawMessage, at string) (string, *apiError) {
	if null(raw) {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []map[string]json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return "", invalid("", "%s: want a text or an array of parts", at)
	}
	var texts []string
	for i, p := range parts {
		var kind, text string
		json.Unmarshal(p["type"], &kind) //nolint:errcheck // no text is no kind that is known
		key := "text"
		if kind == "refusal" {
			key = "refusal"
		}
		switch kind {
		case "text", "input_text", "output_text", "refusal":
			if err := json.Unmarshal(p[key], &text); err != nil {
				return "", invalid("", "%s[%d].%s: want a text", at, i, key)
			}
		default:
			return "", invalid("", "%s[%d]: parts of type %q are not supported, want text", at, i, kind)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), nil
}

// maxTools bounds the tools of a request.
const maxTools = 128

// toolSet is the tools of a request.
type toolSet struct {
	values []template.Value // for the template
	tools  []format.Tool
	params map[string]json.RawMessage // schemas by name
}

// add takes a function. raw is the tool as templates show it to the model.
func (s *toolSet) add(raw []byte, name string, parameters json.RawMessage) error {
	if name == "" || len(name) > 256 || strings.ContainsAny(name, "<>{}\"\n :=") {
		return fmt.Errorf("the name %q: want 1 to 256 letters, digits, points, underscores and hyphens", name)
	}
	if _, twice := s.params[name]; twice {
		return fmt.Errorf("two functions have the name %q", name)
	}
	v, err := template.ParseJSON(raw)
	if err != nil {
		return err
	}
	if null(parameters) {
		parameters = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	var schema struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(parameters, &schema); err != nil {
		return fmt.Errorf("the parameters of %q are no JSON schema of an object: %v", name, err)
	}
	t := format.Tool{Name: name, Texts: map[string]bool{}}
	for key, p := range schema.Properties {
		t.Texts[key] = p.Type == "string"
	}
	if s.params == nil {
		s.params = map[string]json.RawMessage{}
	}
	s.values, s.tools, s.params[name] = append(s.values, v), append(s.tools, t), parameters
	return nil
}

// tools reads the functions of a chat.
func (o *object) tools() *toolSet {
	var list []json.RawMessage
	s := &toolSet{}
	if o.get("tools", &list); len(list) > maxTools {
		o.fail("tools", "tools: %d, at most %d are taken", len(list), maxTools)
		return s
	}
	for i, raw := range list {
		var t tool
		err := decode(raw, &t)
		if err == nil && t.Type != "function" {
			err = fmt.Errorf("the type %q is not supported, want function", t.Type)
		}
		if err == nil {
			err = s.add(raw, t.Function.Name, t.Function.Parameters)
		}
		if err != nil {
			o.fail("tools", "tools[%d]: %v", i, err)
			return s
		}
	}
	return s
}
