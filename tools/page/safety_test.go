package page

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// hostile is Markdown that would do harm on a page that believes it.
var hostile = []string{
	`<script>window.harm = 1</script>`,
	`<img src=x onerror="window.harm = 2">`,
	`<svg onload="window.harm = 3"><a xlink:href="javascript:window.harm = 4"><text>x</text></a></svg>`,
	`<iframe srcdoc="<script>parent.harm = 5</script>"></iframe>`,
	`<math><mi//xlink:href="data:x,<script>window.harm = 6</script>">`,
	`<form action="https://example.org"><button formaction="javascript:window.harm = 7">x</button></form>`,
	`<style>body { display: none }</style><link rel=stylesheet href=https://example.org/x.css>`,
	`<base href="https://example.org/"><meta http-equiv=refresh content="0;url=https://example.org">`,
	`[a](javascript:window.harm=8) [b](JaVaScRiPt:window.harm=9) [c](&#106;avascript:window.harm=10)`,
	`[d](data:text/html,<script>window.harm=11</script>) [e](vbscript:x) [f](//example.org/x) [g]( javascript:window.harm=12)`,
	`[h](https://example.org/"onmouseover="window.harm=13) <a href="javascript:window.harm=14" onclick="window.harm=15">i</a>`,
	`![j](https://example.org/pixel.png) ![k](javascript:window.harm=16) ![" onerror="window.harm=17](x)`,
	"```html\" onmouseover=\"window.harm=18\n<script>window.harm = 19</script><img src=x onerror=window.harm=20>\n```",
	"```js\n</code></pre><script>window.harm = 21</script>\n```",
	"`<img src=x onerror=window.harm=22>`",
	`<div id="send" name="model" class="error" style="position:fixed;inset:0">clobber</div><input name=attributes>`,
	`<noscript><p title="</noscript><img src=x onerror=window.harm=23>">`,
	`<a title="x` + "`" + `><img src=x onerror=window.harm=24>">y</a>`,
	"| a |\n| --- |\n| <img src=x onerror=window.harm=25> |",
	`[l]: javascript:window.harm=26` + "\n\n[l]",
	`<javascript:window.harm=27> <https://example.org/k?a=<script>window.harm=28</script>>`,
}

// What a model writes is shown, and does nothing: no script, no listener, no request, no address but of the web and of
// mail.
func TestHostile(t *testing.T) {
	s := newSite(t, served)
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		out := newStream(w)
		out.delta(map[string]any{"reasoning_content": hostile[1]})
		for _, text := range hostile {
			for _, part := range strings.SplitAfter(text+"\n\n", "<") { // tags are cut while they come
				out.text(part)
			}
		}
		out.delta(map[string]any{"tool_calls": []any{map[string]any{"index": 0, "id": "call_1", "type": "function",
			"function": map[string]any{"name": hostile[1], "arguments": hostile[1]}}}})
		out.end("stop", 500)
	})
	x := open(t, s.URL)
	x.do(`window.violations = []; addEventListener('securitypolicyviolation', (e) => violations.push(e.violatedDirective + ' ' + e.sourceFile))`)
	x.ask(hostile[1])
	shown := x.answered()
	for _, text := range []string{"<script>window.harm = 1</script>", "<img src=x onerror=", "<iframe srcdoc=",
		"<style>body", "clobber"} {
		if !strings.Contains(shown, text) {
			t.Errorf("the text %q is not shown", text)
		}
	}
	x.wait(`document.querySelector('.hljs-tag, .hljs-name')`)
	x.holds(`window.harm === undefined`)
	bad := "script, img, svg, math, iframe, object, embed, style, link, form:not(.result-form), input, meta, base, [style], [id], [name]"
	equal(t, value[string](x, `[...document.querySelectorAll('#messages :is(`+bad+
		`)')].map((e) => e.outerHTML).join('\n')`), "")
	equal(t, value[string](x, `[...document.querySelectorAll('#messages *')].filter((e) => [...e.attributes].some((a) => `+
		`a.name.startsWith('on'))).map((e) => e.outerHTML).join('\n')`), "")
	equal(t, value[string](x, `[...document.querySelectorAll('#messages [href]')].map((e) => e.getAttribute('href'))`+
		`.filter((h) => !/^(https?|mailto):/.test(h)).join('\n')`), "")
	x.holds(`[...document.querySelectorAll('#messages a[href]')].length > 0 && [...document.querySelectorAll('#messages a[href]')]` +
		`.every((a) => a.rel.includes('noopener') && a.target === '_blank')`)
	x.holds(`[...document.querySelectorAll('#messages .prose [class]')].every((e) => /^(code-|hljs-|language-|part|wide|plain)/.test(e.className))`)
	equal(t, value[string](x, `violations.join('\n')`), "")
	x.do(`for (const a of document.querySelectorAll('#messages .prose a')) a.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }))`)
	x.holds(`window.harm === undefined && getComputedStyle(document.body).display === 'grid'`)
}

