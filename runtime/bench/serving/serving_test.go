package serving_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/bench/serving"
)

// server answers completions of as many tokens as were asked for, and notes what it was asked.
type server struct {
	*httptest.Server
	mu      sync.Mutex
	prompts [][]int
	lengths []int
	running atomic.Int32
	most    int32 // at a time
	answer  http.HandlerFunc
	clock   *clock
	gate    sync.WaitGroup
}

// clock goes on by a millisecond each time it is read.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Millisecond)
	return c.at
}

func newServer(t *testing.T) *server {
	s := &server{clock: &clock{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"data": [{"id": "small"}, {"id": "large"}]}`) //nolint:errcheck // it is a test
	})
	mux.HandleFunc("POST /tokenize", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"tokens": [5, 6, 7, 5, 8, 9, 10, 11]}`) //nolint:errcheck // it is a test
	})
	mux.HandleFunc("POST /v1/completions", s.complete)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// question is the body of a request.
type question struct {
	Model     string
	Prompt    []int
	MaxTokens int  `json:"max_tokens"`
	IgnoreEOS bool `json:"ignore_eos"`
	Stream    bool
}

func (s *server) complete(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.most = max(s.most, s.running.Add(1))
	s.mu.Unlock()
	defer s.running.Add(-1)
	var q question
	err := json.NewDecoder(r.Body).Decode(&q)
	if err != nil || !q.IgnoreEOS || !q.Stream || r.Header.Get("Authorization") != "Bearer k" {
		http.Error(w, "a wrong request", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.prompts, s.lengths = append(s.prompts, q.Prompt), append(s.lengths, q.MaxTokens)
	s.mu.Unlock()
	if s.answer != nil {
		s.answer(w, r)
		return
	}
	for range q.MaxTokens {
		fmt.Fprint(w, "data: {\"choices\": [{\"text\": \"x\"}]}\n\n")
		w.(http.Flusher).Flush()
	}
	fmt.Fprintf(w, ": idle\n\ndata: {\"choices\": [], \"usage\": {\"completion_tokens\": %d}}\n\ndata: [DONE]\n\n",
		q.MaxTokens)
}

func (s *server) options() serving.Options {
	return serving.Options{URL: s.URL + "/", Key: "k", Concurrent: []int{1}, Prompt: []int{16},
		Generate: []int{5}, Requests: 3,
		Now: s.clock.now}
}

// TestRow: with a clock that goes on by a millisecond at each reading, times are counts of readings.
func TestRow(t *testing.T) {
	s := newServer(t)
	model, rows, err := serving.Run(t.Context(), s.options())
	require.NoError(t, err)
	require.Equal(t, "small", model)
	require.Len(t, rows, 1)
	r := rows[0]
	require.InDelta(t, 0.001, r.First.P50, 1e-9)
	require.InDelta(t, 0.001, r.First.P99, 1e-9)
	require.InDelta(t, 0.001, r.Between.P50, 1e-9)
	require.InDelta(t, 1000, r.Stream, 1e-6)
	// Of each answer the clock is read before it, for each of its parts and for the usage, and of all once at the end.
	require.InDelta(t, 15/0.022, r.Total, 1e-6)
	require.Equal(t, []int{4, 5, 5, 5}, s.lengths)
	seen := map[string]bool{}
	for _, p := range s.prompts {
		require.Len(t, p, 16)
		seen[fmt.Sprint(p)] = true
		for _, id := range p {
			require.Contains(t, []int{5, 6, 7, 8, 9, 10, 11}, id)
		}
	}
	require.Len(t, seen, 4, "every prompt is another")
}

// TestSeed: equal seeds give equal prompts, another one others.
func TestSeed(t *testing.T) {
	s := newServer(t)
	for _, seed := range []uint64{7, 7, 8} {
		o := s.options()
		o.Seed = seed
		_, _, err := serving.Run(t.Context(), o)
		require.NoError(t, err)
	}
	require.Equal(t, s.prompts[:4], s.prompts[4:8])
	for _, p := range s.prompts[8:] {
		require.NotContains(t, s.prompts[:8], p)
	}
}

// TestCached: a row has the tokens that the server did not compute of the prompts that count, all together.
func TestCached(t *testing.T) {
	s := newServer(t)
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "data: {\"choices\": [{\"text\": \"x\"}]}\n\n"+
			"data: {\"choices\": [], \"usage\": {\"completion_tokens\": %d, "+
			"\"prompt_tokens_details\": {\"cached_tokens\": %d}}}\n\ndata: [DONE]\n\n",
			s.lengths[len(s.lengths)-1], len(s.lengths))
	}
	_, rows, err := serving.Run(t.Context(), s.options())
	require.NoError(t, err)
	require.Equal(t, 2+3+4, rows[0].Cached, "without the warm-up")
}

