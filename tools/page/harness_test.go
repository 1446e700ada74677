// Package page tests the page of etc serve in Chromium. It is a module of its own, so that chromedp is no dependency of
// etc.
package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	cdruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for what must come. Only a page that is wrong takes so long.
const patience = 30 * time.Second

// What TestMain makes for all tests.
var (
	allocator context.Context // of the browser; nil: there is none, skipped says why
	skipped   string
	program   string // etc
	folder    string // with qwen.pte and gemma.pte
	served    string // the address of etc serve qwen.pte gemma.pte
)

func TestMain(m *testing.M) {
	code, err := around(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// around starts the browser and the server, runs the tests and ends both.
func around(m *testing.M) (int, error) {
	path := browserPath()
	if path == "" {
		skipped = "there is no Chromium: install chromium, or say where one is with CHROMIUM=PATH"
		return m.Run(), nil
	}
	var err error
	if folder, err = os.MkdirTemp("", "etc-page"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	if err := prepare(); err != nil {
		return 1, err
	}
	server, err := start("qwen.pte", "gemma.pte")
	if err != nil {
		return 1, err
	}
	defer server.end()
	served = server.url
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("force-color-profile", "srgb"))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	defer cancel()
	allocator, cancel = chromedp.NewContext(ctx)
	defer cancel()
	if err := chromedp.Do(allocator); err != nil {
		return 1, fmt.Errorf("%s does not start: %w", path, err)
	}
	return m.Run(), nil
}

// browserPath finds Chromium.
func browserPath() string {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// prepare builds etc, unless ETC says where it is, and exports the chat checkpoints.
func prepare() error {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	if program = os.Getenv("ETC"); program == "" {
		program = filepath.Join(folder, "etc")
		build := exec.Command("go", "build", "-o", program, "./cmd/etc")
		build.Dir = root
		if b, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build ./cmd/etc: %w\n%s", err, b)
		}
	}
	for file, checkpoint := range map[string]string{"qwen.pte": "qwen35moe-chat", "gemma.pte": "gemma4-chat"} {
		b, err := exec.Command(program, "export", filepath.Join(root, "testdata", "checkpoints", checkpoint), "-o",
			filepath.Join(folder, file), "--max-seq-len", "512").CombinedOutput()
		if err != nil {
			return fmt.Errorf("etc export %s: %w\n%s", checkpoint, err, b)
		}
	}
	return nil
}

// process is an etc serve.
type process struct {
	*exec.Cmd
	url string
}

// start starts etc serve with the files and flags.
func start(args ...string) (*process, error) {
	p := &process{Cmd: exec.Command(program, append([]string{"serve", "--port", "0", "--device", "cpu"}, args...)...)}
	p.Dir = folder
	pipe, err := p.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	found := make(chan string, 1)
	go func() {
		in := bufio.NewScanner(pipe)
		var lines []string
		for in.Scan() {
			lines = append(lines, in.Text())
			if _, address, ok := strings.Cut(in.Text(), " on http"); ok {
				found <- "http" + address
			}
		}
		if p.url == "" {
			fmt.Fprintln(os.Stderr, strings.Join(lines, "\n"))
		}
	}()
	select {
	case p.url = <-found:
		return p, nil
	case <-time.After(time.Minute):
		p.end()
		return nil, fmt.Errorf("etc serve %v is not ready after a minute", args)
	}
}

// end ends the server.
func (p *process) end() {
	p.Process.Kill() //nolint:errcheck // it may have ended
	p.Wait()         //nolint:errcheck // it was killed
}

// site is etc serve behind a proxy, where a test can answer chats itself.
type site struct {
	*httptest.Server
	t       *testing.T
	mu      sync.Mutex
	answers []http.HandlerFunc
	bodies  []map[string]any
}

// newSite makes a site in front of the server at an address.
func newSite(t *testing.T, address string) *site {
	t.Helper()
	if skipped != "" {
		t.Skip(skipped)
	}
	to, err := url.Parse(address)
	check(t, err)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Del("Origin")
	}}
	s := &site{t: t}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := s.next(r); f != nil {
			f(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// next notes the body of a request for an answer, and gives what answers it, nil for the server.
func (s *site) next(r *http.Request) http.HandlerFunc {
	if r.URL.Path != "/v1/chat/completions" {
		return nil
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(strings.NewReader(string(b)))
	var body map[string]any
	json.Unmarshal(b, &body) //nolint:errcheck // then it is nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, body)
	if len(s.answers) == 0 {
		return nil
	}
	f := s.answers[0]
	s.answers = s.answers[1:]
	return f
}

// answer adds an answer of the test's own to the next question.
func (s *site) answer(f http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, f)
}

// body gives the last request for an answer.
func (s *site) body() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bodies) == 0 {
		s.t.Fatal("no answer was asked for")
	}
	return s.bodies[len(s.bodies)-1]
}

// stream writes the chunks of a chat completion.
type stream struct{ w http.ResponseWriter }

func newStream(w http.ResponseWriter) stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Etc-Seed", "7")
	return stream{w}
}

