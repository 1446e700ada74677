package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/batch"
)

// loaded is a server under load: on a listener of its own, with a model that answers by the number in the question,
// takes a moment for every call, and fails now and then.
type loaded struct {
	*testServer
	url    string
	served chan error
	stop   context.CancelFunc
	client *http.Client
	// What became of requests, by what they were.
	right, refused, broken atomic.Int64
}

// question is the message of request i, reply the answer to it.
func question(i int) string { return fmt.Sprintf("Question %d, please.", i) }

func reply(i int) string {
	return fmt.Sprintf("The answer is %d. %s", i*7+3, strings.Repeat("word ", i%40))
}

func startLoaded(t *testing.T, drain time.Duration) *loaded {
	t.Helper()
	answer := func(prompt string) string {
		i := 0
		if at := strings.LastIndex(prompt, "Question "); at >= 0 {
			fmt.Sscanf(prompt[at:], "Question %d", &i) //nolint:errcheck // then it is 0
		}
		return reply(i)
	}
	s := startServer(t, answer, func(o *Options, x *scripted, r *batch.Options) {
		r.Sequences, r.Queue = 8, 24
		random := rand.New(rand.NewPCG(1, 2))
		x.fail = func(call int) error {
			time.Sleep(time.Duration(random.IntN(200)) * time.Microsecond)
			if call > 20 && random.IntN(400) == 0 {
				return errors.New("the device is broken")
			}
			return nil
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	out := &loaded{testServer: s, url: "http://" + l.Addr().String(), served: make(chan error, 1), stop: stop,
		client: &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}}
	go func() { out.served <- s.Serve(ctx, l, drain) }()
	return out
}

// end ends the server as a signal does, and waits for it.
func (l *loaded) end() {
	l.stop()
	select {
	case err := <-l.served:
		require.NoError(l.t, err)
	case <-time.After(30 * time.Second):
		require.Fail(l.t, "the server does not end")
	}
	l.client.CloseIdleConnections()
}

// send posts a body.
func (l *loaded) send(ctx context.Context, path, body string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, "POST", l.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return l.client.Do(q)
}

// answered takes an answer that may be right, or refused for a reason that load and faults give.
func (l *loaded) answered(code int, text, want string) {
	switch {
	case code == http.StatusOK:
		assert.Equal(l.t, want, text)
		l.right.Add(1)
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		l.refused.Add(1)
	default:
		assert.Equal(l.t, http.StatusInternalServerError, code, text)
		assert.Contains(l.t, text, "the device is broken")
		l.broken.Add(1)
	}
}

// body is a request for question i.
func (l *loaded) body(i int, more string) string {
	return fmt.Sprintf(`{"messages": [{"role": "user", "content": %q}]%s}`, question(i), more)
}

// whole asks for an answer at once.
func (l *loaded) whole(i int, more, want string) {
	r, err := l.send(context.Background(), chatPath, l.body(i, more))
	if err != nil { // the server has gone
		l.refused.Add(1)
		return
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		l.refused.Add(1)
		return
	}
	if r.StatusCode == http.StatusTooManyRequests {
		assert.NotEmpty(l.t, r.Header.Get("Retry-After"))
	}
	var o struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if r.StatusCode != http.StatusOK || !assert.NoError(l.t, json.Unmarshal(b, &o)) {
		l.answered(r.StatusCode, string(b), "")
		return
	}
	for _, c := range o.Choices {
		l.answered(http.StatusOK, c.Message.Content, want)
	}
}

// stream reads a stream, with a pause after every event, up to so many events; below 0: to the end.
func (l *loaded) stream(i int, pause time.Duration, events int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, err := l.send(ctx, chatPath, l.body(i, `, "stream": true`))
	if err != nil {
		l.refused.Add(1)
		return
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(r.Body)
		l.answered(r.StatusCode, string(b), "")
		return
	}
	text, ended := "", false
	for in := bufio.NewScanner(r.Body); in.Scan() && events != 0; {
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok {
			continue
		}
		if ended = data == "[DONE]"; ended {
			break
		}
		var e struct {
			Error   *struct{ Message string }
			Choices []struct{ Delta struct{ Content string } }
		}
		if !assert.NoError(l.t, json.Unmarshal([]byte(data), &e), data) {
			return
		}
		if e.Error != nil {
			l.broken.Add(1)
			return
		}
		for _, c := range e.Choices {
			text += c.Delta.Content
		}
		assert.True(l.t, strings.HasPrefix(reply(i), text), "%q of %q", text, reply(i))
		time.Sleep(pause)
		events--
	}
	if ended {
		l.answered(http.StatusOK, text, reply(i))
	}
}

// raw sends bytes over a connection and closes it after a while.
func (l *loaded) raw(text string, wait time.Duration) {
	c, err := net.Dial("tcp", strings.TrimPrefix(l.url, "http://"))
	if err != nil {
		return
	}
	defer c.Close()
	io.WriteString(c, text) //nolint:errcheck // the server may have closed it
	time.Sleep(wait)
}

// bad sends a body that has to be refused.
func (l *loaded) bad(path, body string) {
	r, err := l.send(context.Background(), path, body)
	if err != nil {
		return
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	assert.Contains(l.t, []int{400, 404, 413, 431, 503}, r.StatusCode, "%s: %s", body[:min(len(body), 80)], b)
}

// visit does one thing that a client does.
func (l *loaded) visit(random *rand.Rand, i int) {
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
	switch random.IntN(16) {
	case 0, 1, 2, 3:
		l.whole(i, "", reply(i))
	case 4:
		l.whole(i, `, "n": 3`, reply(i))
	case 5:
		l.whole(i, `, "regex": "(yes|no)!", "ignore_eos": false, "logit_bias": {"1": -5}`, l.held())
	case 6, 7:
		l.stream(i, 0, -1)
	case 8:
		l.stream(i, time.Millisecond, -1)
	case 9, 10:
		l.stream(i, 0, random.IntN(6))
	case 11: // gone before the answer
		b := l.body(i, `, "stream": true`)
		l.raw(fmt.Sprintf("%s%d\r\n\r\n%s", head, len(b), b), time.Duration(random.IntN(2000))*time.Microsecond)
	case 12: // gone in the middle of the body, or of a header
		l.raw(head+"100\r\n\r\n{\"mess", time.Millisecond)
		l.raw("POST /v1/chat", time.Millisecond)
	case 13:
		l.bad(chatPath, []string{"", "{", `{"messages": 3}`, `{"a": 1}`, strings.Repeat("[", 5000),
			"\x00\xff"}[random.IntN(6)])
		l.bad("/v1/nothing", "{}")
		l.raw("\x16\x03\x01\x02\x00 this is no HTTP\r\n\r\n", 0)
	case 14:
		q, err := http.NewRequest("GET", l.url+"/v1/models", nil)
		assert.NoError(l.t, err)
		q.Header.Set("X-Long", strings.Repeat("x", 80<<10))
		if r, err := l.client.Do(q); err == nil {
			r.Body.Close()
			assert.Equal(l.t, http.StatusRequestHeaderFieldsTooLarge, r.StatusCode)
		}
	case 15:
		l.slot(random, i)
	}
}

// held is what the model makes of "(yes|no)!": the scripted logits decide, always alike.
func (l *loaded) held() string { return "no!" }

// slot saves or restores a state; the disk is full now and then.
func (l *loaded) slot(random *rand.Rand, i int) {
	path := []string{savePath, restorePath}[random.IntN(2)]
	body := map[string]string{savePath: l.body(i, ""), restorePath: "{}"}[path]
	l.exec.slots.mu.Lock()
	l.exec.slots.err = []error{nil, syscall.ENOSPC}[random.IntN(2)]
	l.exec.slots.mu.Unlock()
	r, err := l.send(context.Background(), path, body)
	if err != nil {
		return
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	assert.Contains(l.t, []int{200, 404, 429, 500, 503, 507}, r.StatusCode, string(b))
}

// visits are so many, of some clients at a time, which pause at random.
func (l *loaded) visits(clients, n int) {
	var wait sync.WaitGroup
	var next atomic.Int64
	for c := range clients {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 5))
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				l.visit(random, i)
				time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
			}
		})
	}
	wait.Wait()
}

