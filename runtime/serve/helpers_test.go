package serve

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/template"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// scripted is an executor that answers by a function of the prompt's text. Its logits are those of the answer's next
// token, and less of all others.
type scripted struct {
	t      testing.TB
	text   *Text
	answer func(prompt string) string
	step   chan struct{} // where it is not nil, a call waits for one
	fail   func(call int) error
	prompt func(tokens []int) // where it is not nil, it is told each prompt

	slots  slots
	calls  int
	states map[int32]*scriptedState // by slot
	closed bool
}

type scriptedState struct {
	fed  []int
	want []int // the answer's tokens, from position at on
	at   int
}

const scriptedPositions = 2000

func (x *scripted) Layout() cache.Layout { return cache.Layout{BlockRows: 16, SlotBytes: 1} }
func (x *scripted) Units() cache.Demand  { return make(cache.Demand, 2) }
func (x *scripted) Limits() batch.Limits {
	return batch.Limits{Rows: 512, Sequences: 64, Positions: scriptedPositions, Vocab: x.text.Tokenizer.VocabSize()}
}
func (x *scripted) Close() error { x.closed = true; return nil }

func (x *scripted) Execute(ctx context.Context, call *schedule.Call, rows []batch.Row) ([]batch.Output, error) {
	if x.step != nil {
		select {
		case <-x.step:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if x.calls++; x.fail != nil {
		if err := x.fail(x.calls); err != nil {
			return nil, err
		}
	}
	var out []batch.Output
	for _, e := range call.Entries {
		s := &scriptedState{}
		if old := x.states[e.Reads]; e.Reads >= 0 {
			s = &scriptedState{append([]int{}, old.fed...), old.want, old.at}
		}
		if len(s.fed) != e.Start {
			return nil, errors.New("a sequence begins at the wrong position")
		}
		for i, token := range call.Tokens[e.First : e.First+e.Rows] {
			s.fed = append(s.fed, int(token))
			for _, w := range e.Writes {
				if w.Pos == e.Start+i+1 {
					x.states[w.Slot] = &scriptedState{append([]int{}, s.fed...), s.want, s.at}
				}
			}
		}
		if e.Wanted > 0 {
			last := x.states[e.Writes[len(e.Writes)-1].Slot]
			out = append(out, x.output(last, rows[len(out)]))
		}
	}
	return out, nil
}

// Form, Save and Restore keep the tokens that a slot was fed.
func (x *scripted) Form() string { return "scripted" }

func (x *scripted) Save(units []cache.Unit) ([]batch.Part, [][]byte, error) {
	var content []byte
	fed := x.states[units[0].ID].fed
	for _, token := range fed {
		content = binary.LittleEndian.AppendUint64(content, uint64(token))
	}
	return []batch.Part{{Buffer: "fed", DType: ir.I64, Stored: ir.I64, Shape: []int{len(fed)}}}, [][]byte{content}, nil
}

func (x *scripted) Restore(_ []int32, units []cache.Unit, _ []batch.Part, contents [][]byte) error {
	if units[0].ID == cache.None {
		return nil
	}
	s := &scriptedState{}
	for token := range slices.Chunk(contents[0], 8) {
		s.fed = append(s.fed, int(binary.LittleEndian.Uint64(token)))
	}
	x.states[units[0].ID] = s
	return nil
}

// slots keeps states in memory.
type slots struct {
	mu    sync.Mutex
	saved map[string]*batch.Saved
	err   error // of Save
}

func (s *slots) Save(ctx context.Context, name string, saved *batch.Saved) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	if s.saved == nil {
		s.saved = map[string]*batch.Saved{}
	}
	contents, err := saved.Contents(ctx)
	if err != nil {
		return 0, err
	}
	s.saved[name] = batch.NewSaved(saved.Tokens, saved.Form, saved.Parts, contents)
	return int64(len(saved.Tokens)), nil
}

func (s *slots) Load(name string) (*batch.Saved, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.saved[name]
	if k == nil {
		return nil, 0, fs.ErrNotExist
	}
	return k, int64(len(k.Tokens)), nil
}

func (s *slots) Erase(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved[name] == nil {
		return fs.ErrNotExist
	}
	delete(s.saved, name)
	return nil
}

// output gives the token that follows.
func (x *scripted) output(s *scriptedState, row batch.Row) batch.Output {
	n := len(s.fed)
	if s.want == nil || n < s.at || n >= s.at+len(s.want) || n > s.at && s.fed[n-1] != s.want[n-1-s.at] {
		text := "warm"
		if x.prompt != nil {
			x.prompt(s.fed)
		}
		if prompt := x.text.Tokenizer.Decode(s.fed, false); len(s.fed) > 1 {
			text = x.answer(prompt)
		}
		answer := x.text.Tokenizer.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
		s.want, s.at = append(answer, x.text.Stop[0]), n
	}
	token := s.want[len(s.fed)-s.at]
	if !row.Logits {
		return batch.Output{Token: int32(token)}
	}
	logits := make([]float32, x.text.Tokenizer.VocabSize())
	for i := range logits {
		logits[i] = -float32(i%50) / 10
	}
	logits[token] = 5
	return batch.Output{Token: int32(token), Logits: logits}
}

// qwenTemplate is written for these tests in the manner of Qwen3.5.
const qwenTemplate = `{%- if tools %}{{- '<|im_start|>system\n<tools>' }}{%- for t in tools %}{{- t | tojson }}{%- endfor %}` +
	`{{- '</tools> <function=name><|im_end|>\n' }}{%- endif %}{%- for m in messages %}{%- if m.role == 'tool' %}` +
	`{{- '<|im_start|>user\n<tool_response>' + m.content + '</tool_response><|im_end|>\n' }}{%- else %}` +
	`{{- '<|im_start|>' + m.role + '\n' + m.content }}{%- for c in m.tool_calls or [] %}` +
	`{{- '<tool_call>' + c.function.name + (c.function.arguments | tojson) + '</tool_call>' }}{%- endfor %}` +
	`{{- '<|im_end|>\n' }}{%- endif %}{%- endfor %}{%- if messages[-1].content == 'refuse' %}` +
	`{{- raise_exception('the template says no') }}{%- endif %}{%- if add_generation_prompt %}` +
	`{{- '<|im_start|>assistant\n' }}{%- if enable_thinking is defined and enable_thinking is true %}{{- '<think>\n' }}` +
	`{%- else %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}`

// testText is the text side of a small checkpoint, with tokens for calls of tools.
func testText(t testing.TB) *Text {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "checkpoints", "qwen35moe-chat", "tokenizer.json"))
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, json.Unmarshal(b, &file))
	for i, name := range []string{"<tool_call>", "</tool_call>"} {
		file["added_tokens"] = append(file["added_tokens"].([]any), map[string]any{"id": 765 + i, "content": name,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false})
	}
	b, err = json.Marshal(file)
	require.NoError(t, err)
	k, err := tokenizer.Parse(b, "test")
	require.NoError(t, err)
	parsed, err := template.Parse("test", qwenTemplate)
	require.NoError(t, err)
	return &Text{Tokenizer: k, Template: parsed, Source: qwenTemplate, Special: &template.Dict{}, Stop: []int{762, 760},
		Defaults: batch.Sampling{TopP: 1}, Now: time.Now}
}

