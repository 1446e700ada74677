package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/batch"
)

const (
	chatPath = "/v1/chat/completions"
	hello    = `"messages": [{"role": "user", "content": "Hello"}]`
)

// chunks puts a stream of a chat together: the choices by index, as the whole answer has them.
func chunks(t testing.TB, list []event) (choices map[int]*chatChoice, usage map[string]any) {
	choices = map[int]*chatChoice{}
	require.Equal(t, "[DONE]", list[len(list)-1].name)
	for _, e := range list[:len(list)-1] {
		require.Equal(t, "chat.completion.chunk", e.data["object"])
		if u, ok := e.data["usage"].(map[string]any); ok {
			require.Empty(t, e.data["choices"])
			usage = u
			continue
		}
		i := int(at(t, e.data, "choices", 0, "index").(float64))
		c := choices[i]
		if c == nil {
			c = &chatChoice{}
			choices[i] = c
			require.Equal(t, "assistant", at(t, e.data, "choices", 0, "delta", "role"))
		}
		delta := at(t, e.data, "choices", 0, "delta").(map[string]any)
		if v, ok := delta["content"].(string); ok {
			c.text.WriteString(v)
		}
		if v, ok := delta["reasoning_content"].(string); ok {
			c.thought.WriteString(v)
		}
		if v, ok := delta["tool_calls"].([]any); ok {
			f := at(t, v, 0, "function").(map[string]any)
			if name, ok := f["name"].(string); ok {
				require.EqualValues(t, len(c.calls), at(t, v, 0, "index"))
				require.NotEmpty(t, at(t, v, 0, "id"))
				c.calls = append(c.calls, toolCall{Function: functionCall{Name: name}})
			}
			c.calls[len(c.calls)-1].Function.Arguments += f["arguments"].(string)
		}
		if v, ok := at(t, e.data, "choices", 0, "finish_reason").(string); ok {
			require.Nil(t, c.end)
			c.end = &finish{reason: v}
		}
	}
	return choices, usage
}