// The policy holds for every file of the page: nothing inline, nothing from elsewhere, no way to HTML but DOMPurify.
func TestPolicy(t *testing.T) {
	s := newSite(t, served)
	for _, path := range []string{"/", "/ui/main.js", "/ui/style.css", "/ui/vendor/marked.js", "/ui/icon.svg"} {
		r, err := http.Get(s.URL + path)
		check(t, err)
		r.Body.Close()
		policy := r.Header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self';",
			"style-src 'self';", "connect-src 'self';",
			"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: Content-Security-Policy %q lacks %q", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || r.StatusCode != http.StatusOK ||
			r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: status %d, headers %v", path, r.StatusCode, r.Header)
		}
	}
	x := open(t, s.URL)
	x.holds(`(() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch (e) { return e instanceof TypeError } })()`)
	x.do(`window.blocked = []; addEventListener('securitypolicyviolation', (e) => blocked.push(e.effectiveDirective))`)
	x.do(`(() => { const b = document.createElement('button'); try { b.setAttribute('onclick', 'window.harm = 1') } catch {} document.body.append(b); b.click(); b.remove();
		const i = new Image(); i.src = 'https://example.org/x.png'; fetch('https://example.org/').catch(() => {});
		const d = document.createElement('div'); d.setAttribute('style', 'color: red'); document.body.append(d); d.remove() })()`)
	x.wait(`['require-trusted-types-for', 'img-src', 'connect-src', 'style-src-attr'].every((d) => blocked.includes(d))`)
	x.holds(`window.harm === undefined`)
	x.mu.Lock()
	x.asked = nil // these were the test's
	x.mu.Unlock()
}

// A server with keys shows the page to everyone, asks for the key, says when it is wrong, and the key is kept for the
// tab only.
func TestKey(t *testing.T) {
	newSite(t, served) // skips without a browser
	check(t, os.WriteFile(filepath.Join(folder, "keys"), []byte("right-key\n"), 0o600))
	p, err := start("qwen.pte", "--api-key-file", "keys")
	check(t, err)
	defer p.end()
	s := newSite(t, p.url)
	x := open(t, s.URL)
	give := func(key string) {
		x.wait(`document.getElementById('ask-key').open && document.activeElement.id === 'asked-key'`)
		x.run(chromedp.SendKeys(chromedp.CSS("#asked-key"), key))
		x.enter()
	}
	give("wrong-key")
	x.wait(`document.getElementById('ask-key').open && document.getElementById('asked-key').value === ''`)
	x.holds(`document.getElementById('ask-key').innerText.includes('does not take the key')`)
	give("right-key")
	x.wait(`document.querySelector('#model option')`)
	x.ask("What is the capital of France?")
	equal(t, x.answered(), "The capital of France is Paris.")
	x.holds(`!JSON.stringify({ ...localStorage }).includes('right-key') && JSON.stringify({ ...sessionStorage }).includes('right-key')`)
	x.run(chromedp.Reload())
	x.wait(`document.querySelector('#model option')`)
	x.do(`sessionStorage.setItem('etc.key', 'old-key')`)
	x.ask("Hi")
	x.wait(`document.getElementById('ask-key').open && document.querySelector('.error').innerText.includes('API key')`)
}

