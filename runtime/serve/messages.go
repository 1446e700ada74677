package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/template"
)

// messageParams is the table of /v1/messages.
var messageParams = []param{
	{name: "model", status: done, note: "default: the first file"},
	{name: "messages", status: done,
		note: "text, tool_use, tool_result, thinking; `is_error` of a result is not told to the model: say it in " +
			"its text"},
	{name: "system", status: done},
	{name: "max_tokens", status: done, note: "has to be given, as in Anthropic's API"},
	{name: "stream", status: done},
	{name: "stop_sequences", status: done, note: "up to 16"},
	{name: "temperature", status: done, note: "default: the file's"},
	{name: "top_p", status: done}, {name: "top_k", status: done}, {name: "min_p", status: done},
	{name: "seed", status: done},
	{name: "tools", status: done, note: "functions with an `input_schema`"},
	{name: "tool_choice", status: done, note: "auto, any, tool, none; `disable_parallel_tool_use`"},
	{name: "thinking", status: done,
		note: "enabled, disabled, adaptive; `budget_tokens` bounds the thoughts; `display` omitted leaves them out"},
	{name: "metadata", status: accepted},
	{name: "service_tier", status: accepted},
	{name: "cache_control", status: accepted, note: "every prefix is cached; in blocks and tools too"},
	{name: "container", status: refused}, {name: "context_management", status: refused},
	{name: "mcp_servers", status: refused}, {name: "output_config", status: refused},
	{name: "output_format", status: refused}, {name: "inference_geo", status: refused},
}

// serveMessages answers POST /v1/messages.
func (s *Server) serveMessages(w http.ResponseWriter, r *http.Request) error {
	o, l, release, err := s.open(w, r, messageParams)
	if err != nil {
		return err
	}
	defer release()
	if !o.has("max_tokens") {
		return invalid("max_tokens", "max_tokens is missing")
	}
	j, err := o.messageJob(l)
	if err != nil {
		return err
	}
	a := &message{job: j, id: newID("msg_"), model: modelName(r), seen: s.observe(r)}
	w.Header().Set(seedHeader, formatInt(j.sampling.Seed))
	if j.settings.stream {
		return a.streamTo(r.Context(), w)
	}
	err = a.run(r.Context(), func(u update) error {
		for _, p := range u.pieces {
			a.seen.piece()
			a.blocks.add(p)
		}
		a.end = u.end
		return nil
	}, func() error { return nil })
	if err != nil {
		return err
	}
	a.seen.usage(a.usageOf())
	writeJSON(w, http.StatusOK, a.body())
	return nil
}

// countParams is the table of /v1/messages/count_tokens.
var countParams = []param{
	{name: "model", status: done}, {name: "messages", status: done}, {name: "system", status: done},
	{name: "tools", status: done}, {name: "tool_choice", status: done}, {name: "thinking", status: done},
	{name: "cache_control", status: accepted},
}

// serveCount answers POST /v1/messages/count_tokens.
func (s *Server) serveCount(w http.ResponseWriter, r *http.Request) error {
	o, l, release, err := s.open(w, r, countParams)
	if err != nil {
		return err
	}
	defer release()
	j, err := o.messageJob(l)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"input_tokens": len(j.prompt)})
	return nil
}

// messageJob makes a job of a request.
func (o *object) messageJob(l *Loaded) (*job, error) {
	j := &job{loaded: l, parse: true, settings: o.settings(l.Text.Defaults)}
	o.limit(&j.settings, "max_tokens")
	o.get("stop_sequences", &j.stops)
	o.checkStops("stop_sequences", j.stops)
	c := conversation{messages: o.turns()}
	tools := o.inputTools()
	choice, parallel := o.anyChoice(tools)
	o.thoughts(l.Text, &c, j)
	if err := o.problem(); err != nil {
		return nil, err
	}
	return j, j.finishJob(c, tools, choice, nil, parallel)
}

// thoughts reads whether the model thinks, and how much.
func (o *object) thoughts(t *Text, c *conversation, j *job) {
	if !o.has("thinking") {
		return
	}
	var x struct {
		Type    string  `json:"type"`
		Budget  int     `json:"budget_tokens"`
		Display *string `json:"display"`
	}
	o.get("thinking", &x)
	switch {
	case x.Display == nil || *x.Display == "summarized": // a local model's thoughts need no summary
	case *x.Display == "omitted":
		j.hideThoughts = true
	default:
		o.fail("thinking", "thinking.display: %q, want summarized or omitted", *x.Display)
	}
	think := x.Type == "enabled"
	switch x.Type {
	case "adaptive":
		return
	case "disabled":
		if !t.reads(enableThinking) {
			return // it does not think
		}
	case "enabled":
		if !t.reads(enableThinking) || !t.format.Thinks() {
			o.fail("thinking", "thinking: the model's chat template knows of none")
		}
		if x.Budget < 1 || j.maxTokens > 0 && x.Budget >= j.maxTokens {
			o.fail("thinking", "thinking.budget_tokens: %d, want 1 or more, and less than max_tokens", x.Budget)
		}
		j.budget = x.Budget
	default:
		o.fail("thinking", "thinking.type: %q, want enabled, disabled or adaptive", x.Type)
	}
	c.think = &think
}