// TestLoad: of an hour's worth of clients that arrive at random, ask, stream, break off, go away, read slowly and send
// what is wrong, while the device fails now and then and the disk is full, each gets its own answer or an error that
// says why. Afterwards nothing is left of them: no sequence, no unit of the cache, no goroutine, no open file.
func TestLoad(t *testing.T) {
	visits := 4000
	if testing.Short() {
		visits = 200
	}
	before, files := runtime.NumGoroutine(), openFiles()
	l := startLoaded(t, 10*time.Second)
	l.visits(32, visits)
	runner := l.runner()
	require.Eventually(t, func() bool { return runner.Active() == 0 }, 20*time.Second,
		time.Millisecond, "sequences are left")
	require.NoError(t, runner.Do(t.Context(), func(batch.Executor) {}))
	l.whole(5, "", reply(5))
	stats := runner.Stats()
	require.Equal(t, stats.Used, stats.Idle, "units are held by nobody")
	require.Positive(t, l.right.Load())
	t.Logf("%d right, %d refused, %d with an error of the device; %d calls, of which %d failed",
		l.right.Load(), l.refused.Load(),
		l.broken.Load(), stats.Calls, stats.Failed)
	require.Greater(t, l.right.Load(), int64(visits/20))
	l.end()
	require.True(t, l.exec.closed)
	l.http.Close()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 20*time.Second, 5*time.Millisecond,
		"goroutines are left")
	require.Eventually(t, func() bool { return openFiles() <= files }, 20*time.Second, 5*time.Millisecond,
		"files or connections are left open")
}

