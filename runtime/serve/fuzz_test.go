package serve

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/batch"
)

// FuzzAnswers: whatever a model writes, what a chat streams of it is what it answers at once: text, thoughts and calls,
// each event is JSON, and so are those of the other APIs.
func FuzzAnswers(f *testing.F) {
	for _, answer := range []string{"Good day.", "why?\n</think>\n\nso.", weatherCall,
		"I ask.\n\n" + weatherCall + "\n" + weatherCall,
		"<tool_call>\n<function=weather>\n<parameter=city>\n", "<tool_call></tool_call>",
		"<tool_call><function= ></function></tool_call>", "a🙂b\xff",
		"<think><think></think>", ""} {
		f.Add(answer, "", false)
		f.Add(answer, "o", true)
	}
	said := "warm"
	s := startServer(f, func(string) string { return said },
		func(_ *Options, _ *scripted, r *batch.Options) { r.Prefix = 0 })
	s.http.Client().Transport = direct{s.Handler()}
	f.Fuzz(func(t *testing.T, answer, stop string, think bool) {
		if len(answer) > 500 || len(stop) > 100 {
			return
		}
		mine := *s
		mine.t = t
		said = answer
		body := map[string]any{"messages": []any{map[string]any{"role": "user", "content": "Hi"}},
			"tools":                []any{json.RawMessage(weatherTool)},
			"chat_template_kwargs": map[string]any{"enable_thinking": think}}
		if stop != "" {
			body["stop"] = stop
		}
		whole := mine.object(chatPath, string(marshal(body)))
		body["stream"] = true
		choices, _ := chunks(t, mine.events(chatPath, string(marshal(body))))
		m := at(t, whole, "choices", 0, "message").(map[string]any)
		c := choices[0]
		content, _ := m["content"].(string)
		thought, _ := m["reasoning_content"].(string)
		require.Equal(t, content, c.text.String())
		require.Equal(t, thought, c.thought.String())
		require.Equal(t, at(t, whole, "choices", 0, "finish_reason"), c.end.reason)
		calls, _ := m["tool_calls"].([]any)
		require.Len(t, c.calls, len(calls))
		for i, call := range calls {
			f := at(t, call, "function").(map[string]any)
			require.Equal(t, functionCall{f["name"].(string), f["arguments"].(string)}, c.calls[i].Function)
		}
		mine.events("/v1/responses", `{"input": "Hi", "stream": true}`)
		mine.events("/v1/messages", `{"max_tokens": 99, `+hello+`, "stream": true}`)
		mine.events("/v1/completions", `{"prompt": "Hi", "max_tokens": 99, "stream": true}`)
	})
}

// direct is a transport that calls a handler in the same process. With it 10,000 inputs of FuzzAnswers take 44 s; with
// connections to a server they took 74 s.
type direct struct{ http.Handler }

func (d direct) RoundTrip(q *http.Request) (*http.Response, error) {
	r, w := httptest.NewRequestWithContext(q.Context(), q.Method, q.URL.String(), q.Body), httptest.NewRecorder()
	r.Header = q.Header
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// FuzzSlots: no name or action of a slot makes the server do anything but answer.
func FuzzSlots(f *testing.F) {
	for _, name := range []string{"a", "..", "a%2F..%2Fb", "%00", "a.slot", strings.Repeat("a", 65)} {
		for _, action := range []string{"save", "restore", "erase", "read"} {
			f.Add(name, action)
		}
	}
	s := startServer(f, does("fine"), nil)
	f.Fuzz(func(t *testing.T, name, action string) {
		q, err := http.NewRequest("POST", s.http.URL+"/slots/"+name+"?action="+action, strings.NewReader(`{}`))
		if err != nil {
			return
		}
		r, err := s.http.Client().Do(q)
		if err != nil { // a name that is no part of a URL
			return
		}
		r.Body.Close()
		require.Less(t, r.StatusCode, 500)
		for saved := range s.exec.slots.saved {
			require.Regexp(t, slotName, saved)
		}
	})
}
