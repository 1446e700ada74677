package serve

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/speculate"
	"github.com/etc-ml/etc/runtime/template"
)

// serveChat answers POST /v1/chat/completions.
func (s *Server) serveChat(w http.ResponseWriter, r *http.Request) error {
	o, loaded, release, err := s.open(w, r, chatParams)
	if err != nil {
		return err
	}
	defer release()
	j, err := o.chatJob(r.Context(), loaded)
	if err != nil {
		return err
	}
	a := &chatAnswer{job: j, id: newID("chatcmpl-"), created: time.Now().Unix(),
		model: modelName(r), system: s.fingerprint,
		stored: o.has("store")}
	w.Header().Set(seedHeader, formatInt(j.sampling.Seed))
	if j.stream {
		return a.stream(r.Context(), w, s.observe(r))
	}
	return a.whole(r.Context(), w, s.observe(r))
}

// chatJob makes a job of a request.
func (o *object) chatJob(_ context.Context, l *Loaded) (*job, error) {
	j := &job{loaded: l, parse: true, settings: o.settings(l.Text.Defaults)}
	o.limit(&j.settings, "max_completion_tokens", "max_tokens")
	j.logprobs = o.logprobs()
	c := conversation{messages: o.messages()}
	tools := o.tools()
	choice := o.toolChoice(tools)
	o.thinking(l.Text, &c)
	f := o.form()
	parallel := true
	o.get("parallel_tool_calls", &parallel)
	if err := o.problem(); err != nil {
		return nil, err
	}
	return j, j.finishJob(c, tools, choice, f, parallel)
}

// finishJob makes the prompt and the constraint of a job whose parameters were read.
func (j *job) finishJob(c conversation, tools *toolSet, choice toolChoice, f *form, parallel bool) error {
	t := j.loaded.Text
	if err := j.setTools(&c, tools, choice, parallel); err != nil {
		return err
	}
	if choice.must && f != nil {
		return invalid("tool_choice", "tool_choice: a call is asked for, and %s holds the text to a form; give "+
			"one of them",
			f.param)
	}
	j.mayThink = t.reads(enableThinking) && (c.think == nil || *c.think)
	var err error
	if j.text, err = j.loaded.compile(f); err != nil {
		return err
	}
	j.prompt, j.history, err = t.prompt(c)
	return err
}

// logprobs reads how many are asked for.
func (o *object) logprobs() int {
	on, top := false, 0
	o.get("logprobs", &on)
	o.get("top_logprobs", &top)
	switch {
	case o.has("top_logprobs") && !on:
		o.fail("top_logprobs", "top_logprobs: only with logprobs")
	case top < 0 || top > maxLogprobs:
		o.fail("top_logprobs", "top_logprobs: %d, want 0 to %d", top, maxLogprobs)
	}
	if !on {
		return -1
	}
	return top
}

// thinking reads what chooses whether the model thinks, and other variables of the template.
func (o *object) thinking(t *Text, c *conversation) {
	if o.has("chat_template_kwargs") {
		v, err := template.ParseJSON(o.fields["chat_template_kwargs"])
		d, ok := v.(*template.Dict)
		if err != nil || !ok {
			o.fail("chat_template_kwargs", "chat_template_kwargs: want an object")
			return
		}
		if err := t.checkExtra(d); err != nil && o.err == nil {
			o.err = errorOf(err)
		}
		c.extra = d
	}
	if !o.has("reasoning_effort") {
		return
	}
	var effort string
	o.get("reasoning_effort", &effort)
	o.effort("reasoning_effort", effort, t, c)
}

// effort chooses whether the model thinks.
func (o *object) effort(param, effort string, t *Text, c *conversation) {
	if !slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh"}, effort) {
		o.fail(param, "%s: %q, want none, minimal, low, medium, high or xhigh", param, effort)
		return
	}
	think := effort != "none"
	switch {
	case t.reads("reasoning_effort"):
		if c.extra == nil {
			c.extra = &template.Dict{}
		}
		c.extra.Set("reasoning_effort", template.Str(effort))
	case t.reads(enableThinking):
		c.think = &think
	case think:
		o.fail(param, "%s: the model's chat template knows of no thinking", param)
	}
}