// openFiles is how many files and connections the process has open, where the system tells; else 0.
func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}

// TestSignalUnderLoad: a server that is told to end in the middle of it all ends, and so do all clients: with a right
// answer, or with an error.
func TestSignalUnderLoad(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, drain := range []time.Duration{0, 5 * time.Millisecond, 10 * time.Second} {
		l := startLoaded(t, drain)
		done := make(chan struct{})
		go func() { l.visits(16, 300); close(done) }()
		time.Sleep(30 * time.Millisecond)
		l.end()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			require.Fail(t, "clients hang")
		}
		require.True(t, l.exec.closed)
		l.http.Close()
		l.client.CloseIdleConnections()
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 20*time.Second, 5*time.Millisecond,
		"goroutines are left")
}

// TestSlowReadersHoldNobody: while clients read nothing of long answers, others get theirs.
func TestSlowReadersHoldNobody(t *testing.T) {
	l := startLoaded(t, 0)
	defer l.end()
	var slow []*http.Response
	for i := range 8 { // as many as run at a time
		r, err := l.send(t.Context(), chatPath, l.body(39+40*i, `, "stream": true`))
		require.NoError(t, err)
		slow = append(slow, r)
	}
	for i := range 20 {
		l.whole(i, "", reply(i))
	}
	require.Positive(t, l.right.Load())
	for _, r := range slow {
		r.Body.Close()
	}
}

// lockedWriter writes for one goroutine at a time.
type lockedWriter struct {
	w  io.Writer
	mu *sync.Mutex
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// askUnread asks for a long answer at an address and reads nothing of it. Its connection stays open until the test ends.
func askUnread(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(4096))
	b := `{` + hello + `, "stream": true, "n": 8, "logprobs": true, "top_logprobs": 20}`
	_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s",
		len(b), b)
	require.NoError(t, err)
}

// TestUnreadAnswersAreCut: a client that reads nothing of an answer, though its connection stays open, is cut in the
// end.
func TestUnreadAnswersAreCut(t *testing.T) {
	var log strings.Builder
	var mu sync.Mutex
	s := startServer(t, does(strings.Repeat("word ", 1500)), func(o *Options, _ *scripted, _ *batch.Options) {
		o.WriteTime = 50 * time.Millisecond
		o.Log = slog.New(slog.NewTextHandler(lockedWriter{&log, &mu}, nil))
	})
	askUnread(t, strings.TrimPrefix(s.http.URL, "http://"))
	require.Eventually(t, func() bool {
		_, text := s.get("/metrics")
		return strings.Contains(text, `etc_requests_total{path="/v1/chat/completions",status="200"} 1`)
	}, 30*time.Second, 10*time.Millisecond, "the request is still there")
	require.Eventually(t, func() bool { return s.runner().Active() == 0 }, 20*time.Second, time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Contains(t, log.String(), "i/o timeout", "it was cut, not sent to its end")
}

// TestEndBesideAnUnreadAnswer: a client that reads nothing of its answer does not hold a server that is told to end:
// its connection is closed when the time to drain is over.
func TestEndBesideAnUnreadAnswer(t *testing.T) {
	s := startServer(t, does(strings.Repeat("word ", 1500)), func(o *Options, _ *scripted, _ *batch.Options) {
		o.WriteTime = time.Hour
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l, 0) }()
	askUnread(t, l.Addr().String())
	answers := func() float64 { return s.scrape()["etc_calls_total"].Metric[0].GetCounter().GetValue() }
	for last, same := -1.0, 0; same < 20; time.Sleep(10 * time.Millisecond) { // until nothing goes on: a write waits
		if n := answers(); n == last && n > 10 {
			same++
		} else {
			last, same = n, 0
		}
	}
	stop()
	select {
	case err := <-served:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		require.Fail(t, "the server does not end")
	}
}
