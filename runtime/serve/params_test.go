package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tables are the endpoints' tables, by their headings in docs/serving.md.
var tables = []struct {
	path  string
	table []param
}{
	{"/v1/chat/completions", chatParams}, {"/v1/completions", completionParams}, {"/v1/responses", responseParams},
	{"/v1/messages", messageParams}, {"/v1/messages/count_tokens", countParams}, {"/tokenize", tokenizeParams},
	{"/detokenize", detokenizeParams}, {"/slots/{id}", slotParams},
}

// row writes a parameter as docs/serving.md has it.
func (p param) row() string {
	what := string(p.status)
	switch p.status {
	case refused:
		what = "400"
	case neutral:
		what = "only `" + strings.Join(p.values, "`, `") + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s |", p.name, what, p.note)
}

// TestManualHasTheTables: docs/serving.md lists every parameter with what becomes of it. ETC_UPDATE=1 writes the lists.
func TestManualHasTheTables(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "serving.md")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	text := string(b)
	for _, x := range tables {
		begin := "<!-- table " + x.path + " -->\n"
		from := strings.Index(text, begin)
		require.GreaterOrEqual(t, from, 0, "no %q", begin)
		from += len(begin)
		length := strings.Index(text[from:], "\n<!-- end -->")
		require.GreaterOrEqual(t, length, 0)
		rows := []string{"| parameter | | |", "| --- | --- | --- |"}
		for _, p := range x.table {
			rows = append(rows, p.row())
		}
		want := strings.Join(rows, "\n")
		if os.Getenv("ETC_UPDATE") != "" {
			text = text[:from] + want + text[from+length:]
			continue
		}
		require.Equal(t, want, text[from:from+length], "%s; ETC_UPDATE=1 go test ./runtime/serve -run Manual writes it",
			x.path)
	}
	if os.Getenv("ETC_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// bodies are the smallest requests of the endpoints.
var bodies = map[string]string{
	"/v1/chat/completions": hello, "/v1/completions": `"prompt": "Hello"`, "/v1/responses": `"input": "Hello"`,
	"/v1/messages": `"max_tokens": 9, ` + hello, "/v1/messages/count_tokens": hello, "/tokenize": `"content": "a"`,
	"/detokenize": `"tokens": [1]`, "/slots/{id}": `"prompt": "Hello you"`,
}

// address is where requests of a table go.
func address(path string) string { return strings.Replace(path, "{id}", "a?action=save", 1) }

// TestEveryParameter: what is refused is refused by name, what is accepted and what is neutral changes nothing, null is
// nothing, and what a table lacks is refused.
func TestEveryParameter(t *testing.T) {
	s := startServer(t, does("fine"), nil)
	for _, x := range tables {
		s.object(address(x.path), `{`+bodies[x.path]+`}`)
		for _, p := range x.table {
			with := func(v string) string { return fmt.Sprintf(`{%s, %q: %s}`, bodies[x.path], p.name, v) }
			switch p.status {
			case refused:
				message, param := s.refused(400, address(x.path), with(`"x"`))
				if !strings.HasPrefix(x.path, "/v1/messages") {
					require.Equal(t, p.name, param)
				}
				require.Contains(t, message, p.name)
				s.object(address(x.path), with("null"))
			case neutral:
				for _, v := range p.values {
					s.object(address(x.path), with(v))
				}
				_, _ = s.refused(400, address(x.path), with(`"something else"`))
			case accepted:
				s.object(address(x.path), with(`{"a": "b"}`))
			case done:
				if !strings.Contains(bodies[x.path], `"`+p.name+`"`) {
					s.object(address(x.path), with("null"))
					message, _ := s.refused(400, address(x.path), with(`[{"bad": [[]]}]`))
					require.Contains(t, message, p.name)
				}
			}
		}
		message, _ := s.refused(400, address(x.path), `{`+bodies[x.path]+`, "frobnicate": 1}`)
		require.Contains(t, message, "frobnicate")
	}
}

func TestBadBodies(t *testing.T) {
	s := startServer(t, does("fine"), nil)
	for _, body := range []string{"", "{", "[]", "null", `"x"`, `{"a": 1} {"b": 2}`, `{` + hello + `, ` + hello + `}`,
		`{"messages": ` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`,
		"{\"messages\": \"\xff\"}", `{"messages": []}`,
		`{"messages": [{"role": "user"}]}`, `{"messages": [{"role": "robot", "content": "x"}]}`,
		`{"messages": [{"role": "user", "content": "x", "colour": "red"}]}`,
		`{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}`,
		`{"messages": [{"role": "tool", "content": "x"}]}`, `{"messages": [{"role": "user", "content": "refuse"}]}`,
		`{` + hello + `, "temperature": -1}`, `{` + hello + `, "temperature": 1e99}`, `{` + hello + `, "top_p": 0}`,
		`{` + hello + `, "n": 0}`, `{` + hello + `, "n": 65}`, `{` + hello + `, "seed": 1.5}`,
		`{` + hello + `, "stop": ""}`,
		`{` + hello + `, "max_tokens": 0}`, `{` + hello + `, "max_tokens": 1, "max_completion_tokens": 2}`,
		`{` + hello + `, "logit_bias": {"1": 101}}`, `{` + hello + `, "logit_bias": {"99999": 1}}`,
		`{` + hello + `, "logit_bias": {"x": 1}}`, `{` + hello + `, "top_logprobs": 3}`,
		`{` + hello + `, "logprobs": true, "top_logprobs": 21}`,
		`{` + hello + `, "stream_options": {"include_usage": true}}`,
		`{` + hello + `, "tool_choice": "required"}`, `{` + hello + `, "tools": [{"type": "web_search"}]}`,
		`{` + hello + `, "tools": [{"type": "function", "function": {"name": "a b"}}]}`,
		`{` + hello + `, "reasoning_effort": "much"}`,
		`{` + hello + `, "chat_template_kwargs": {"nobody_reads_it": 1}}`,
		`{` + hello + `, "chat_template_kwargs": {"messages": []}}`, `{` + hello + `, "repeat_penalty": 0}`,
	} {
		message, _ := s.refused(400, chatPath, body)
		require.NotEmpty(t, message, body)
	}
	s.refused(404, chatPath, `{`+hello+`, "model": "gpt"}`)
}

// FuzzRequests: no body makes an endpoint panic or hang, and every answer is JSON.
func FuzzRequests(f *testing.F) {
	for i, x := range tables {
		f.Add(i, `{`+bodies[x.path]+`}`)
		f.Add(i, `{`+bodies[x.path]+`, "tools": [`+weatherTool+`], "stop": ["a"], "logprobs": true}`)
	}
	s := startServer(f, does("fine"), nil)
	f.Fuzz(func(t *testing.T, which int, body string) {
		if which < 0 || strings.Contains(body, "stream") {
			return
		}
		mine := *s
		mine.t = t
		code, text := mine.post(address(tables[which%len(tables)].path), body)
		require.NotEqual(t, 500, code, text)
		require.True(t, json.Valid([]byte(text)), text)
	})
}