func TestChat(t *testing.T) {
	s := startServer(t, func(prompt string) string {
		assert.Equal(t, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", prompt)
		return "Good day, to you."
	}, nil)
	o := s.object(chatPath, `{"model": "small", `+hello+`}`)
	require.Equal(t, "chat.completion", o["object"])
	require.Equal(t, "small", o["model"])
	require.Equal(t, map[string]any{"role": "assistant", "content": "Good day, to you.", "refusal": nil},
		at(t, o, "choices", 0, "message"))
	require.Equal(t, "stop", at(t, o, "choices", 0, "finish_reason"))
	answer := at(t, o, "usage", "completion_tokens").(float64)
	prompt := at(t, o, "usage", "prompt_tokens").(float64)
	require.Equal(t, answer+prompt, at(t, o, "usage", "total_tokens"))
	again := s.object(chatPath, `{`+hello+`, "n": 2, "store": true, "user": "me"}`)
	require.Equal(t, prompt-1, at(t, again, "usage", "prompt_tokens_details", "cached_tokens"))
	require.Equal(t, 2*answer, at(t, again, "usage", "completion_tokens"))
	require.Equal(t, "Good day, to you.", at(t, again, "choices", 1, "message", "content"))
	require.Equal(t, false, again["store"])
	choices, usage := chunks(t, s.events(chatPath,
		`{`+hello+`, "n": 3, "stream": true, "stream_options": {"include_usage": true}}`))
	require.Len(t, choices, 3)
	for _, c := range choices {
		require.Equal(t, "Good day, to you.", c.text.String())
		require.Equal(t, "stop", c.end.reason)
	}
	require.Equal(t, 3*answer, usage["completion_tokens"])
}

func TestLength(t *testing.T) {
	s := startServer(t, does("one two three four"), nil)
	o := s.object(chatPath, `{`+hello+`, "max_tokens": 2}`)
	require.Equal(t, "length", at(t, o, "choices", 0, "finish_reason"))
	require.EqualValues(t, 2, at(t, o, "usage", "completion_tokens"))
	message, param := s.refused(400, chatPath, `{`+hello+`, "max_completion_tokens": 5000}`)
	require.Contains(t, message, "do not fit the context of 2000")
	require.Equal(t, "messages", param)
}

func TestStopTexts(t *testing.T) {
	s := startServer(t, does("The capital of France is Paris. Yes."), nil)
	for stop, want := range map[string]string{
		`"France"`: "The capital of ", `["xyz", "is Par", "apital"]`: "The c",
		`"Yes!"`: "The capital of France is Paris. Yes.", `["capital of France", "apital"]`: "The c", // complete first
		`"."`: "The capital of France is Paris", `["s.", "is. Y"]`: "The capital of France is Pari",
	} {
		body := `{` + hello + `, "stop": ` + stop
		o := s.object(chatPath, body+`}`)
		require.Equal(t, want, at(t, o, "choices", 0, "message", "content"), stop)
		require.Equal(t, "stop", at(t, o, "choices", 0, "finish_reason"))
		choices, _ := chunks(t, s.events(chatPath, body+`, "stream": true}`))
		require.Equal(t, want, choices[0].text.String(), "streamed")
	}
}

func TestLogprobsOfChat(t *testing.T) {
	s := startServer(t, does("Good day 🙂"), nil)
	for _, stream := range []bool{false, true} {
		body := fmt.Sprintf(`{%s, "logprobs": true, "top_logprobs": 3, "stream": %v}`, hello, stream)
		var content []any
		if stream {
			for _, e := range s.events(chatPath, body) {
				if l, ok := e.data["choices"].([]any); ok && at(t, l, 0, "logprobs") != nil {
					content = append(content, at(t, l, 0, "logprobs", "content").([]any)...)
				}
			}
		} else {
			content = at(t, s.object(chatPath, body), "choices", 0, "logprobs", "content").([]any)
		}
		var text []byte
		for _, c := range content {
			for _, b := range at(t, c, "bytes").([]any) {
				text = append(text, byte(b.(float64)))
			}
			require.Len(t, at(t, c, "top_logprobs"), 3)
			require.Equal(t, at(t, c, "logprob"), at(t, c, "top_logprobs", 0, "logprob"))
			require.Less(t, at(t, c, "logprob"), 0.0)
		}
		require.Equal(t, "Good day 🙂", string(text))
	}
}

func TestThinking(t *testing.T) {
	s := startServer(t, func(prompt string) string {
		if strings.HasSuffix(prompt, "<think>\n") {
			return "Let me see.\n</think>\n\nIt is so."
		}
		return "It is."
	}, nil)
	o := s.object(chatPath, `{`+hello+`, "chat_template_kwargs": {"enable_thinking": true}, "stop": "see"}`)
	require.Equal(t, "Let me see.", at(t, o, "choices", 0, "message", "reasoning_content"))
	require.Equal(t, "It is so.", at(t, o, "choices", 0, "message", "content"))
	require.NotZero(t, at(t, o, "usage", "completion_tokens_details", "reasoning_tokens"))
	choices, _ := chunks(t, s.events(chatPath, `{`+hello+`, "reasoning_effort": "high", "stream": true}`))
	require.Equal(t, "Let me see.", choices[0].thought.String())
	require.Equal(t, "It is so.", choices[0].text.String())
	o = s.object(chatPath, `{`+hello+`, "reasoning_effort": "none"}`)
	require.Equal(t, "It is.", at(t, o, "choices", 0, "message", "content"))
	require.NotContains(t, at(t, o, "choices", 0, "message"), "reasoning_content")
}

const weatherTool = `{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties":
	{"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}`

const weatherCall = "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n2\n</parameter>\n" +
	"</function>\n</tool_call>"

func TestTools(t *testing.T) {
	s := startServer(t, func(prompt string) string {
		if strings.Contains(prompt, "<tool_response>") {
			assert.Contains(t, prompt, `<tool_call>weather{"city": "Bern", "days": 2}</tool_call>`)
			return "It rains."
		}
		return "I ask.\n\n" + weatherCall + "\n" + strings.Replace(weatherCall, "Bern", "12", 1)
	}, nil)
	body := `{` + hello + `, "tools": [` + weatherTool + `]`
	o := s.object(chatPath, body+`}`)
	require.Equal(t, "tool_calls", at(t, o, "choices", 0, "finish_reason"))
	require.Equal(t, "I ask.", at(t, o, "choices", 0, "message", "content"))
	calls := at(t, o, "choices", 0, "message", "tool_calls").([]any)
	require.Len(t, calls, 2)
	require.Equal(t, map[string]any{"name": "weather", "arguments": `{"city": "Bern", "days": 2}`},
		at(t, calls, 0, "function"))
	require.Equal(t, `{"city": "12", "days": 2}`, at(t, calls, 1, "function", "arguments"))
	choices, _ := chunks(t, s.events(chatPath, body+`, "stream": true}`))
	require.Equal(t, "tool_calls", choices[0].end.reason)
	require.Equal(t, `{"city": "12", "days": 2}`, choices[0].calls[1].Function.Arguments)
	o = s.object(chatPath, body+`, "parallel_tool_calls": false}`)
	require.Len(t, at(t, o, "choices", 0, "message", "tool_calls"), 1)
	require.Equal(t, "tool_calls", at(t, o, "choices", 0, "finish_reason"))
	turn, err := json.Marshal(at(t, o, "choices", 0, "message"))
	require.NoError(t, err)
	o = s.object(chatPath, fmt.Sprintf(`{"messages": [{"role": "user", "content": "Hello"}, %s,
		{"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "rain"}]}], "tools": [%s]}`, turn, weatherTool))
	require.Equal(t, "It rains.", at(t, o, "choices", 0, "message", "content"))
	o = s.object(chatPath, body+`, "tool_choice": "none"}`)
	require.NotContains(t, at(t, o, "choices", 0, "message"), "tool_calls")
}

func TestConstraints(t *testing.T) {
	s := startServer(t, func(prompt string) string {
		if strings.HasSuffix(prompt, "<think>\n") {
			return "hm { \n</think>\n\n42"
		}
		return "so it is 42"
	}, nil)
	schema := `{"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": {"type": "object",
		"properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": false}}}`
	for _, more := range []string{``, `, "chat_template_kwargs": {"enable_thinking": true}`} {
		o := s.object(chatPath, `{`+hello+`, "response_format": `+schema+more+`}`)
		var v map[string]string
		require.NoError(t, json.Unmarshal([]byte(at(t, o, "choices", 0, "message", "content").(string)), &v))
		require.Contains(t, []string{"x", "y"}, v["a"])
		if more != "" {
			require.Equal(t, "hm {", at(t, o, "choices", 0, "message", "reasoning_content"), "thoughts are free")
		}
	}
	o := s.object(chatPath, `{`+hello+`, "response_format": {"type": "json_object", "schema": {"const": [1, 2]}}}`)
	require.JSONEq(t, "[1, 2]", at(t, o, "choices", 0, "message", "content").(string))
	o = s.object(chatPath, `{`+hello+`, "regex": "[0-9]{3}"}`)
	require.Regexp(t, `^[0-9]{3}$`, at(t, o, "choices", 0, "message", "content"))
	o = s.object(chatPath, `{`+hello+`, "grammar": "root ::= \"yes\" | \"no\""}`)
	require.Regexp(t, `^(yes|no)$`, at(t, o, "choices", 0, "message", "content"))
	o = s.object(chatPath, `{`+hello+`, "response_format": {"type": "json_object"}, "max_tokens": 300}`)
	require.Equal(t, "{", at(t, o, "choices", 0, "message", "content").(string)[:1])
	for body, want := range map[string]string{
		`"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"contains": {}}}}`: "response_format",
		`"response_format": {"type": "xml"}`:                    "response_format",
		`"response_format": {"type": "text", "schema": {}}`:     "response_format",
		`"response_format": {"type": "json_object", "json": 1}`: "response_format",
		`"regex": "("`: "regex", `"grammar": "x"`: "grammar",
		`"regex": "a", "grammar": "root ::= \"a\""`: "regex",
	} {
		message, _ := s.refused(http.StatusBadRequest, chatPath, `{`+hello+`, `+body+`}`)
		require.Contains(t, message, want)
	}
}

// TestThoughtsAreBounded: a budget of thoughts ends them, and the answer goes on.
func TestThoughtsAreBounded(t *testing.T) {
	s := startServer(t, func(prompt string) string {
		if strings.HasSuffix(prompt, "</think>") {
			return "\n\nDone."
		}
		return strings.Repeat("more and more ", 50) + "</think>\n\nNever."
	}, nil)
	o := s.object("/v1/messages", `{"max_tokens": 200, "messages": [{"role": "user", "content": "Hi"}],
		"thinking": {"type": "enabled", "budget_tokens": 5}}`)
	require.Equal(t, "thinking", at(t, o, "content", 0, "type"))
	require.Equal(t, "Done.", at(t, o, "content", 1, "text"))
}

// TestHiddenThoughts: the model thinks, and its thoughts are left out; what displays are not known is refused.
func TestHiddenThoughts(t *testing.T) {
	s := startServer(t, does("I wonder.\n</think>\n\nDone."), nil)
	body := func(display string) string {
		return fmt.Sprintf(`{"max_tokens": 200, %s,
			"thinking": {"type": "enabled", "budget_tokens": 99, "display": %q}`, hello, display)
	}
	for display, want := range map[string]string{"summarized": "I wonder.", "omitted": ""} {
		o := s.object("/v1/messages", body(display)+`}`)
		require.Equal(t, want, strings.TrimSpace(at(t, o, "content", 0, "thinking").(string)))
		require.Equal(t, "Done.", at(t, o, "content", 1, "text"))
		thought, text := "", ""
		for _, e := range s.events("/v1/messages", body(display)+`, "stream": true}`) {
			if e.name == "content_block_delta" {
				d := e.data["delta"].(map[string]any)
				more, _ := d["thinking"].(string)
				thought += more
				more, _ = d["text"].(string)
				text += more
			}
		}
		require.Equal(t, want, strings.TrimSpace(thought))
		require.Equal(t, "Done.", text)
	}
	message, _ := s.refused(400, "/v1/messages", body("upside down")+`}`)
	require.Contains(t, message, "thinking.display")
}

// TestNothingIsStored: every part of an answer says so where a request asks to store it.
func TestNothingIsStored(t *testing.T) {
	s := startServer(t, does("fine"), nil)
	for path, body := range map[string]string{chatPath: hello, "/v1/completions": `"prompt": "Hi"`} {
		require.NotContains(t, s.object(path, `{`+body+`}`), "store")
		require.Equal(t, false, s.object(path, `{`+body+`, "store": true}`)["store"])
		for _, e := range s.events(path, `{`+body+`, "store": true, "stream": true}`) {
			require.True(t, e.name == "[DONE]" || e.data["store"] == false, e)
		}
	}
	require.Equal(t, false, s.object("/v1/responses", `{"input": "Hi", "store": true}`)["store"])
}

// TestToolsThatMustBeCalled: required and named calls are calls, whatever the model would say, and of the schema.
func TestToolsThatMustBeCalled(t *testing.T) {
	for name, source := range map[string]string{"xml": qwenTemplate,
		"json": strings.ReplaceAll(qwenTemplate, "<function=", "<fn ")} {
		s := startServer(t, func(prompt string) string {
			if strings.HasSuffix(prompt, "<think>\n") {
				return "I see.\n</think>\n\nNo call."
			}
			return "I do not call."
		}, func(_ *Options, x *scripted, _ *batch.Options) { x.text.Source = source })
		clock := `{"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties":
			{"zone": {"$ref": "#/$defs/zone"}}, "required": ["zone"], "additionalProperties": false, "$defs": {"zone": {"enum": ["CET", "UTC"]}}}}}`
		if name == "xml" {
			clock = strings.Replace(clock, `{"$ref": "#/$defs/zone"}`, `{"enum": ["CET", "UTC"]}`, 1)
		}
		named := `"tool_choice": {"type": "function", "function": {"name": "clock"}}`
		for _, choice := range []string{`"tool_choice": "required", "max_tokens": 400, "parallel_tool_calls": false`,
			named,
			named + `, "chat_template_kwargs": {"enable_thinking": true}`} {
			o := s.object(chatPath, `{`+hello+`, "tools": [`+clock+`], `+choice+`}`)
			message := at(t, o, "choices", 0, "message")
			require.Len(t, at(t, message, "tool_calls"), 1, "%s %s: %v", name, choice, message)
			require.Equal(t, "clock", at(t, message, "tool_calls", 0, "function", "name"))
			var arguments map[string]string
			text := at(t, message, "tool_calls", 0, "function", "arguments").(string)
			require.NoError(t, json.Unmarshal([]byte(text), &arguments), "%s %s: %v", name, choice, o)
			require.Contains(t, []string{"CET", "UTC"}, arguments["zone"], name)
			require.Equal(t, "tool_calls", at(t, o, "choices", 0, "finish_reason"))
			if strings.Contains(choice, "enable_thinking") {
				require.Equal(t, "I see.", at(t, message, "reasoning_content"))
			}
		}
		_, param := s.refused(400, chatPath,
			`{`+hello+`, "tools": [`+clock+`], "tool_choice": {"type": "function", "function": {"name": "x"}}}`)
		require.Equal(t, "tool_choice", param)
	}
}