// chatAnswer makes the answers of a chat.
type chatAnswer struct {
	*job
	id, model, system string
	created           int64
	stored            bool
	choices           []*chatChoice
}

// chatChoice gathers a choice.
type chatChoice struct {
	text, thought strings.Builder
	calls         []toolCall
	logprobs      []chatLogprob
	begun         bool
	end           *finish
}

func (a *chatAnswer) begin() {
	for range a.n {
		a.choices = append(a.choices, &chatChoice{})
	}
}

// add gathers a piece and gives the delta of it.
func (c *chatChoice) add(p piece) map[string]any {
	switch p.Kind {
	case format.Reasoning:
		c.thought.WriteString(p.Text)
		return map[string]any{"reasoning_content": p.Text}
	case format.Call:
		index := p.Index
		c.calls = append(c.calls, toolCall{ID: newID("call_"), Type: "function", Function: functionCall{Name: p.Name}})
		call := c.calls[index]
		call.Index = &index
		return map[string]any{"tool_calls": []toolCall{call}}
	case format.Arguments:
		index := p.Index
		c.calls[index].Function.Arguments += p.Text
		return map[string]any{"tool_calls": []toolCall{{Index: &index, Function: functionCall{Arguments: p.Text}}}}
	}
	c.text.WriteString(p.Text)
	return map[string]any{"content": p.Text}
}

