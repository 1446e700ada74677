package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/format"
)

// responseParams is the table of /v1/responses.
var responseParams = join([]param{
	{name: "model", status: done, note: "default: the first file"},
	{name: "input", status: done, note: "a text, or messages, calls, their outputs and thoughts"},
	{name: "instructions", status: done, note: "a system message in front"},
	{name: "stream", status: done},
	{name: "stream_options", status: done, note: "`include_obfuscation` false"},
	{name: "max_output_tokens", status: done},
	{name: "text", status: done, note: "`format`: text, json_object, json_schema; `verbosity` medium"},
	{name: "tools", status: done, note: "functions, as for chats"},
	{name: "tool_choice", status: done, note: "auto, none, required, or a function"},
	{name: "parallel_tool_calls", status: done},
	{name: "reasoning", status: done, note: "`effort`; `summary` auto"},
	{name: "top_logprobs", status: done, note: "0 to 20, with `include`"},
	{name: "include", status: done, note: "`message.output_text.logprobs`; `reasoning.encrypted_content` " +
		"gives nothing: " +
		"thoughts are open"},
	{name: "chat_template_kwargs", status: done},
	{name: "grammar", status: done}, {name: "regex", status: done},
	{name: "truncation", status: neutral, values: []string{`"disabled"`}},
	{name: "background", status: neutral, values: []string{"false"}},
	{name: "previous_response_id", status: refused, note: "nothing is stored; send the conversation"},
	{name: "conversation", status: refused, note: "as above"},
	{name: "prompt", status: refused},
	{name: "max_tool_calls", status: refused},
}, samplingParams, acceptedParams)

// serveResponses answers POST /v1/responses.
func (s *Server) serveResponses(w http.ResponseWriter, r *http.Request) error {
	o, l, release, err := s.open(w, r, responseParams)
	if err != nil {
		return err
	}
	defer release()
	a := &response{id: newID("resp_"), created: time.Now().Unix(), model: modelName(r), object: o, seen: s.observe(r)}
	if a.job, err = o.responseJob(l); err != nil {
		return err
	}
	w.Header().Set(seedHeader, formatInt(a.sampling.Seed))
	if a.job.settings.stream {
		return a.streamTo(r.Context(), w)
	}
	err = a.run(r.Context(), a.take, func() error { return nil })
	if err != nil {
		return err
	}
	a.seen.usage(a.usageOf())
	writeJSON(w, http.StatusOK, a.body(a.status()))
	return nil
}

// responseJob makes a job of a request.
func (o *object) responseJob(l *Loaded) (*job, error) {
	j := &job{loaded: l, parse: true, settings: o.settings(l.Text.Defaults)}
	o.limit(&j.settings, "max_output_tokens")
	c := conversation{messages: o.inputItems()}
	tools := o.flatTools()
	choice := o.toolChoice(tools)
	o.thinking(l.Text, &c)
	o.reasoning(l.Text, &c)
	o.includes(j)
	f := o.textForm()
	parallel := true
	o.get("parallel_tool_calls", &parallel)
	if err := o.problem(); err != nil {
		return nil, err
	}
	return j, j.finishJob(c, tools, choice, f, parallel)
}

// reasoning reads the effort.
func (o *object) reasoning(t *Text, c *conversation) {
	var r struct {
		Effort          *string `json:"effort"`
		Summary         *string `json:"summary"`
		GenerateSummary *string `json:"generate_summary"`
	}
	o.get("reasoning", &r)
	if r.Summary != nil && *r.Summary != "auto" || r.GenerateSummary != nil {
		o.fail("reasoning", "reasoning.summary: thoughts are given whole; use auto or leave it out")
	}
	if r.Effort != nil {
		o.effort("reasoning", *r.Effort, t, c)
	}
}

// includes reads what an answer has to contain in addition to its text.
func (o *object) includes(j *job) {
	var list []string
	o.get("include", &list)
	top := 0
	if o.get("top_logprobs", &top); top < 0 || top > maxLogprobs {
		o.fail("top_logprobs", "top_logprobs: %d, want 0 to %d", top, maxLogprobs)
	}
	for _, x := range list {
		switch x {
		case "message.output_text.logprobs":
			j.logprobs = top
		case "reasoning.encrypted_content":
		default:
			o.fail("include", "include: %q is not supported", x)
		}
	}
	if top > 0 && j.logprobs < 0 {
		o.fail("top_logprobs", "top_logprobs: only with include [\"message.output_text.logprobs\"]")
	}
}

