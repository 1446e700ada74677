package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/etc-ml/etc/runtime/batch"
)

// completionParams is the table of /v1/completions.
var completionParams = join([]param{
	{name: "model", status: done, note: "default: the first file"},
	{name: "prompt", status: done, note: "a text, an array of texts, token ids, or an array of those; names " +
		"of special " +
		"tokens are parsed"},
	{name: "stream", status: done},
	{name: "stream_options", status: done, note: "`include_usage`"},
	{name: "n", status: done, note: "1 to 64, of each prompt"},
	{name: "stop", status: done, note: "a text or up to 16"},
	{name: "max_tokens", status: done, note: "default 16, as in OpenAI's API"},
	{name: "logprobs", status: done, note: "0 to 5"},
	{name: "echo", status: neutral, values: []string{"false"}},
	{name: "best_of", status: neutral, values: []string{"1"}},
	{name: "suffix", status: neutral, values: []string{`""`}},
	{name: "response_format", status: done, note: "as for chats"},
	{name: "grammar", status: done, note: "GBNF"},
	{name: "regex", status: done},
}, samplingParams, acceptedParams)

// maxPrompts bounds the prompts of one request.
const maxPrompts = 32

// serveCompletions answers POST /v1/completions.
func (s *Server) serveCompletions(w http.ResponseWriter, r *http.Request) error {
	o, l, release, err := s.open(w, r, completionParams)
	if err != nil {
		return err
	}
	defer release()
	base := job{loaded: l, settings: o.settings(l.Text.Defaults)}
	base.maxTokens = 16
	o.limit(&base.settings, "max_tokens")
	if o.has("logprobs") {
		if o.get("logprobs", &base.logprobs); base.logprobs < 0 || base.logprobs > 5 {
			o.fail("logprobs", "logprobs: %d, want 0 to 5", base.logprobs)
		}
	}
	prompts := o.prompts(l.Text)
	f := o.form()
	if err := o.problem(); err != nil {
		return err
	}
	if base.text, err = l.compile(f); err != nil {
		return err
	}
	a := &completion{id: newID("cmpl-"), created: time.Now().Unix(), model: modelName(r),
		system: s.fingerprint, base: &base, stored: o.has("store"),
		seen: s.observe(r)}
	for _, p := range prompts {
		j := base
		j.prompt = p
		a.jobs = append(a.jobs, &j)
	}
	w.Header().Set(seedHeader, formatInt(base.sampling.Seed))
	if base.stream {
		return a.stream(r.Context(), w)
	}
	return a.whole(r.Context(), w)
}

// prompts reads one or more prompts, as texts or tokens.
func (o *object) prompts(t *Text) [][]int {
	raw := o.fields["prompt"]
	if raw == nil {
		o.fail("prompt", "prompt is missing")
		return nil
	}
	one, err := promptTokens(raw, t)
	if err == nil {
		return [][]int{one}
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 || len(list) > maxPrompts {
		o.fail("prompt", "prompt: want a text, token ids, or an array of 1 to %d of these", maxPrompts)
		return nil
	}
	var out [][]int
	for i, raw := range list {
		tokens, err := promptTokens(raw, t)
		if err != nil {
			o.fail("prompt", "prompt[%d]: %v", i, err)
		}
		out = append(out, tokens)
	}
	return out
}

// promptTokens reads a text or an array of token ids.
func promptTokens(raw json.RawMessage, t *Text) ([]int, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if tokens := t.raw(text); len(tokens) > 0 {
			return tokens, nil
		}
		return nil, fmt.Errorf("it is empty")
	}
	var ids []int
	if json.Unmarshal(raw, &ids) == nil && len(ids) > 0 {
		return ids, nil
	}
	return nil, fmt.Errorf("want a text or token ids")
}

// completion makes the answers of /v1/completions: the choices of each prompt, one prompt after the other.
type completion struct {
	id, model, system string
	created           int64
	stored            bool // the request asks for it
	base              *job
	jobs              []*job
	seen              *observer
	total             usage
}