// contentBlock is a block of a message; which members it has depends on its type.
type contentBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   *bool           `json:"is_error"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Cache     json.RawMessage `json:"cache_control"`
	Citations json.RawMessage `json:"citations"`
	Caller    json.RawMessage `json:"caller"`
}

// readBlocks reads a text or an array of blocks.
func readBlocks(raw json.RawMessage) ([]contentBlock, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []contentBlock{{Type: "text", Text: text}}, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, fmt.Errorf("content: want a text or an array of blocks")
	}
	var out []contentBlock
	for i, raw := range list {
		var b contentBlock
		if err := decode(raw, &b); err != nil {
			return nil, fmt.Errorf("content[%d]: %w", i, err)
		}
		out = append(out, b)
	}
	return out, nil
}

// blockTexts joins blocks that are all text.
func blockTexts(raw json.RawMessage) (string, error) {
	if null(raw) {
		return "", nil
	}
	list, err := readBlocks(raw)
	if err != nil {
		return "", err
	}
	var texts []string
	for i, b := range list {
		if b.Type != "text" {
			return "", fmt.Errorf("content[%d]: blocks of type %q are not supported, want text", i, b.Type)
		}
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n"), nil
}

// turns reads system and messages as the template's values.
func (o *object) turns() []template.Value {
	var list []chatMessage
	if o.has("system") {
		text, err := blockTexts(o.fields["system"])
		if err != nil {
			o.fail("system", "system: %v", err)
		}
		list = append(list, chatMessage{Role: "system", Content: rawText(text)})
	}
	var messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if o.get("messages", &messages); len(messages) == 0 {
		o.fail("messages", "messages: it is missing or empty, want at least one")
	}
	for i, m := range messages {
		more, err := turn(m.Role, m.Content)
		if err != nil {
			o.fail("messages", "messages[%d]: %v", i, err)
			return nil
		}
		list = append(list, more...)
	}
	return o.templateValues("messages", list)
}

// turn makes messages of one of Anthropic's: results of tools are messages of their own.
func turn(role string, content json.RawMessage) ([]chatMessage, error) {
	if role != "user" && role != "assistant" {
		return nil, fmt.Errorf("role: %q, want user or assistant", role)
	}
	list, err := readBlocks(content)
	if err != nil {
		return nil, err
	}
	var out []chatMessage
	var texts []string
	m := chatMessage{Role: role}
	for i, b := range list {
		switch {
		case b.Type == "text":
			texts = append(texts, b.Text)
		case b.Type == "tool_result" && role == "user":
			text, err := blockTexts(b.Content)
			if err != nil {
				return nil, fmt.Errorf("content[%d]: %w", i, err)
			}
			out = append(out, chatMessage{Role: "tool", ToolCallID: b.ToolUseID, Content: rawText(text)})
		case b.Type == "tool_use" && role == "assistant":
			m.ToolCalls = append(m.ToolCalls, toolCall{ID: b.ID,
				Function: functionCall{Name: b.Name, Arguments: string(b.Input)}})
		case b.Type == "thinking" && role == "assistant":
			thought := b.Thinking
			m.ReasoningContent = &thought
		default:
			return nil, fmt.Errorf("content[%d]: blocks of type %q are not supported in a message of role %s", i,
				b.Type, role)
		}
	}
	if len(texts) > 0 || len(out) == 0 {
		m.Content = rawText(strings.Join(texts, "\n"))
		out = append(out, m)
	}
	return out, nil
}

// inputTools reads the functions of a request.
func (o *object) inputTools() *toolSet {
	var list []json.RawMessage
	s := &toolSet{}
	if o.get("tools", &list); len(list) > maxTools {
		o.fail("tools", "tools: %d, at most %d are taken", len(list), maxTools)
		return s
	}
	for i, raw := range list {
		var t struct {
			Type        *string         `json:"type"`
			Name        string          `json:"name"`
			Description *string         `json:"description"`
			Schema      json.RawMessage `json:"input_schema"`
			Strict      *bool           `json:"strict"`
			Cache       json.RawMessage `json:"cache_control"`
			Eager       *bool           `json:"eager_input_streaming"`
		}
		err := decode(raw, &t)
		if err == nil && t.Type != nil && *t.Type != "custom" {
			err = fmt.Errorf("the type %q is not supported, want custom", *t.Type)
		}
		if err == nil {
			err = s.add(functionTool(t.Name, t.Description, t.Schema), t.Name, t.Schema)
		}
		if err != nil {
			o.fail("tools", "tools[%d]: %v", i, err)
			return s
		}
	}
	return s
}

// anyChoice reads tool_choice.
func (o *object) anyChoice(tools *toolSet) (choice toolChoice, parallel bool) {
	if !o.has("tool_choice") {
		return toolChoice{}, true
	}
	var x struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Disabled bool   `json:"disable_parallel_tool_use"`
	}
	o.get("tool_choice", &x)
	word, ok := map[string]string{"auto": "auto", "none": "none", "any": "required", "tool": "named"}[x.Type]
	if !ok {
		o.fail("tool_choice", "tool_choice.type: %q, want auto, any, tool or none", x.Type)
	}
	return o.choiceOf("tool_choice", word, x.Name, tools), !x.Disabled
}

// message makes the answer of /v1/messages.
type message struct {
	*job
	id, model string
	seen      *observer
	blocks    blocks
	cached    int // tokens of the prompt, known with the first part of the answer
	end       *finish
	out       *events
	err       error
}

func (a *message) usageOf() usage {
	u := usage{prompt: len(a.prompt), cached: a.cached}
	if a.end != nil {
		u.cached, u.answer, u.thought = a.end.cached, a.end.count, a.end.thought
	}
	return u
}

// counts writes the usage: what was cached is not part of input_tokens.
func (a *message) counts() map[string]any {
	u := a.usageOf()
	return map[string]any{"input_tokens": u.prompt - u.cached, "cache_creation_input_tokens": 0,
		"cache_read_input_tokens": u.cached, "output_tokens": u.answer}
}

// reason returns the stop_reason, and the stop sequence that was found.
func (a *message) reason() (reason, sequence any) {
	switch {
	case a.end == nil:
		return nil, nil
	case a.end.stop != "":
		return "stop_sequence", a.end.stop
	case a.end.reason == "length":
		return "max_tokens", nil
	case a.end.reason == "tool_calls":
		return "tool_use", nil
	}
	return "end_turn", nil
}

func (a *message) body() map[string]any {
	content := []any{}
	for _, b := range a.blocks.list {
		content = append(content, a.block(b))
	}
	reason, sequence := a.reason()
	return map[string]any{"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content,
		"stop_reason": reason, "stop_sequence": sequence, "usage": a.counts()}
}

// block writes a block that is whole.
func (a *message) block(b *block) map[string]any {
	switch b.kind {
	case format.Reasoning:
		text := b.text.String()
		if a.hideThoughts {
			text = ""
		}
		return map[string]any{"type": "thinking", "thinking": text, "signature": ""}
	case format.Call:
		input := json.RawMessage(b.text.String())
		if !json.Valid(input) {
			input = rawText(b.text.String())
		}
		return map[string]any{"type": "tool_use", "id": b.callID, "name": b.name, "input": input}
	}
	return map[string]any{"type": "text", "text": b.text.String()}
}

// streamTo answers with server-sent events.
func (a *message) streamTo(ctx context.Context, w http.ResponseWriter) error {
	a.out = &events{w: w}
	err := a.run(ctx, func(u update) error {
		if a.cached = u.cached; !a.out.begun {
			a.send("message_start", map[string]any{"message": a.body()})
		}
		for _, p := range u.pieces {
			a.seen.piece()
			a.piece(p)
		}
		if a.end = u.end; u.end != nil {
			a.close()
		}
		return a.err
	}, func() error {
		if a.out.begun {
			a.send("ping", map[string]any{})
		}
		return a.err
	})
	if err != nil {
		return a.out.fail(err, true)
	}
	a.seen.usage(a.usageOf())
	reason, sequence := a.reason()
	a.send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": reason, "stop_sequence": sequence},
		"usage": a.counts()})
	a.send("message_stop", map[string]any{})
	return a.err
}

// send writes one event, unless one before could not be written.
func (a *message) send(name string, m map[string]any) {
	if m["type"] = name; a.err == nil {
		a.err = a.out.send(name, m)
	}
}

// piece writes the events of a piece.
func (a *message) piece(p piece) {
	if !a.blocks.goesOn(p) {
		a.close()
	}
	b, opened := a.blocks.add(p)
	at := len(a.blocks.list) - 1
	if opened {
		empty := &block{kind: b.kind, id: b.id, callID: b.callID, name: b.name}
		if b.kind == format.Call {
			empty.text.WriteString("{}")
		}
		a.send("content_block_start", map[string]any{"index": at, "content_block": a.block(empty)})
	}
	var delta map[string]any
	switch p.Kind {
	case format.Content:
		delta = map[string]any{"type": "text_delta", "text": p.Text}
	case format.Reasoning:
		if a.hideThoughts {
			return
		}
		delta = map[string]any{"type": "thinking_delta", "thinking": p.Text}
	case format.Arguments:
		delta = map[string]any{"type": "input_json_delta", "partial_json": p.Text}
	default:
		return
	}
	a.send("content_block_delta", map[string]any{"index": at, "delta": delta})
}

// close writes the end of the last block.
func (a *message) close() {
	at := len(a.blocks.list) - 1
	if at < 0 {
		return
	}
	if a.blocks.list[at].kind == format.Reasoning {
		a.send("content_block_delta", map[string]any{"index": at, "delta": map[string]any{"type": "signature_delta",
			"signature": ""}})
	}
	a.send("content_block_stop", map[string]any{"index": at})
}
