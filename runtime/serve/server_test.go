package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/batch"
)

func (s *testServer) get(path string, header ...string) (int, string) {
	s.t.Helper()
	q, err := http.NewRequestWithContext(s.t.Context(), "GET", s.http.URL+path, nil)
	require.NoError(s.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			q.Host = header[i+1]
		}
		q.Header.Set(header[i], header[i+1])
	}
	r, err := s.http.Client().Do(q)
	require.NoError(s.t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(s.t, err)
	return r.StatusCode, string(b)
}

func TestOperations(t *testing.T) {
	s := startServer(t, does("Good day."), nil)
	code, body := s.get("/health")
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"status": "ok"}`, body)
	code, _ = s.get("/ready")
	require.Equal(t, 200, code)
	_, body = s.get("/v1/models")
	require.Contains(t, body, `"id":"small"`)
	_, body = s.get("/v1/models/small")
	require.Contains(t, body, `"context_length":2000`)
	code, _ = s.get("/v1/models/other")
	require.Equal(t, 404, code)
	code, _ = s.get("/nothing")
	require.Equal(t, 404, code)
	code, _ = s.get(chatPath)
	require.Equal(t, 405, code)
	s.object(chatPath, `{`+hello+`}`)
	_, body = s.get("/metrics")
	for _, want := range []string{`etc_requests_total{path="/v1/chat/completions",status="200"} 1`,
		`etc_tokens_total{kind="answer",model_name="small"}`,
		`vllm:num_requests_waiting{model_name="small"} 0`, `vllm:kv_cache_usage_perc{model_name="small"} 0`,
		"etc_first_token_seconds_bucket"} {
		require.Contains(t, body, want)
	}
}

// TestLogOfRequests: a line has the client's request id and the trace that the request is part of; what has another
// form is not taken over.
func TestLogOfRequests(t *testing.T) {
	var log strings.Builder
	var mu sync.Mutex
	s := startServer(t, does("Good day."), func(o *Options, _ *scripted, _ *batch.Options) {
		o.Log = slog.New(slog.NewTextHandler(lockedWriter{&log, &mu}, nil))
	})
	for _, headers := range []map[string]string{
		{"X-Request-Id": "mine-1", "Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		{"X-Request-Id": "two words", "Traceparent": "00-4BF92F-\"x"},
	} {
		q, err := http.NewRequest("GET", s.http.URL+"/v1/models", nil)
		require.NoError(t, err)
		for k, v := range headers {
			q.Header.Set(k, v)
		}
		r, err := s.http.Client().Do(q)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, r.Header.Get("X-Request-Id") == headers["X-Request-Id"], headers["X-Request-Id"] == "mine-1")
	}
	lines := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Split(strings.TrimSpace(log.String()), "\n")
	}
	require.Eventually(t, func() bool { return len(lines()) == 2 }, 30*time.Second, time.Millisecond,
		"a line for each request")
	require.Contains(t, lines()[0], "id=mine-1 ")
	require.Contains(t, lines()[0], "trace=4bf92f3577b34da6a3ce929d0e0e4736")
	require.Contains(t, lines()[1], "id=req_")
	require.NotContains(t, lines()[1], "trace=")
}

func TestKeys(t *testing.T) {
	s := startServer(t, does("x"), func(o *Options, _ *scripted, _ *batch.Options) { o.Keys = []string{"one", "two"} })
	for key, want := range map[string]int{"": 401, "on": 401, "onee": 401, "one": 200, "two": 200} {
		s.key = key
		code, _ := s.post(chatPath, `{`+hello+`}`)
		require.Equal(t, want, code, key)
		code, _ = s.get("/v1/models", "X-Api-Key", key)
		require.Equal(t, want, code, key)
		for _, scheme := range []string{"Bearer ", "bearer "} {
			code, _ = s.get("/metrics", "Authorization", scheme+key)
			require.Equal(t, want, code, key)
		}
		code, _ = s.get("/metrics", "Authorization", "Basic "+key)
		require.Equal(t, 401, code)
	}
	for _, path := range []string{"/health", "/ready"} {
		code, _ := s.get(path)
		require.Equal(t, 200, code)
	}
}

// TestOtherSitesAreRefused: pages of other sites cannot ask a server without keys, by rebound names or as they are.
func TestOtherSitesAreRefused(t *testing.T) {
	s := startServer(t, does("x"), nil)
	own := strings.TrimPrefix(s.http.URL, "http://")
	for _, c := range []struct {
		want   int
		header []string
	}{
		{200, nil}, {200, []string{"Host", "localhost:8080"}}, {200, []string{"Host", "[::1]:8080"}},
		{200, []string{"Host", "10.0.0.1"}},
		{403, []string{"Host", "evil.example"}}, {403, []string{"Host", "evil.example:8080"}},
		{403, []string{"Host", "127.0.0.1.evil.example"}},
		{200, []string{"Origin", s.http.URL}}, {403, []string{"Origin", "http://evil.example"}},
		{403, []string{"Origin", "null"}},
		{403, []string{"Origin", "http://" + own + ".evil.example"}},
	} {
		code, _ := s.get("/v1/models", c.header...)
		require.Equal(t, c.want, code, "%v", c.header)
	}
}

func TestLargeBodies(t *testing.T) {
	s := startServer(t, does("x"), nil)
	s.refused(http.StatusRequestEntityTooLarge, chatPath, `{"messages": "`+strings.Repeat("x", maxBody)+`"}`)
}

// slow is a server whose model takes a step when it is told.
func slow(t *testing.T, queue int) (*testServer, chan struct{}) {
	return slowly(t, 100, func(r *batch.Options) { r.Sequences, r.Queue = 1, queue })
}

// slowly starts a server whose answers have so many words, and whose calls wait for a step each.
func slowly(t *testing.T, words int, change func(r *batch.Options)) (*testServer, chan struct{}) {
	step := make(chan struct{})
	s := startServer(t, does(strings.Repeat("word ", words)), func(_ *Options, x *scripted, r *batch.Options) {
		x.step = step
		change(r)
	})
	ready := make(chan error, 1)
	go func() { ready <- s.Ready(context.Background()) }()
	for {
		select {
		case step <- struct{}{}:
			continue
		case err := <-ready:
			require.NoError(t, err)
		}
		return s, step
	}
}

func TestFullQueue(t *testing.T) {
	s, step := slow(t, 1)
	answers := make(chan int, 2)
	for range 2 {
		go func() {
			code, _ := s.post(chatPath, `{`+hello+`, "max_tokens": 2}`)
			answers <- code
		}()
	}
	runner := s.runner()
	require.Eventually(t, func() bool { return runner.Active() == 2 }, 10*time.Second, time.Millisecond)
	r := s.begin(t.Context(), chatPath, `{`+hello+`}`)
	r.Body.Close()
	require.Equal(t, http.StatusTooManyRequests, r.StatusCode)
	require.NotEmpty(t, r.Header.Get("Retry-After"))
	for range 2 {
		for done := false; !done; {
			select {
			case step <- struct{}{}:
			case code := <-answers:
				require.Equal(t, 200, code)
				done = true
			}
		}
	}
}

// runner is that of the model.
func (s *testServer) runner() *batch.Runner {
	var out *batch.Runner
	s.pool.each(func(_ *model, l *Loaded) { out = l.Runner })
	return out
}

// TestClientGone: the sequence of a client that went away ends.
func TestClientGone(t *testing.T) {
	s, step := slow(t, 4)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range 5 {
			step <- struct{}{}
		}
	}()
	r := s.begin(ctx, chatPath, `{`+hello+`, "stream": true}`)
	cancel()
	_, err := io.ReadAll(r.Body)
	require.ErrorIs(t, err, context.Canceled)
	r.Body.Close()
	require.Eventually(t, func() bool { return s.runner().Active() == 0 }, 10*time.Second, time.Millisecond)
}

// TestDrain: no new requests are taken, running ones end; what takes too long is cut.
func TestDrain(t *testing.T) {
	for _, cut := range []bool{false, true} {
		s, step := slow(t, 4)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		most := 20 * time.Second
		if cut {
			most = 10 * time.Millisecond
		}
		go func() { served <- s.Serve(ctx, l, most) }()
		s.http.URL = "http://" + l.Addr().String()
		answer := make(chan string, 1)
		go func() {
			_, body := s.post(chatPath, `{`+hello+`, "max_tokens": 4}`)
			answer <- body
		}()
		runner := s.runner()
		require.Eventually(t, func() bool { return runner.Active() == 1 }, 10*time.Second, time.Millisecond)
		stop()
		if cut {
			require.Contains(t, <-answer, "shut down")
			require.NoError(t, <-served)
			continue
		}
		require.Eventually(t, s.draining.Load, 10*time.Second, time.Millisecond)
		s.refused(http.StatusServiceUnavailable, chatPath, `{`+hello+`}`)
		for range 4 {
			step <- struct{}{}
		}
		require.Contains(t, <-answer, `"finish_reason":"length"`)
		require.NoError(t, <-served)
		require.True(t, s.exec.closed)
	}
}

// TestDeviceError: an error of the device is the error of the requests of that call only.
func TestDeviceError(t *testing.T) {
	broken := false
	s := startServer(t, does("one two three four five"), func(_ *Options, x *scripted, _ *batch.Options) {
		x.fail = func(call int) error {
			if broken && call%5 == 0 {
				return errors.New("the device fell off the bus")
			}
			return nil
		}
	})
	broken = true
	message, _ := s.refused(500, chatPath, `{`+hello+`}`)
	require.Contains(t, message, "fell off the bus")
	list := s.events(chatPath, `{`+hello+`, "stream": true}`)
	require.Contains(t, list[len(list)-1].data, "error", "a stream that has begun tells it as an event")
	s.exec.calls = 100
	broken = false
	s.object(chatPath, `{`+hello+`}`)
}

func TestRequestTime(t *testing.T) {
	s, _ := slow(t, 4)
	s.options.RequestTime = 20 * time.Millisecond
	s.refused(http.StatusGatewayTimeout, chatPath, `{`+hello+`}`)
}

// TestModelsShareMemory: models are loaded on demand, the least recently used one that nobody uses goes.
func TestModelsShareMemory(t *testing.T) {
	open := map[string]int{}
	var mu sync.Mutex // of open: two may be loaded at a time
	count := func(name string, n int) {
		mu.Lock()
		defer mu.Unlock()
		open[name] += n
	}
	s := startServer(t, does("x"), func(o *Options, x *scripted, r *batch.Options) {
		o.Memory, o.Files = 25, nil
		for _, name := range []string{"a", "b", "c", "broken"} {
			o.Files = append(o.Files, File{Name: name, Memory: 10, Load: func() (*Loaded, error) {
				if name == "broken" {
					return nil, errors.New("no such weights")
				}
				count(name, 1)
				y := &scripted{t: t, text: testText(t), answer: does("I am " + name + "."),
					states: map[int32]*scriptedState{}}
				run, err := batch.New(y, *r)
				return &Loaded{Runner: run, Text: y.text, Close: func() error { count(name, -1); return nil }}, err
			}})
		}
	})
	ask := func(name string) {
		t.Helper()
		o := s.object(chatPath, fmt.Sprintf(`{%s, "model": %q}`, hello, name))
		require.Equal(t, "I am "+name+".", at(t, o, "choices", 0, "message", "content"))
	}
	ask("a")
	ask("b")
	ask("a")
	ask("c")
	require.Equal(t, map[string]int{"a": 1, "b": 0, "c": 1}, open)
	ask("b")
	require.Equal(t, map[string]int{"a": 0, "b": 1, "c": 1}, open)
	message, _ := s.refused(500, chatPath, `{`+hello+`, "model": "broken"}`)
	require.Contains(t, message, "no such weights")
	var list []func()
	for range 8 {
		list = append(list, func() { ask("a") }, func() { ask("b") }, func() { ask("c") })
	}
	together(list...)
}

// impatientPool is that of a server with some models of 10 bytes each, of which none waits for others that are used.
func impatientPool(t *testing.T, memory int64, names ...string) *pool {
	t.Helper()
	s := startServer(t, does("x"), func(o *Options, _ *scripted, r *batch.Options) {
		o.Memory, o.Files = memory, nil
		for _, name := range names {
			o.Files = append(o.Files, File{Name: name, Memory: 10, Load: func() (*Loaded, error) {
				y := &scripted{t: t, text: testText(t), answer: does("x"), states: map[int32]*scriptedState{}}
				run, err := batch.New(y, *r)
				return &Loaded{Runner: run, Text: y.text}, err
			}})
		}
	})
	s.pool.patience = 0
	return s.pool
}

// TestModelsTakeTurns: whoever wants models with room for one or two of three, and gives up or not, all come to an end.
func TestModelsTakeTurns(t *testing.T) {
	for _, memory := range []int64{10, 25} {
		p := impatientPool(t, memory, "a", "b", "c")
		var list []func()
		for i := range 60 {
			list = append(list, func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%3 == 0 {
					go func() {
						for range 50 * i {
							runtime.Gosched()
						}
						cancel()
					}()
				}
				l, release, err := p.acquire(ctx, string(rune('a'+i%7%3)))
				if err != nil {
					assert.ErrorIs(t, err, context.Canceled)
					return
				}
				assert.NotNil(t, l)
				runtime.Gosched()
				release()
			})
		}
		together(list...)
		for _, m := range p.models {
			require.Zero(t, m.users+m.waiting, m.Name)
			require.Zero(t, m.since, m.Name)
		}
	}
}

// TestNoModelStarves: while a model that is in use gets requests, another one that has no room beside it is loaded
// nevertheless: the new requests wait until then. If nobody wants the other one any more, they go on at once.
func TestNoModelStarves(t *testing.T) {
	p := impatientPool(t, 15, "a", "b")
	acquire := func(ctx context.Context, name string) chan func() {
		given := make(chan func(), 1)
		go func() {
			if _, release, err := p.acquire(ctx, name); err == nil {
				given <- release
			}
		}()
		return given
	}
	waits := func(name string) {
		for waiting := false; !waiting; runtime.Gosched() {
			m, _ := p.find(name)
			p.mu.Lock()
			waiting = m.waiting > 0
			p.mu.Unlock()
		}
	}
	first := <-acquire(t.Context(), "a")
	ctx, cancel := context.WithCancel(t.Context())
	acquire(ctx, "b")
	waits("b")
	second := acquire(t.Context(), "a")
	waits("a")
	cancel() // b is not wanted any more
	(<-second)()
	other := acquire(t.Context(), "b")
	waits("b")
	third := acquire(t.Context(), "a")
	waits("a")
	first()
	release := <-other // b before the third of a
	require.Empty(t, third)
	release()
	(<-third)()
}

// TestFileThatNeverFits: a file that does not fit beside nothing is refused when the server is made, not waited for.
func TestFileThatNeverFits(t *testing.T) {
	_, err := New(Options{Memory: 99, Files: []File{{Name: "a", Memory: 99}, {Name: "b", Memory: 100}}})
	require.EqualError(t, err, "b needs 100 B with its caches, and there are 99 B: it could never be loaded")
}

// TestWaitingForALoadIsBounded: while a model is loaded, as many requests wait for it as may; more are a 429.
func TestWaitingForALoadIsBounded(t *testing.T) {
	begun, load, text := make(chan struct{}), make(chan struct{}), testText(t)
	s := startServer(t, does("fine"), func(o *Options, _ *scripted, r *batch.Options) {
		slow := o.Files[0]
		slow.Name, slow.Waiting = "slow", 2
		slow.Load = func() (*Loaded, error) {
			close(begun)
			<-load
			y := &scripted{t: t, text: text, answer: does("at last"), states: map[int32]*scriptedState{}}
			run, err := batch.New(y, *r)
			return &Loaded{Runner: run, Text: text}, err
		}
		o.Files = append(o.Files, slow)
	})
	body := `{` + hello + `, "model": "slow"}`
	var codes [2]int
	var waiting sync.WaitGroup
	for i := range codes {
		waiting.Go(func() { codes[i], _ = s.post(chatPath, body) })
	}
	<-begun
	for waiters := 0; waiters < 2; runtime.Gosched() {
		s.pool.mu.Lock()
		waiters = s.pool.models[1].waiting
		s.pool.mu.Unlock()
	}
	r := s.begin(t.Context(), chatPath, body)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusTooManyRequests, r.StatusCode)
	require.NotEmpty(t, r.Header.Get("Retry-After"))
	s.object(chatPath, `{`+hello+`}`) // the other model answers
	close(load)
	waiting.Wait()
	require.Equal(t, [2]int{200, 200}, codes)
	s.object(chatPath, body)
}

// TestReadyBesideRequests: a server gets ready though as many requests as may wait came before its first model was
// loaded.
func TestReadyBesideRequests(t *testing.T) {
	load, x := make(chan struct{}), &scripted{t: t, text: testText(t), states: map[int32]*scriptedState{}}
	x.answer = does("fine")
	s, err := New(Options{Files: []File{{Name: "a", Waiting: 1, Load: func() (*Loaded, error) {
		<-load
		run, err := batch.New(x, batch.Options{Sequences: 1, Budget: 64})
		return &Loaded{Runner: run, Text: x.text}, err
	}}}})
	require.NoError(t, err)
	m, ended := s.pool.models[0], make(chan error, 2)
	for i, wait := range []func() error{
		func() error {
			_, release, err := s.pool.acquire(t.Context(), "a")
			if err == nil {
				release()
			}
			return err
		},
		func() error { return s.Ready(t.Context()) },
	} {
		go func() { ended <- wait() }()
		for waiting := 0; waiting <= i; runtime.Gosched() {
			require.Empty(t, ended, "it waits for the model")
			s.pool.mu.Lock()
			waiting = m.waiting
			s.pool.mu.Unlock()
		}
	}
	close(load)
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	require.NoError(t, s.Close())
}

// TestFirstCallFails: a model whose first call fails is closed, so that it can be loaded again.
func TestFirstCallFails(t *testing.T) {
	var made []*scripted
	closed := 0
	s, err := New(Options{Files: []File{{Name: "a", Load: func() (*Loaded, error) {
		x := &scripted{t: t, text: testText(t), answer: does("fine"), states: map[int32]*scriptedState{}}
		if made = append(made, x); len(made) == 1 {
			x.fail = func(int) error { return errors.New("the device fell off the bus") }
		}
		run, err := batch.New(x, batch.Options{Sequences: 1, Budget: 64})
		return &Loaded{Runner: run, Text: x.text, Close: func() error { closed++; return nil }}, err
	}}}})
	require.NoError(t, err)
	require.ErrorContains(t, s.Ready(t.Context()), "a: the device fell off the bus")
	require.True(t, made[0].closed)
	require.Equal(t, 1, closed)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.Close())
	require.True(t, made[1].closed)
	require.Equal(t, 2, closed)
}

// TestLoadAfterClose: while models that make room for another one are being closed, no model is loaded into memory that
// they still have, one of them least of all.
func TestLoadAfterClose(t *testing.T) {
	var mu sync.Mutex
	var used, most int64
	closing, end := make(chan struct{}, 9), make(chan struct{})
	var files []File
	for name, memory := range map[string]int64{"a": 5, "b": 25, "c": 20} {
		files = append(files, File{Name: name, Memory: memory, Load: func() (*Loaded, error) {
			mu.Lock()
			used += memory
			most = max(most, used)
			mu.Unlock()
			x := &scripted{t: t, text: testText(t), answer: does("fine"), states: map[int32]*scriptedState{}}
			run, err := batch.New(x, batch.Options{Sequences: 1, Budget: 64})
			return &Loaded{Runner: run, Text: x.text, Close: func() error {
				closing <- struct{}{}
				<-end
				mu.Lock()
				defer mu.Unlock()
				used -= memory
				return nil
			}}, err
		}})
	}
	s, err := New(Options{Memory: 30, Files: files})
	require.NoError(t, err)
	got := make(chan error, 2)
	acquire := func(name string) {
		_, release, err := s.pool.acquire(t.Context(), name)
		if err == nil {
			release()
		}
		got <- err
	}
	for _, name := range []string{"a", "b"} {
		acquire(name)
		require.NoError(t, <-got)
	}
	go acquire("c")
	<-closing
	go acquire("a")
	for waits := false; !waits; runtime.Gosched() {
		m, _ := s.pool.find("a")
		s.pool.mu.Lock()
		waits = m.waiting == 1
		require.Nil(t, m.loading, "it is still being closed")
		s.pool.mu.Unlock()
	}
	close(end)
	require.NoError(t, <-got)
	require.NoError(t, <-got)
	require.NoError(t, s.Close())
	require.Zero(t, used)
	require.LessOrEqual(t, most, int64(30))
}