// each runs the jobs. emit gets the number of a choice among those of all prompts.
func (a *completion) each(ctx context.Context, emit func(i int, u update) error, idle func() error) error {
	for k, j := range a.jobs {
		a.total.prompt += len(j.prompt)
		err := j.run(ctx, func(u update) error {
			if u.end != nil {
				a.total.answer += u.end.count
				a.total.drafts.Add(u.end.end.Drafts)
				if u.choice == 0 {
					a.total.cached += u.end.cached
				}
			}
			for range u.pieces {
				a.seen.piece()
			}
			return emit(k*j.n+u.choice, u)
		}, idle)
		if err != nil {
			return err
		}
	}
	a.seen.usage(a.total)
	return nil
}

// textLogprobs are log-probabilities as /v1/completions writes them.
type textLogprobs struct {
	Offsets []int                `json:"text_offset"`
	Values  []float32            `json:"token_logprobs"`
	Tokens  []string             `json:"tokens"`
	Top     []map[string]float32 `json:"top_logprobs"`
}

// add appends tokens. at is the length of the text before them, in characters.
func (l *textLogprobs) add(j *job, tokens []batch.Token, at int) {
	for _, t := range tokens {
		x := j.logprob(t.ID, t.Logprob)
		top := map[string]float32{}
		for _, c := range t.Top {
			y := j.logprob(c.ID, c.Logprob)
			top[y.Token] = y.Logprob
		}
		l.Offsets, l.Values = append(l.Offsets, at), append(l.Values, x.Logprob)
		l.Tokens, l.Top = append(l.Tokens, x.Token), append(l.Top, top)
		at += len([]rune(x.Token))
	}
}

func emptyLogprobs() *textLogprobs {
	return &textLogprobs{[]int{}, []float32{}, []string{}, []map[string]float32{}}
}

// body returns an answer, or a part of one, without its usage.
func (a *completion) body(choices []any) map[string]any {
	m := map[string]any{"id": a.id, "object": "text_completion", "created": a.created, "model": a.model,
		"system_fingerprint": a.system, "choices": choices}
	if a.stored {
		m["store"] = false
	}
	return m
}

func (a *completion) whole(ctx context.Context, w http.ResponseWriter) error {
	n := len(a.jobs) * a.base.n
	texts, ends, logprobs := make([]strings.Builder, n), make([]*finish, n), make([]*textLogprobs, n)
	err := a.each(ctx, func(i int, u update) error {
		for _, p := range u.pieces {
			if a.base.logprobs >= 0 {
				if logprobs[i] == nil {
					logprobs[i] = emptyLogprobs()
				}
				logprobs[i].add(a.base, p.tokens, len([]rune(texts[i].String())))
			}
			texts[i].WriteString(p.Text)
		}
		ends[i] = u.end
		return nil
	}, func() error { return nil })
	if err != nil {
		return err
	}
	var choices []any
	for i := range n {
		var l any
		if a.base.logprobs >= 0 {
			if l = logprobs[i]; logprobs[i] == nil {
				l = emptyLogprobs()
			}
		}
		choices = append(choices, map[string]any{"index": i, "text": texts[i].String(), "logprobs": l,
			"finish_reason": ends[i].reason})
	}
	body := a.body(choices)
	body["usage"] = a.total.chat()
	writeJSON(w, http.StatusOK, body)
	return nil
}

func (a *completion) stream(ctx context.Context, w http.ResponseWriter) error {
	out := &events{w: w}
	lengths := make([]int, len(a.jobs)*a.base.n)
	chunk := func(choices []any, u any) error {
		m := a.body(choices)
		if a.base.usage {
			m["usage"] = u
		}
		return out.send("", m)
	}
	err := a.each(ctx, func(i int, u update) error {
		for _, p := range u.pieces {
			var l any
			if a.base.logprobs >= 0 {
				x := emptyLogprobs()
				x.add(a.base, p.tokens, lengths[i])
				l = x
			}
			lengths[i] += len([]rune(p.Text))
			choice := map[string]any{"index": i, "text": p.Text, "logprobs": l, "finish_reason": nil}
			if err := chunk([]any{choice}, nil); err != nil {
				return err
			}
		}
		if u.end == nil {
			return nil
		}
		return chunk([]any{map[string]any{"index": i, "text": "", "logprobs": nil, "finish_reason": u.end.reason}}, nil)
	}, out.idle)
	if err != nil {
		return out.fail(err, false)
	}
	if a.base.usage {
		if err := chunk([]any{}, a.total.chat()); err != nil {
			return err
		}
	}
	return out.done()
}