// whole answers with one object.
func (a *chatAnswer) whole(ctx context.Context, w http.ResponseWriter, seen *observer) error {
	a.begin()
	err := a.run(ctx, func(u update) error {
		c := a.choices[u.choice]
		for _, p := range u.pieces {
			seen.piece()
			c.add(p)
			c.logprobs = append(c.logprobs, a.chatLogprobs(p.tokens)...)
		}
		c.end = u.end
		return nil
	}, func() error { return nil })
	if err != nil {
		return err
	}
	var choices []any
	for i, c := range a.choices {
		choices = append(choices, a.choice(i, c))
	}
	seen.usage(a.usageOf())
	body := map[string]any{"id": a.id, "object": "chat.completion", "created": a.created, "model": a.model,
		"system_fingerprint": a.system, "choices": choices, "usage": a.usageOf().chat()}
	if a.stored {
		body["store"] = false
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

// choice returns a choice of a whole answer.
func (a *chatAnswer) choice(i int, c *chatChoice) any {
	m := map[string]any{"role": "assistant", "content": c.text.String(), "refusal": nil}
	if c.thought.Len() > 0 {
		m["reasoning_content"] = c.thought.String()
	}
	if len(c.calls) > 0 {
		if m["tool_calls"] = c.calls; c.text.Len() == 0 {
			m["content"] = nil
		}
	}
	var logprobs any
	if a.logprobs >= 0 {
		logprobs = map[string]any{"content": orEmpty(c.logprobs), "refusal": nil}
	}
	return map[string]any{"index": i, "message": m, "logprobs": logprobs, "finish_reason": c.end.reason}
}

// stream answers with server-sent events.
func (a *chatAnswer) stream(ctx context.Context, w http.ResponseWriter, seen *observer) error {
	a.begin()
	out := &events{w: w}
	chunk := func(choices []any) map[string]any {
		m := map[string]any{"id": a.id, "object": "chat.completion.chunk", "created": a.created, "model": a.model,
			"system_fingerprint": a.system, "choices": choices}
		if a.usage {
			m["usage"] = nil
		}
		if a.stored {
			m["store"] = false
		}
		return m
	}
	one := func(i int, delta any, logprobs, reason any) error {
		return out.send("", chunk([]any{map[string]any{"index": i, "delta": delta, "logprobs": logprobs,
			"finish_reason": reason}}))
	}
	err := a.run(ctx, func(u update) error {
		c := a.choices[u.choice]
		if !c.begun {
			c.begun = true
			if err := one(u.choice, map[string]any{"role": "assistant", "content": ""}, nil, nil); err != nil {
				return err
			}
		}
		for _, p := range u.pieces {
			seen.piece()
			var logprobs any
			if a.logprobs >= 0 && p.Kind == format.Content {
				logprobs = map[string]any{"content": orEmpty(a.chatLogprobs(p.tokens)), "refusal": nil}
			}
			if err := one(u.choice, c.add(p), logprobs, nil); err != nil {
				return err
			}
		}
		if c.end = u.end; u.end != nil {
			return one(u.choice, map[string]any{}, nil, u.end.reason)
		}
		return nil
	}, out.idle)
	if err != nil {
		return out.fail(err, false)
	}
	u := a.usageOf()
	seen.usage(u)
	if a.usage {
		m := chunk([]any{})
		m["usage"] = u.chat()
		if err := out.send("", m); err != nil {
			return err
		}
	}
	return out.done()
}

// fail tells the error of a stream that has begun; before, it is an answer of its own.
func (s *events) fail(err error, anthropic bool) error {
	if !s.begun {
		return err
	}
	name := ""
	if anthropic {
		name = "error"
	}
	e := errorOf(err)
	if sent := s.send(name, e.body(anthropic)); sent != nil {
		return sent
	}
	return &toldError{e}
}

// toldError is an error that the client was told in a stream.
type toldError struct{ error }

func (e *toldError) Unwrap() error { return e.error }

// usage counts the tokens of a request.
type usage struct {
	prompt, cached, answer, thought int
	drafts                          speculate.Totals
}

func (a *chatAnswer) usageOf() usage {
	u := usage{prompt: len(a.prompt)}
	for i, c := range a.choices {
		if c.end == nil {
			continue
		}
		if i == 0 {
			u.cached = c.end.cached
		}
		u.answer += c.end.count
		u.thought += c.end.thought
		u.drafts.Add(c.end.end.Drafts)
	}
	return u
}

// chat returns the usage as OpenAI's chat completions write it.
func (u usage) chat() any {
	return map[string]any{"prompt_tokens": u.prompt, "completion_tokens": u.answer, "total_tokens": u.prompt + u.answer,
		"prompt_tokens_details":     map[string]any{"cached_tokens": u.cached},
		"completion_tokens_details": u.details()}
}

// details returns the details of the answer's token count. Drafts are included if there were any.
func (u usage) details() map[string]any {
	out := map[string]any{"reasoning_tokens": u.thought}
	if d := u.drafts; d.Drafted > 0 {
		out["accepted_prediction_tokens"], out["rejected_prediction_tokens"] = d.Accepted, d.Drafted-d.Accepted
	}
	return out
}

// chatLogprob is a token with its log-probability.
type chatLogprob struct {
	Token   string         `json:"token"`
	Logprob float32        `json:"logprob"`
	Bytes   []int          `json:"bytes"`
	Top     *[]chatLogprob `json:"top_logprobs,omitempty"`
}

// chatLogprobs writes tokens with their log-probabilities.
func (j *job) chatLogprobs(tokens []batch.Token) []chatLogprob {
	var out []chatLogprob
	for _, t := range tokens {
		l := j.logprob(t.ID, t.Logprob)
		top := []chatLogprob{}
		for _, x := range t.Top {
			top = append(top, j.logprob(x.ID, x.Logprob))
		}
		l.Top = &top
		out = append(out, l)
	}
	return out
}

func (j *job) logprob(id int, p float32) chatLogprob {
	b := j.loaded.Text.Tokenizer.TokenBytes(id)
	if b == nil { // a special token
		name, _ := j.loaded.Text.Tokenizer.IDToToken(id)
		b = []byte(name)
	}
	l := chatLogprob{Token: strings.ToValidUTF8(string(b), "\uFFFD"), Logprob: max(p, -9999),
		Bytes: make([]int, len(b))}
	for i, x := range b {
		l.Bytes[i] = int(x)
	}
	return l
}

// orEmpty makes an empty array of none.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