// --no-ui leaves the page out.
func TestNoUI(t *testing.T) {
	if skipped != "" {
		t.Skip(skipped)
	}
	p, err := start("qwen.pte", "--no-ui")
	check(t, err)
	defer p.end()
	for _, path := range []string{"/", "/ui/main.js"} {
		r, err := http.Get(p.url + path)
		check(t, err)
		r.Body.Close()
		equal(t, r.StatusCode, http.StatusNotFound)
	}
}

// fails answers with an error.
func fails(status int, kind, param, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "4")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error": {"message": %q, "type": %q, "param": %q, "code": %q}}`, message, kind, param, code)
	}
}

// Errors are told in words, with what to do; what may do better later has a button for it.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		words  []string
		again  bool
	}{
		{"busy", fails(429, "rate_limit_error", "", "rate_limit_exceeded", "all places of the queue are taken"),
			[]string{"as many people as it can", "in 4 seconds"}, true},
		{"long", fails(400, "invalid_request_error", "messages", "context_length_exceeded",
			"the prompt has 900 tokens"),
			[]string{"The prompt has 900 tokens.", "512 tokens", "new chat"}, false},
		{"parameter", fails(400, "invalid_request_error", "top_k", "", "top_k: 1.5, want an integer"),
			[]string{"Top_k: 1.5", "Settings"}, true},
		{"template", fails(400, "invalid_request_error", "messages", "", "the chat template refuses them"),
			[]string{"system prompt"}, true},
		{"model", fails(404, "invalid_request_error", "model", "model_not_found", "the model does not exist"),
			[]string{"another model"}, true},
		{"stopping", fails(503, "overloaded_error", "", "", "the server is shutting down"),
			[]string{"shutting down", "when it is back"}, true},
		{"device", fails(500, "api_error", "", "", "the device failed"), []string{"The device failed.", "log"}, true},
		{"proxy", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) },
			[]string{"Status 502.", "Try again"}, true},
		{"in the stream", func(w http.ResponseWriter, _ *http.Request) {
			out := newStream(w)
			out.text("Half")
			out.send(map[string]any{"error": map[string]any{"type": "timeout_error",
				"message": "the answer took longer than --request-timeout"}})
		}, []string{"took longer", "max tokens"}, true},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			newStream(w).text("Half")
			panic(http.ErrAbortHandler)
		}, []string{"connection ended", "etc serve still runs"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, served)
			s.answer(c.answer)
			x := open(t, s.URL)
			x.ask("Hi")
			x.answered()
			text := value[string](x, `document.querySelector('.error[role=alert]:not([hidden])').innerText`)
			for _, w := range c.words {
				if !strings.Contains(text, w) {
					t.Errorf("%q does not say %q", text, w)
				}
			}
			equal(t, x.is(`document.querySelector('.error button')`), c.again)
			if c.again {
				s.answer(says("Now."))
				x.click(".error button")
				x.wait(`document.querySelector('.answer.last .prose')?.innerText.trim() === 'Now.'`)
				equal(t, messages(s.body()), []string{"user: Hi"})
			}
		})
	}
}

// A server that is gone is told too.
func TestGone(t *testing.T) {
	s := newSite(t, served)
	x := open(t, s.URL)
	s.CloseClientConnections()
	s.Listener.Close()
	x.ask("Hi")
	x.answered()
	x.holds(`document.querySelector('.error').innerText.includes('cannot be reached')`)
}

// The libraries are those of the packages on npm.
func TestVendored(t *testing.T) {
	for _, name := range []string{"npm", "openssl", "sha256sum"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("it needs %s", name)
		}
	}
	if b, err := exec.Command("npm", "ping").CombinedOutput(); err != nil {
		t.Skipf("npm's registry does not answer: %s", b)
	}
	b, err := exec.Command("sh", filepath.Join("..", "..", "runtime", "serve", "page", "vendor.sh")).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, b)
	}
}
