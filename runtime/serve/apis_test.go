package serve

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompletions(t *testing.T) {
	s := startServer(t, func(prompt string) string {
		if prompt == "Say <|im_start|>x" {
			return "special"
		}
		return " goes " + prompt
	}, nil)
	o := s.object("/v1/completions", `{"prompt": "Once", "max_tokens": 50, "logprobs": 2}`)
	require.Equal(t, "text_completion", o["object"])
	require.Equal(t, " goes Once", at(t, o, "choices", 0, "text"))
	require.Equal(t, " goes Once", strings.Join(texts(at(t, o, "choices", 0, "logprobs", "tokens")), ""))
	require.Len(t, at(t, o, "choices", 0, "logprobs", "top_logprobs", 0), 2)
	require.EqualValues(t, 0, at(t, o, "choices", 0, "logprobs", "text_offset", 0))
	o = s.object("/v1/completions", `{"prompt": ["Once", "Twice"], "n": 2, "max_tokens": 50}`)
	for i, want := range []string{" goes Once", " goes Once", " goes Twice", " goes Twice"} {
		require.Equal(t, want, at(t, o, "choices", i, "text"))
		require.EqualValues(t, i, at(t, o, "choices", i, "index"))
	}
	o = s.object("/v1/completions", `{"prompt": "Say <|im_start|>x"}`)
	require.Equal(t, "special", at(t, o, "choices", 0, "text"), "special tokens of a raw prompt are parsed")
	list := s.events("/v1/completions", `{"prompt": [300, 301], "stream": true, "stream_options": {"include_usage": true}}`)
	text := ""
	for _, e := range list[:len(list)-2] {
		text += at(t, e.data, "choices", 0, "text").(string)
	}
	require.True(t, strings.HasPrefix(text, " goes "), text)
	require.NotNil(t, list[len(list)-2].data["usage"])
	for _, bad := range []string{`""`, `[]`, `{}`, `[["a"]]`, `[99999]`, `[-1]`} {
		_, param := s.refused(400, "/v1/completions", `{"prompt": `+bad+`}`)
		require.Equal(t, "prompt", param, bad)
	}
}

func texts(v any) []string {
	var out []string
	for _, x := range v.([]any) {
		out = append(out, x.(string))
	}
	return out
}

// names are the names of events, each run of the same once.
func names(list []event) []string {
	var out []string
	for _, e := range list {
		if len(out) == 0 || out[len(out)-1] != e.name {
			out = append(out, e.name)
		}
	}
	return out
}

func thinksAndCalls(prompt string) string {
	switch {
	case strings.Contains(prompt, "<tool_response>rain"):
		return "It rains."
	case strings.HasSuffix(prompt, "<think>\n"):
		return "Let me see.\n</think>\n\nI ask.\n" + weatherCall
	}
	return "Hello."
}

func TestMessages(t *testing.T) {
	s := startServer(t, thinksAndCalls, nil)
	o := s.object("/v1/messages", `{"max_tokens": 100, "system": [{"type": "text", "text": "Be brief.", "cache_control":
		{"type": "ephemeral"}}], "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}`)
	require.Equal(t, "message", o["type"])
	require.Equal(t, []any{map[string]any{"type": "text", "text": "Hello."}}, o["content"])
	require.Equal(t, "end_turn", o["stop_reason"])
	tools := `"tools": [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]`
	body := `{"max_tokens": 100, "thinking": {"type": "enabled", "budget_tokens": 50}, ` + tools +
		`, "messages": [{"role":
		"user", "content": "Rain?"}]`
	o = s.object("/v1/messages", body+`}`)
	require.Equal(t, "tool_use", o["stop_reason"])
	require.Equal(t, "Let me see.", at(t, o, "content", 0, "thinking"))
	require.Equal(t, "I ask.", at(t, o, "content", 1, "text"))
	require.Equal(t, map[string]any{"city": "Bern", "days": 2.0}, at(t, o, "content", 2, "input"))
	list := s.events("/v1/messages", body+`, "stream": true}`)
	block := []string{"content_block_start", "content_block_delta", "content_block_stop"}
	want := append([]string{"message_start"}, append(append(block, block...), block...)...)
	require.Equal(t, append(want, "message_delta", "message_stop"), names(list))
	for _, e := range list {
		require.Equal(t, e.name, e.data["type"])
	}
	begin, end := at(t, list[0].data, "message", "usage"), at(t, list[len(list)-2].data, "usage")
	require.Positive(t, at(t, begin, "cache_read_input_tokens"), "the same prompt came before")
	for _, count := range []string{"input_tokens", "cache_read_input_tokens"} {
		require.Equal(t, at(t, end, count), at(t, begin, count), "%s at the begin and at the end", count)
	}
	o = s.object("/v1/messages", `{"max_tokens": 100, "messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant",
		"content": [{"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Bern"}}]}, {"role": "user", "content":
		[{"type": "tool_result", "tool_use_id": "a", "content": "rain"}]}]}`)
	require.Equal(t, "It rains.", at(t, o, "content", 0, "text"))
	o = s.object("/v1/messages", `{"max_tokens": 100, "stop_sequences": ["lo"], "messages": [{"role": "user", "content": "Hi"}]}`)
	require.Equal(t, "stop_sequence", o["stop_reason"])
	require.Equal(t, "lo", o["stop_sequence"])
	n := s.object("/v1/messages/count_tokens", `{"messages": [{"role": "user", "content": "Hi"}]}`)
	require.Greater(t, n["input_tokens"], 5.0)
	code, text := s.post("/v1/messages", `{"messages": []}`)
	require.Equal(t, 400, code)
	require.JSONEq(t, `{"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens is missing"}}`, text)
}