// TestConcurrent: as many run at a time as were asked for, never more, and as many in all.
func TestConcurrent(t *testing.T) {
	s := newServer(t)
	s.gate.Add(4)
	var arrived atomic.Int32
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		if arrived.Add(1) <= 4 { // the warm-up's wait for each other
			s.gate.Done()
			s.gate.Wait()
		}
		fmt.Fprint(w, "data: {\"choices\": [{\"text\": \"x\"}]}\n\n")
		fmt.Fprint(w, "data: {\"choices\": [], \"usage\": {\"completion_tokens\": 1}}\n\ndata: [DONE]\n\n")
	}
	o := s.options()
	o.Concurrent, o.Generate, o.Requests = []int{4}, []int{1}, 0
	_, rows, err := serving.Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, 16, rows[0].Requests)
	require.Len(t, s.prompts, 20)
	require.EqualValues(t, 4, s.most)
	require.Zero(t, rows[0].Between)
}

// TestNoText: answers without a text count in the total, and their times are not known; a row of them alone is an
// error.
func TestNoText(t *testing.T) {
	s := newServer(t)
	silent := 2 // the warm-up and the first
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		if len(s.lengths) > silent {
			fmt.Fprint(w, "data: {\"choices\": [{\"text\": \"x\"}]}\n\ndata: {\"choices\": [{\"text\": \"y\"}]}\n\n")
		}
		fmt.Fprintf(w, "data: {\"choices\": [], \"usage\": {\"completion_tokens\": %d}}\n\ndata: [DONE]\n\n",
			s.lengths[len(s.lengths)-1])
	}
	_, rows, err := serving.Run(t.Context(), s.options())
	require.NoError(t, err)
	require.InDelta(t, 0.001, rows[0].First.P99, 1e-9)
	require.InDelta(t, 4/0.001, rows[0].Stream, 1e-6)
	// The clock is read before and after all, of each answer before it and for the usage, and for four parts.
	require.InDelta(t, 15/0.011, rows[0].Total, 1e-6)

	silent = 100
	_, _, err = serving.Run(t.Context(), s.options())
	require.ErrorContains(t, err, "no answer has a text")
}

// TestRefused: what is wrong is an error that says what, never a figure.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"status": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, `{"error": {"message": "come again"}}`) //nolint:errcheck // it is a test
		}, "/v1/completions: status 429: come again"},
		"in the stream": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "data: {\"error\": {\"message\": \"no more\"}}\n\n") //nolint:errcheck // it is a test
		}, "the server ended the stream: no more"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "data: {\"choices\": [{\"text\": \"x\"}]}\n\n") //nolint:errcheck // it is a test
		}, "the stream ended before the answer did"},
		"short": {func(w http.ResponseWriter, _ *http.Request) {
			//nolint:errcheck // it is a test
			io.WriteString(w, "data: {\"choices\": [{\"text\": \"x\"}], \"usage\": {\"completion_tokens\": 1}}\n\n"+
				"data: [DONE]\n\n")
		}, "the answer has 1 tokens where 4 were asked for"},
		"no usage": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "data: [DONE]\n\n") },
			"the answer has 0 tokens"},
		"not JSON": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "data: x\n\n") },
			"an event of the stream is not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.answer = c.answer
			_, rows, err := serving.Run(t.Context(), s.options())
			require.ErrorContains(t, err, c.want)
			require.Empty(t, rows)
		})
	}
	s := newServer(t)
	for want, change := range map[string]func(o *serving.Options){
		"nothing to measure":   func(o *serving.Options) { o.Concurrent = nil },
		"0 tokens":             func(o *serving.Options) { o.Prompt = []int{0} },
		"-1 tokens":            func(o *serving.Options) { o.Generate = []int{-1} },
		"0 streams at a time":  func(o *serving.Options) { o.Concurrent = []int{0} },
		"-1 requests":          func(o *serving.Options) { o.Requests = -1 },
		"5000 streams at":      func(o *serving.Options) { o.Concurrent = []int{5000} },
		"a wrong request":      func(o *serving.Options) { o.Key = "other" },
		"/v1/models: status 4": func(o *serving.Options) { o.URL += "x" },
	} {
		o := s.options()
		change(&o)
		_, _, err := serving.Run(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
}