// textForm reads the format of the text.
func (o *object) textForm() *form {
	f := o.form()
	var text struct {
		Format *struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"schema"`
			Strict      *bool           `json:"strict"`
		} `json:"format"`
		Verbosity *string `json:"verbosity"`
	}
	o.get("text", &text)
	if text.Verbosity != nil && *text.Verbosity != "medium" {
		o.fail("text", "text.verbosity: %q is not supported, want medium", *text.Verbosity)
	}
	if text.Format == nil || text.Format.Type == "text" {
		return f
	}
	if f != nil {
		o.fail("text", "text.format and %s: give one of them", f.param)
	}
	switch text.Format.Type {
	case "json_object":
		return &form{"text", constrain.Source{Kind: constrain.JSONObject}}
	case "json_schema":
		return &form{"text", constrain.Source{Kind: constrain.JSONSchema, Text: string(text.Format.Schema)}}
	}
	o.fail("text", "text.format.type: %q, want text, json_object or json_schema", text.Format.Type)
	return nil
}

// response makes the answer of /v1/responses.
type response struct {
	*job
	id, model string
	created   int64
	object    *object
	seen      *observer
	blocks    blocks
	end       *finish
	out       *events
	number    int // of events
	err       error
}

func (a *response) take(u update) error {
	for _, p := range u.pieces {
		a.seen.piece()
		a.blocks.add(p)
	}
	a.end = u.end
	return nil
}

func (a *response) status() string {
	switch {
	case a.end == nil:
		return "in_progress"
	case a.end.reason == "length":
		return "incomplete"
	}
	return "completed"
}

func (a *response) usageOf() usage {
	u := usage{prompt: len(a.prompt)}
	if a.end != nil {
		u.cached, u.answer, u.thought = a.end.cached, a.end.count, a.end.thought
	}
	return u
}

// given returns a parameter of the request, or fallback.
func (a *response) given(name string, fallback any) any {
	if raw := a.object.fields[name]; raw != nil {
		return raw
	}
	return fallback
}

// body returns the response object.
func (a *response) body(status string) map[string]any {
	output := []any{}
	for i, b := range a.blocks.list {
		state := "completed"
		if i == len(a.blocks.list)-1 {
			state = status
		}
		output = append(output, a.item(b, state))
	}
	m := map[string]any{"id": a.id, "object": "response", "created_at": a.created, "status": status, "error": nil,
		"incomplete_details": nil, "model": a.model, "output": output, "store": false, "previous_response_id": nil,
		"instructions": a.given("instructions", nil), "max_output_tokens": a.given("max_output_tokens", nil),
		"metadata": a.given("metadata", map[string]any{}), "parallel_tool_calls": a.given("parallel_tool_calls", true),
		"reasoning":   a.given("reasoning", map[string]any{"effort": nil, "summary": nil}),
		"temperature": a.sampling.Temperature,
		"top_p":       a.sampling.TopP, "text": a.given("text",
			map[string]any{"format": map[string]any{"type": "text"}}),
		"tool_choice": a.given("tool_choice", "auto"), "tools": a.given("tools", []any{}), "truncation": "disabled",
		"background": false, "top_logprobs": a.given("top_logprobs", 0)}
	for _, name := range []string{"user", "safety_identifier", "prompt_cache_key"} { // texts, not null
		if a.object.has(name) {
			m[name] = a.object.fields[name]
		}
	}
	if status == "incomplete" {
		m["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	if a.end != nil {
		u := a.usageOf()
		written := u.prompt - u.cached
		if a.loaded.Runner.Limits().NoCopies {
			written = 0
		}
		m["usage"] = map[string]any{"input_tokens": u.prompt, "output_tokens": u.answer,
			"total_tokens":          u.prompt + u.answer,
			"input_tokens_details":  map[string]any{"cached_tokens": u.cached, "cache_write_tokens": written},
			"output_tokens_details": map[string]any{"reasoning_tokens": u.thought}}
	}
	return m
}

// item returns a block as an output item.
func (a *response) item(b *block, status string) map[string]any {
	m := map[string]any{"id": b.id, "status": status}
	switch b.kind {
	case format.Call:
		m["type"], m["call_id"], m["name"], m["arguments"] = "function_call", b.callID, b.name, b.text.String()
	case format.Reasoning:
		m["type"], m["summary"], m["content"] = "reasoning", []any{}, []any{a.part(b)}
	default:
		m["type"], m["role"], m["content"] = "message", "assistant", []any{a.part(b)}
	}
	return m
}

// part returns the content of a block.
func (a *response) part(b *block) map[string]any {
	if b.kind == format.Reasoning {
		return map[string]any{"type": "reasoning_text", "text": b.text.String()}
	}
	return map[string]any{"type": "output_text", "text": b.text.String(), "annotations": []any{},
		"logprobs": orEmpty(a.chatLogprobs(b.tokens))}
}

// streamTo answers with server-sent events.
func (a *response) streamTo(ctx context.Context, w http.ResponseWriter) error {
	a.out = &events{w: w}
	begin := func() {
		if a.number == 0 {
			a.send("response.created", map[string]any{"response": a.body("in_progress")})
			a.send("response.in_progress", map[string]any{"response": a.body("in_progress")})
		}
	}
	err := a.run(ctx, func(u update) error {
		begin()
		for _, p := range u.pieces {
			a.seen.piece()
			a.piece(p)
		}
		if a.end = u.end; u.end != nil {
			a.close(a.status())
		}
		return a.err
	}, a.out.idle)
	if err != nil {
		if !a.out.begun {
			return err
		}
		e := errorOf(err)
		a.send("error", map[string]any{"code": e.code, "message": e.message, "param": nil})
		return &toldError{err}
	}
	a.seen.usage(a.usageOf())
	name := "response.completed"
	if a.status() == "incomplete" {
		name = "response.incomplete"
	}
	a.send(name, map[string]any{"response": a.body(a.status())})
	return a.err
}

// send writes one event, unless one before could not be written.
func (a *response) send(name string, m map[string]any) {
	m["type"], m["sequence_number"] = name, a.number
	a.number++
	if a.err == nil {
		a.err = a.out.send(name, m)
	}
}

// piece writes the events of a piece.
func (a *response) piece(p piece) {
	if !a.blocks.goesOn(p) {
		a.close("completed")
	}
	b, opened := a.blocks.add(p)
	at := len(a.blocks.list) - 1
	if opened {
		item := a.item(b, "in_progress")
		if b.kind != format.Call {
			item["content"] = []any{}
		}
		a.send("response.output_item.added", map[string]any{"output_index": at, "item": item})
		if b.kind != format.Call {
			part := a.part(b)
			part["text"] = ""
			a.send("response.content_part.added",
				map[string]any{"item_id": b.id, "output_index": at, "content_index": 0,
					"part": part})
		}
	}
	m := map[string]any{"item_id": b.id, "output_index": at, "delta": p.Text}
	switch p.Kind {
	case format.Content:
		m["content_index"], m["logprobs"] = 0, orEmpty(a.chatLogprobs(p.tokens))
		a.send("response.output_text.delta", m)
	case format.Reasoning:
		m["content_index"] = 0
		a.send("response.reasoning_text.delta", m)
	case format.Arguments:
		a.send("response.function_call_arguments.delta", m)
	}
}

// close writes the end of the last block.
func (a *response) close(status string) {
	at := len(a.blocks.list) - 1
	if at < 0 {
		return
	}
	b := a.blocks.list[at]
	m := map[string]any{"item_id": b.id, "output_index": at}
	if b.kind == format.Call {
		m["arguments"], m["name"] = b.text.String(), b.name
		a.send("response.function_call_arguments.done", m)
	} else {
		m["content_index"], m["text"] = 0, b.text.String()
		name := "response.reasoning_text.done"
		if b.kind == format.Content {
			name, m["logprobs"] = "response.output_text.done", orEmpty(a.chatLogprobs(b.tokens))
		}
		a.send(name, m)
		a.send("response.content_part.done", map[string]any{"item_id": b.id, "output_index": at, "content_index": 0,
			"part": a.part(b)})
	}
	a.send("response.output_item.done", map[string]any{"output_index": at, "item": a.item(b, status)})
}