// testServer is a server with one model that answers by a function of the prompt.
type testServer struct {
	*Server
	t    testing.TB
	http *httptest.Server
	exec *scripted
	key  string
}

// startServer starts a server; change may be nil.
func startServer(t testing.TB, answer func(prompt string) string,
	change func(*Options, *scripted, *batch.Options)) *testServer {
	t.Helper()
	x := &scripted{t: t, text: testText(t), answer: answer, states: map[int32]*scriptedState{}}
	ro := batch.Options{Sequences: 4, Queue: 8, Budget: 64, Prefix: 64}
	o := Options{Host: "127.0.0.1", Version: "test"}
	o.Files = []File{{Name: "small", Created: time.Unix(1700000000, 0), Memory: 10, Load: func() (*Loaded, error) {
		r, err := batch.New(x, ro)
		return &Loaded{Runner: r, Text: x.text, Device: "scripted", Slots: &x.slots}, err
	}}}
	if change != nil {
		change(&o, x, &ro)
	}
	s, err := New(o)
	require.NoError(t, err)
	if x.step == nil {
		require.NoError(t, s.Ready(t.Context()))
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		h.Close()
		require.NoError(t, s.Close())
	})
	return &testServer{Server: s, t: t, http: h, exec: x}
}

// does answers every prompt so.
func does(answer string) func(string) string { return func(string) string { return answer } }