func (s stream) send(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(s.w, "data: %s\n\n", b)
	s.w.(http.Flusher).Flush()
}

func (s stream) delta(delta map[string]any) {
	s.send(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": nil}}})
}

func (s stream) text(text string) { s.delta(map[string]any{"content": text}) }

func (s stream) end(reason string, tokens int) {
	s.send(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{},
		"finish_reason": reason}}})
	s.send(map[string]any{"choices": []any{}, "usage": map[string]any{"prompt_tokens": 20, "completion_tokens": tokens,
		"prompt_tokens_details": map[string]any{"cached_tokens": 16}}})
	io.WriteString(s.w, "data: [DONE]\n\n") //nolint:errcheck // the page is gone
}

// says answers with texts, one chunk each.
func says(texts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s := newStream(w)
		for _, text := range texts {
			s.text(text)
		}
		s.end("stop", len(texts))
	}
}

// action is a step in a tab that gives nothing.
type action = chromedp.Action[chromedp.Void]

// tab is a tab of the browser with nothing in its storages.
type tab struct {
	t     *testing.T
	ctx   context.Context
	mu    sync.Mutex
	asked []string // addresses
	wrong []string // exceptions
}

// open opens the page at an address. No tab may ask anything of another place, or throw an exception.
func open(t *testing.T, address string, before ...action) *tab {
	t.Helper()
	first, cancel := chromedp.NewContext(allocator, chromedp.WithNewBrowserContext())
	check(t, chromedp.Do(first))
	ctx, stop := context.WithTimeout(first, 4*patience)
	x := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		x.check(address)
		stop()
		cancel()
	})
	check(t, chromedp.Listen(ctx, x.hear))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	check(t, err)
	_, err = chromedp.Call(ctx, emulation.SetFocusEmulationEnabled,
		emulation.SetFocusEmulationEnabledParams{Enabled: true})
	check(t, err)
	x.run(before...)
	x.run(chromedp.Navigate(address))
	x.wait(`document.querySelector('#model option') || document.querySelector('dialog[open]') || !notice.hidden`)
	return x
}

// hear notes what the tab asks for, and what goes wrong in it.
func (x *tab) hear(ev any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch e := ev.(type) {
	case *network.EventRequestWillBeSent:
		x.asked = append(x.asked, e.Request.URL)
	case *cdruntime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if o := e.ExceptionDetails.Exception; o != nil {
			text += " " + o.Description
		}
		x.wrong = append(x.wrong, text)
	}
}

// check looks at what the tab did.
func (x *tab) check(address string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, u := range x.asked {
		if !strings.HasPrefix(u, address) && !strings.HasPrefix(u, "blob:"+address) && !strings.HasPrefix(u, "data:") {
			x.t.Errorf("the page asked %s", u)
		}
	}
	for _, e := range x.wrong {
		x.t.Errorf("exception: %s", e)
	}
}

