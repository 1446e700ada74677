package serving

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// client asks a server.
type client struct {
	http *http.Client
	url  string
	key  string
	now  func() time.Time
}

func newClient(o Options) *client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.MaxIdleConns, t.MaxConnsPerHost = o.most(), o.most(), 0
	t.DisableCompression = true
	t.Proxy = nil // it would be measured too
	return &client{http: &http.Client{Transport: t}, url: strings.TrimSuffix(o.URL, "/"), key: o.Key, now: o.Now}
}

// maxError bounds what is read of an error's body, in bytes.
const maxError = 64 << 10

// do sends JSON, nil for a GET, and gives the response, which is a 200.
func (c *client) do(ctx context.Context, path string, body any) (*http.Response, error) {
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
		method = http.MethodPost
	}
	q, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	// A server may close a connection that was idle just when it is used again: then the request goes over another one.
	q.Header["Idempotency-Key"] = []string{} // net/http: not sent
	if c.key != "" {
		q.Header.Set("Authorization", "Bearer "+c.key)
	}
	r, err := c.http.Do(q)
	if err != nil {
		return nil, err
	}
	if r.StatusCode == http.StatusOK {
		return r, nil
	}
	defer r.Body.Close()
	b, err := io.ReadAll(io.LimitReader(r.Body, maxError))
	if err != nil {
		return nil, fmt.Errorf("%s%s: status %d: %w", c.url, path, r.StatusCode, err)
	}
	var e struct{ Error struct{ Message string } }
	message := strings.TrimSpace(string(b))
	if json.Unmarshal(b, &e) == nil && e.Error.Message != "" {
		message = e.Error.Message
	}
	return nil, fmt.Errorf("%s%s: status %d: %s", c.url, path, r.StatusCode, message)
}

// get reads a JSON answer.
func (c *client) get(ctx context.Context, path string, body, into any) error {
	r, err := c.do(ctx, path, body)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return fmt.Errorf("%s%s: the answer is not the JSON that was expected: %w", c.url, path, err)
	}
	return nil
}

// model returns the name of the server's first model.
func (c *client) model(ctx context.Context) (string, error) {
	var list struct{ Data []struct{ ID string } }
	if err := c.get(ctx, "/v1/models", nil, &list); err != nil {
		return "", err
	}
	if len(list.Data) == 0 {
		return "", fmt.Errorf("%s/v1/models: the server has no model", c.url)
	}
	return list.Data[0].ID, nil
}

// words are the words of prompts: each is one token or more in any vocabulary.
const words = "the of and to in a is that it was for on are as with his they at be this from have or by one had " +
	"not but what " +
	"all were when we there can an your which their said if do will each about how up out them then she many " +
	"some so these " +
	"would other into has more her two like him see time could no make than first been its who now people my " +
	"made over did"

// tokens returns ids of the model's vocabulary, each once.
func (c *client) tokens(ctx context.Context, model string) ([]int, error) {
	var out struct{ Tokens []int }
	if err := c.get(ctx, "/tokenize", map[string]any{"model": model, "content": words}, &out); err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	var ids []int
	for _, id := range out.Tokens {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	if len(ids) < 2 {
		return nil, fmt.Errorf("%s/tokenize: %d ids for %d words", c.url, len(ids), len(strings.Fields(words)))
	}
	return ids, nil
}

// answer has the measured times and tokens of one answer.
type answer struct {
	begun time.Time
	parts []time.Time // when each part of the text was there
	usage usage
}

// usage is what a server tells of an answer's tokens.
type usage struct {
	Tokens  int `json:"completion_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"` // of the prompt, which were not computed
	} `json:"prompt_tokens_details"`
}

// chunk is an event of a stream of completions.
type chunk struct {
	Choices []struct{ Text string }
	Usage   *usage
	Error   *struct{ Message string }
}

// maxEvent bounds an event of a stream, in bytes.
const maxEvent = 1 << 20

// complete asks for an answer of n tokens and reads it.
func (c *client) complete(ctx context.Context, model string, prompt []int, n int) (answer, error) {
	body := map[string]any{"model": model, "prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": true,
		"stream": true, "stream_options": map[string]any{"include_usage": true}}
	a := answer{begun: c.now()}
	r, err := c.do(ctx, "/v1/completions", body)
	if err != nil {
		return a, err
	}
	defer r.Body.Close()
	if err := a.readStream(r.Body, c.now); err != nil {
		return a, err
	}
	if a.usage.Tokens != n {
		return a, fmt.Errorf("the answer has %d tokens where %d were asked for: the server must take ignore_eos "+
			"and tell the tokens of the answer (stream_options.include_usage)", a.usage.Tokens, n)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(r.Body, maxEvent)) // so that the connection is used again
	return a, err
}

// readStream reads server-sent events to the end of the answer.
func (a *answer) readStream(r io.Reader, now func() time.Time) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxEvent)
	ended := false
	for !ended && in.Scan() {
		data, ok := bytes.CutPrefix(in.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		if data = bytes.TrimSpace(data); string(data) == "[DONE]" {
			ended = true
			continue
		}
		if err := a.read(data, now()); err != nil {
			return err
		}
	}
	if !ended && in.Err() == nil {
		return errors.New("the stream ended before the answer did")
	}
	return in.Err()
}

// read takes an event.
func (a *answer) read(data []byte, now time.Time) error {
	var e chunk
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("an event of the stream is not JSON: %w", err)
	}
	if e.Error != nil {
		return fmt.Errorf("the server ended the stream: %s", e.Error.Message)
	}
	if len(e.Choices) > 0 && e.Choices[0].Text != "" {
		a.parts = append(a.parts, now)
	}
	if e.Usage != nil {
		a.usage = *e.Usage
	}
	return nil
}