// post sends a body and gives status and answer.
func (s *testServer) post(path, body string) (int, string) {
	s.t.Helper()
	r := s.begin(s.t.Context(), path, body)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(s.t, err)
	return r.StatusCode, string(b)
}

// begin sends a body and gives the response, whose body is still open.
func (s *testServer) begin(ctx context.Context, path, body string) *http.Response {
	s.t.Helper()
	q, err := http.NewRequestWithContext(ctx, "POST", s.http.URL+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if s.key != "" {
		q.Header.Set("Authorization", "Bearer "+s.key)
	}
	r, err := s.http.Client().Do(q)
	require.NoError(s.t, err)
	return r
}

// object posts a body that must be answered with a JSON object.
func (s *testServer) object(path, body string) map[string]any {
	s.t.Helper()
	code, text := s.post(path, body)
	require.Equal(s.t, http.StatusOK, code, text)
	var out map[string]any
	require.NoError(s.t, json.Unmarshal([]byte(text), &out), text)
	return out
}

// refused posts a body that must be refused, and gives the message.
func (s *testServer) refused(code int, path, body string) (message, param string) {
	s.t.Helper()
	got, text := s.post(path, body)
	require.Equal(s.t, code, got, "%s: %s", body, text)
	var out struct {
		Error struct{ Message, Type, Param string }
	}
	require.NoError(s.t, json.Unmarshal([]byte(text), &out), text)
	require.NotEmpty(s.t, out.Error.Type)
	return out.Error.Message, out.Error.Param
}

// event is a server-sent event.
type event struct {
	name string
	data map[string]any
}

// events posts a body and reads the stream. OpenAI's end mark is an event of that name.
func (s *testServer) events(path, body string) []event {
	s.t.Helper()
	r := s.begin(s.t.Context(), path, body)
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(r.Body)
		require.Equal(s.t, http.StatusOK, r.StatusCode, string(b))
	}
	require.Equal(s.t, "text/event-stream", r.Header.Get("Content-Type"))
	var out []event
	name := ""
	for in := bufio.NewScanner(r.Body); in.Scan(); {
		line := in.Text()
		if v, ok := strings.CutPrefix(line, "event: "); ok {
			name = v
		}
		v, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		if v == "[DONE]" {
			out = append(out, event{name: v})
			continue
		}
		e := event{name: name}
		require.NoError(s.t, json.Unmarshal([]byte(v), &e.data), v)
		out, name = append(out, e), ""
	}
	return out
}

// at follows a path of keys and indices.
func at(t testing.TB, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := v.(map[string]any)
			require.True(t, ok, "%v of %v", p, v)
			v = m[p]
		case int:
			l, ok := v.([]any)
			require.True(t, ok && p < len(l), "%v of %v", p, v)
			v = l[p]
		}
	}
	return v
}

// together runs functions at the same time.
func together(list ...func()) {
	var wait sync.WaitGroup
	for _, f := range list {
		wait.Go(f)
	}
	wait.Wait()
}