func TestResponses(t *testing.T) {
	s := startServer(t, thinksAndCalls, nil)
	o := s.object("/v1/responses", `{"input": "Hi", "instructions": "Be brief.", "metadata": {"a": "b"}}`)
	require.Equal(t, "completed", o["status"])
	require.Equal(t, "Hello.", at(t, o, "output", 0, "content", 0, "text"))
	require.Equal(t, map[string]any{"a": "b"}, o["metadata"])
	require.Equal(t, false, o["store"])
	tools := `"tools": [{"type": "function", "name": "weather", "strict": true, "parameters": {"type": "object", "properties":
		{"city": {"type": "string"}}}}]`
	body := `{"reasoning": {"effort": "high"}, ` + tools +
		`, "input": [{"role": "user", "content": [{"type": "input_text",
		"text": "Rain?"}]}]`
	o = s.object("/v1/responses", body+`}`)
	require.Equal(t, "Let me see.", at(t, o, "output", 0, "content", 0, "text"))
	require.Equal(t, "I ask.", at(t, o, "output", 1, "content", 0, "text"))
	require.Equal(t, `{"city": "Bern", "days": 2}`, at(t, o, "output", 2, "arguments"))
	list := s.events("/v1/responses", body+`, "stream": true}`)
	for i, e := range list {
		require.EqualValues(t, i, e.data["sequence_number"])
		require.Equal(t, e.name, e.data["type"])
	}
	item := func(kind string) []string {
		part := "response.content_part."
		return []string{"response.output_item.added", part + "added", "response." + kind + ".delta",
			"response." + kind + ".done",
			part + "done", "response.output_item.done"}
	}
	want := append([]string{"response.created", "response.in_progress"},
		append(item("reasoning_text"), item("output_text")...)...)
	want = append(want, "response.output_item.added", "response.function_call_arguments.delta",
		"response.function_call_arguments.done", "response.output_item.done", "response.completed")
	require.Equal(t, want, names(list))
	last := at(t, list[len(list)-1].data, "response").(map[string]any)
	require.Equal(t, at(t, o, "output", 2, "arguments"), at(t, last, "output", 2, "arguments"))
	require.Equal(t, at(t, o, "usage", "output_tokens"), at(t, last, "usage", "output_tokens"))
	o = s.object("/v1/responses", `{"input": [{"role": "user", "content": "Rain?"}, {"type": "reasoning", "id": "r", "summary": [],
		"content": [{"type": "reasoning_text", "text": "hm"}]}, {"type": "function_call", "call_id": "c", "name": "weather",
		"arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "rain"}]}`)
	require.Equal(t, "It rains.", at(t, o, "output", 0, "content", 0, "text"))
	o = s.object("/v1/responses", `{"input": "Hi", "max_output_tokens": 1}`)
	require.Equal(t, "incomplete", o["status"])
	require.Equal(t, "max_output_tokens", at(t, o, "incomplete_details", "reason"))
	o = s.object("/v1/responses", `{"input": "Hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"const": 1}}}}`)
	require.Equal(t, "1", at(t, o, "output", 0, "content", 0, "text"))
	_, param := s.refused(400, "/v1/responses", `{"input": "Hi", "previous_response_id": "x"}`)
	require.Equal(t, "previous_response_id", param)
}

func TestTokenize(t *testing.T) {
	s := startServer(t, does("x"), nil)
	o := s.object("/tokenize", `{"content": "Hello <|im_end|>"}`)
	ids := o["tokens"].([]any)
	require.EqualValues(t, 762, ids[len(ids)-1])
	code, body := s.post("/detokenize", `{"tokens": [762]}`)
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"content": "<|im_end|>"}`, body)
	o = s.object("/tokenize", `{"content": "<|im_end|>", "parse_special": false}`)
	assert.Greater(t, len(o["tokens"].([]any)), 1)
}