func (x *tab) run(actions ...action) {
	x.t.Helper()
	if err := chromedp.Do(x.ctx, actions...); err != nil {
		x.t.Fatal(err)
	}
}

// is evaluates a condition.
func (x *tab) is(js string) bool {
	x.t.Helper()
	return value[bool](x, "Boolean("+js+")")
}

// value evaluates an expression.
func value[T any](x *tab, js string) T {
	x.t.Helper()
	v, err := chromedp.Run(x.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		x.t.Fatalf("%s: %v", js, err)
	}
	return v
}

// do evaluates a statement.
func (x *tab) do(js string) {
	x.t.Helper()
	x.run(chromedp.Evaluate[chromedp.Void](js))
}

// wait waits until a condition holds.
func (x *tab) wait(js string) {
	x.t.Helper()
	for end := time.Now().Add(patience); !x.is(js); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("this did not come to hold: %s\n%s", js, value[string](x, `document.body.innerText`))
		}
	}
}

// holds fails the test unless a condition holds.
func (x *tab) holds(js string) {
	x.t.Helper()
	if !x.is(js) {
		x.t.Errorf("this does not hold: %s", js)
	}
}

// press presses keys, one after the other.
func (x *tab) press(keys ...string) {
	x.t.Helper()
	for _, k := range keys {
		x.run(chromedp.KeyEvent(k))
	}
}

// enter presses Enter as a keyboard does: one event whose default is the line break.
func (x *tab) enter() {
	x.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown,
		input.DispatchKeyEventTypeKeyUp} {
		p := input.DispatchKeyEventParams{Type: kind, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13}
		if kind == input.DispatchKeyEventTypeKeyDown {
			p.Text = "\r"
		}
		_, err := chromedp.Call(x.ctx, input.DispatchKeyEvent, p)
		check(x.t, err)
	}
}

// click clicks on an element.
func (x *tab) click(selector string) {
	x.t.Helper()
	x.run(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// ask types a message and sends it.
func (x *tab) ask(text string) {
	x.t.Helper()
	x.run(chromedp.SendKeys(chromedp.CSS("#message"), text))
	x.enter()
}

// answered waits until the last answer is complete, and gives its text.
func (x *tab) answered() string {
	x.t.Helper()
	x.wait(`document.querySelector('.answer.last') && document.querySelector('.answer.last').getAttribute('aria-busy') == 'false'`)
	return value[string](x, `document.querySelector('.answer.last .prose').innerText.trim()`)
}

// stored waits until the browser has kept what the page shows as complete.
func (x *tab) stored() {
	x.t.Helper()
	const js = `new Promise((done) => { const q = indexedDB.open('etc', 1); q.onsuccess = () => {
		const all = q.result.transaction('chats').objectStore('chats').getAll();
		all.onsuccess = () => { q.result.close();
			done(all.result.length > 0 && all.result.every((c) => c.messages.every((m) => m.role === 'user' || m.end))) } } })`
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ok, err := chromedp.Run(x.ctx, chromedp.Evaluate[bool](js, chromedp.EvalAwaitPromise))
		check(x.t, err)
		if ok {
			return
		}
		if time.Now().After(end) {
			x.t.Fatal("the chats were not kept")
		}
	}
}

// set chooses a value of a field in Settings, which must be open.
func (x *tab) set(id, v string) {
	x.t.Helper()
	x.do(fmt.Sprintf(`(() => { const e = document.getElementById(%q); e.value = %q;
		for (const n of ['input', 'change']) e.dispatchEvent(new Event(n, { bubbles: true })); })()`, id, v))
}

// size makes the window so large.
func size(width, height int64) action { return chromedp.EmulateViewport(width, height) }

// scheme is what the system prefers, "light" or "dark".
func scheme(name string) action {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
		return err
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
