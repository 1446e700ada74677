package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testCommit = "0123456789abcdef0123456789abcdef01234567"

// fakeHub is a hub on loopback whose large files lie on a second host, as those of Hugging Face do.
type fakeHub struct {
	t        *testing.T
	files    map[string]string
	hub, far *httptest.Server
	cache    string

	mu       sync.Mutex
	requests []string // method, path and range of every request for content
	logs     []string
	waits    []time.Duration
	// n counts requests of far, from 0; true: answered
	misbehave func(w http.ResponseWriter, r *http.Request, n int) bool
	listing   func(w http.ResponseWriter, n int) bool
	listed    int
}

const large = "model.safetensors"

func newFakeHub(t *testing.T) *fakeHub {
	h := &fakeHub{t: t, cache: t.TempDir(), files: map[string]string{
		"config.json": `{"model_type": "x"}`, "tokenizer.json": "{}", "README.md": "no",
		large: strings.Repeat("0123456789", 20_000)}}
	h.hub = httptest.NewServer(http.HandlerFunc(h.serveHub))
	h.far = httptest.NewServer(http.HandlerFunc(h.serveFar))
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.far.Close)
	return h
}

func (h *fakeHub) hash(name string) string {
	content := h.files[name]
	if strings.HasSuffix(name, ".safetensors") {
		sum := sha256.Sum256([]byte(content))
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(content), content)))
	return hex.EncodeToString(sum[:])
}

func (h *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Authorization"); got != "Bearer secret" {
		w.Header().Set("X-Error-Message", "Invalid credentials")
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/api/") {
		h.mu.Lock()
		n := h.listed
		h.listed++
		h.mu.Unlock()
		if h.listing != nil && h.listing(w, n) {
			return
		}
		if r.URL.Path != "/api/models/org/name/revision/main" &&
			r.URL.Path != "/api/models/org/name/revision/"+testCommit {
			http.NotFound(w, r)
			return
		}
		var names []string
		for name := range h.files {
			names = append(names, fmt.Sprintf(`{"rfilename": %q}`, name))
		}
		fmt.Fprintf(w, `{"sha": %q, "siblings": [%s]}`, testCommit, strings.Join(names, ","))
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/org/name/resolve/"+testCommit+"/")
	content, known := h.files[name]
	if !ok || !known {
		http.NotFound(w, r)
		return
	}
	if strings.HasSuffix(name, ".safetensors") {
		w.Header().Set("X-Linked-Etag", `"`+h.hash(name)+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
		http.Redirect(w, r, h.far.URL+"/"+name+"?signature=x", http.StatusFound)
		return
	}
	h.note(r)
	w.Header().Set("Etag", `W/"`+h.hash(name)+`"`)
	http.ServeContent(w, r, name, time.Time{}, strings.NewReader(content))
}

func (h *fakeHub) note(r *http.Request) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Method == http.MethodGet {
		h.requests = append(h.requests, strings.TrimSpace(filepath.Base(r.URL.Path)+" "+r.Header.Get("Range")))
	}
	n := -1
	for _, q := range h.requests {
		if strings.Contains(q, ".safetensors") {
			n++
		}
	}
	return n
}

func (h *fakeHub) serveFar(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		h.t.Error("the token went to another host")
	}
	n := h.note(r)
	if h.misbehave != nil && h.misbehave(w, r, n) {
		return
	}
	w.Header().Set("Etag", `"other"`)
	http.ServeContent(w, r, "x", time.Time{}, strings.NewReader(h.files[filepath.Base(r.URL.Path)]))
}

func (h *fakeHub) options() Options {
	return Options{Endpoint: h.hub.URL, Token: "secret", Cache: h.cache, Jobs: 2,
		Log: func(format string, args ...any) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.logs = append(h.logs, fmt.Sprintf(format, args...))
		},
		Wait: func(d time.Duration) <-chan time.Time {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.waits = append(h.waits, d)
			c := make(chan time.Time, 1)
			c <- time.Time{}
			return c
		}}
}

func (h *fakeHub) fetch(o Options) (string, error) {
	return Fetch(context.Background(), Repo{"org/name", "main"}, o)
}

// check holds what is in a snapshot against the hub's files.
func (h *fakeHub) check(dir string) {
	h.t.Helper()
	for name, want := range h.files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if name == "README.md" {
			require.ErrorIs(h.t, err, os.ErrNotExist, "only what export reads is fetched")
			continue
		}
		require.NoError(h.t, err)
		require.Equal(h.t, want, string(got), name)
	}
}

func (h *fakeHub) incomplete() string {
	return filepath.Join(h.cache, "models--org--name", "blobs", h.hash(large)+".incomplete")
}

func TestFetch(t *testing.T) {
	h := newFakeHub(t)
	var last, total int64
	o := h.options()
	o.Jobs = 1
	o.Progress = func(d, n int64) { last, total = d, n }
	dir, err := h.fetch(o)
	require.NoError(t, err)
	h.check(dir)
	require.Equal(t, filepath.Join(h.cache, "models--org--name", "snapshots", testCommit), dir)
	require.Equal(t, total, last)
	require.EqualValues(t, len(h.files["config.json"])+len(h.files["tokenizer.json"])+len(h.files[large]), total)
	ref, err := os.ReadFile(filepath.Join(h.cache, "models--org--name", "refs", "main"))
	require.NoError(t, err)
	require.Equal(t, testCommit, string(ref))
	target, err := os.Readlink(filepath.Join(dir, large))
	require.NoError(t, err)
	require.Equal(t, filepath.Join("..", "..", "blobs", h.hash(large)), target)

	// What is there is not fetched again; a commit needs no network, and neither does offline mode.
	before := len(h.requests)
	_, err = h.fetch(h.options())
	require.NoError(t, err)
	require.Len(t, h.requests, before)
	h.hub.Close()
	_, err = Fetch(context.Background(), Repo{"org/name", testCommit}, h.options())
	require.NoError(t, err)
	o = h.options()
	o.Offline = true
	again, err := h.fetch(o)
	require.NoError(t, err)
	require.Equal(t, dir, again)

	// A hub that does not answer: the snapshot that is known, with a warning.
	again, err = h.fetch(h.options())
	require.NoError(t, err)
	require.Equal(t, dir, again)
	require.Contains(t, strings.Join(h.logs, "\n"), "using the snapshot of "+testCommit)

	require.NoError(t, os.Remove(filepath.Join(h.cache, "models--org--name", "blobs", h.hash(large))))
	_, err = h.fetch(o)
	require.ErrorContains(t, err, "org/name@main: expected model.safetensors in "+dir+
		", found none, and HF_HUB_OFFLINE forbids to download it")
}

// TestMisbehaviour: a file comes whole whatever the server does, or there is an error and no file.
func TestMisbehaviour(t *testing.T) {
	half := func(h *fakeHub) string { return h.files[large][:100_000] }
	cut := func(h *fakeHub, w http.ResponseWriter, content string) { // more is announced than comes
		w.Header().Set("Content-Length", strconv.Itoa(len(h.files[large])))
		w.Write([]byte(content)) //nolint:errcheck
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	tests := []struct {
		name     string
		answer   func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool
		kept     func(h *fakeHub) string // in .incomplete from an earlier time
		requests []string                // for the large file
		waits    []time.Duration
		err      string
	}{
		{name: "cut", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			if n == 0 {
				cut(h, w, half(h))
			}
			return false
		}, requests: []string{large, large + " bytes=100000-"}, waits: []time.Duration{time.Second}},
		{name: "cut without a length", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			if n == 0 {
				w.(http.Flusher).Flush()
				w.Write([]byte(half(h))) //nolint:errcheck
			}
			return n == 0
		}, requests: []string{large, large + " bytes=100000-"}},
		{name: "kept", kept: half, requests: []string{large + " bytes=100000-"}},
		{name: "kept whole", kept: func(h *fakeHub) string { return h.files[large] }},
		{name: "kept of another file", kept: func(h *fakeHub) string { return strings.Repeat("x", 100_000) },
			requests: []string{large + " bytes=100000-", large}},
		{name: "kept too much", kept: func(h *fakeHub) string { return h.files[large] + "x" },
			requests: []string{large}},
		{name: "no ranges", kept: half, answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			w.Write([]byte(h.files[large])) //nolint:errcheck
			return true
		}, requests: []string{large + " bytes=100000-"}},
		{name: "wrong range", kept: half, answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			if n == 0 {
				w.Header().Set("Content-Range", "bytes 5-199999/200000")
				w.WriteHeader(http.StatusPartialContent)
				w.Write([]byte(h.files[large][5:])) //nolint:errcheck
			}
			return n == 0
		}, requests: []string{large + " bytes=100000-", large}},
		{name: "range not satisfiable", kept: half,
			answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
				if n == 0 {
					w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				}
				return n == 0
			}, requests: []string{large + " bytes=100000-", large}},
		{name: "429", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			if n == 0 {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
			}
			return n == 0
		}, requests: []string{large, large}, waits: []time.Duration{7 * time.Second}},
		{name: "429 for a day", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}, err: "it asks to wait for 24h0m0s"},
		{name: "5xx", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			if n < 2 {
				w.WriteHeader(http.StatusBadGateway)
			}
			return n < 2
		}, requests: []string{large, large, large}, waits: []time.Duration{time.Second, 2 * time.Second}},
		{name: "5xx for ever", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}, err: "org/name/model.safetensors: the download: the hub answers 500 Internal Server Error after 0 of 200000 bytes, which are kept for the next time"},
		{name: "longer", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			w.(http.Flusher).Flush()
			w.Write([]byte(h.files[large] + "x")) //nolint:errcheck
			return true
		}, err: "expected 200000 bytes, found more"},
		{name: "another length", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			w.Write([]byte(half(h)[:10])) //nolint:errcheck
			return true
		}, err: "expected 200000 bytes, found an answer of 10"},
		{name: "wrong content once", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			if n == 0 {
				w.Write([]byte(strings.Repeat("x", len(h.files[large])))) //nolint:errcheck
			}
			return n == 0
		}, requests: []string{large, large}},
		{name: "wrong content", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			w.Write([]byte(strings.Repeat("x", len(h.files[large])))) //nolint:errcheck
			return true
		}, err: "expected content with the hash "},
		{name: "gone", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			http.NotFound(w, r)
			return true
		}, err: "the hub answers 404 Not Found"},
		{name: "redirects in a circle", answer: func(h *fakeHub, w http.ResponseWriter, r *http.Request, n int) bool {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
			return true
		}, err: "more than 10 redirects"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newFakeHub(t)
			if test.answer != nil {
				h.misbehave = func(w http.ResponseWriter, r *http.Request,
					n int) bool {
					return test.answer(h, w, r, n)
				}
			}
			if test.kept != nil {
				require.NoError(t, os.MkdirAll(filepath.Dir(h.incomplete()), 0o777))
				require.NoError(t, os.WriteFile(h.incomplete(), []byte(test.kept(h)), 0o666))
			}
			dir, err := h.fetch(h.options())
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				require.NotContains(t, err.Error()+strings.Join(h.logs, ""), "secret")
				require.NotContains(t, err.Error()+strings.Join(h.logs, ""), "signature")
				require.NoFileExists(t, strings.TrimSuffix(h.incomplete(), ".incomplete"))
				return
			}
			require.NoError(t, err)
			h.check(dir)
			require.NoFileExists(t, h.incomplete())
			var got []string
			for _, r := range h.requests {
				if strings.HasPrefix(r, large) {
					got = append(got, r)
				}
			}
			require.Equal(t, test.requests, got)
			if test.waits != nil {
				require.Equal(t, test.waits, h.waits)
			}
		})
	}
}

// TestInterrupted: what has come stays for the next time.
func TestInterrupted(t *testing.T) {
	h := newFakeHub(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h.misbehave = func(w http.ResponseWriter, r *http.Request, n int) bool {
		w.Header().Set("Content-Length", strconv.Itoa(len(h.files[large])))
		w.Write([]byte(h.files[large][:100_000])) //nolint:errcheck
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	o := h.options()
	o.Progress = func(done, _ int64) {
		if done >= 100_000 {
			cancel()
		}
	}
	_, err := Fetch(ctx, Repo{"org/name", "main"}, o)
	require.ErrorIs(t, err, context.Canceled)
	kept, err := os.ReadFile(h.incomplete())
	require.NoError(t, err)
	require.Equal(t, h.files[large][:len(kept)], string(kept))
	require.NotEmpty(t, kept)

	h.misbehave = nil
	dir, err := h.fetch(h.options())
	require.NoError(t, err)
	h.check(dir)
	require.Equal(t, fmt.Sprintf("%s bytes=%d-", large, len(kept)), h.requests[len(h.requests)-1])
}

// TestTwoProcesses: of two that want a file at a time one downloads it, the other waits and finds it.
func TestTwoProcesses(t *testing.T) {
	h := newFakeHub(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			dir, err := h.fetch(h.options())
			if err != nil {
				t.Error(err)
				return
			}
			h.check(dir)
		})
	}
	group.Wait()
	count := 0
	for _, r := range h.requests {
		if r == large {
			count++
		}
	}
	require.Equal(t, 1, count)
}

func TestShards(t *testing.T) {
	h := newFakeHub(t)
	delete(h.files, large)
	h.files["model-1.safetensors"], h.files["model-2.safetensors"] = "one", "two"
	h.files["model.safetensors.index.json"] = `{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}`
	dir, err := h.fetch(h.options())
	require.NoError(t, err)
	h.check(dir)

	h.files["model.safetensors.index.json"] = `{"weight_map": {"a": "../../model-1.safetensors"}}`
	o := h.options()
	o.Cache = t.TempDir()
	_, err = h.fetch(o)
	require.ErrorContains(t, err, `tensor "a": expected the name of a *.safetensors file, found "../../model-1.safetensors"`)
}

func TestListing(t *testing.T) {
	tests := []struct {
		name, token, revision string
		files                 map[string]string
		listing               func(w http.ResponseWriter, n int) bool
		err                   string
	}{
		{name: "no token", err: "org/name@main: the hub answers 401 Unauthorized (Invalid credentials); it may not exist, or need a token: set HF_TOKEN, and accept the model's terms on its page"},
		{name: "revision", token: "secret", revision: "none",
			err: "org/name@none: the hub answers 404 Not Found; check the name and the revision"},
		{name: "no JSON", token: "secret",
			listing: func(w http.ResponseWriter, _ int) bool { fmt.Fprint(w, "<html>"); return true },
			err:     `org/name@main: expected the commit and the files of the revision, found "<html>"`},
		{name: "no commit", token: "secret",
			listing: func(w http.ResponseWriter, _ int) bool { fmt.Fprint(w, `{"sha": "../x"}`); return true },
			err:     "expected the commit and the files of the revision"},
		{name: "no checkpoint", token: "secret", files: map[string]string{"a": ""},
			err: "org/name@main: expected a checkpoint with config.json, found 1 files without it"},
		{name: "GGUF", token: "secret", files: map[string]string{"a.gguf": ""},
			err: "found GGUF files; download one and export it by its path: a.gguf"},
		{name: "no weights", token: "secret", files: map[string]string{"config.json": "{}"},
			err: "expected model.safetensors or model.safetensors.index.json, found 0 *.safetensors files"},
		{name: "retried", token: "secret", listing: func(w http.ResponseWriter, n int) bool {
			if n < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return n < 3
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newFakeHub(t)
			h.listing = test.listing
			if test.files != nil {
				h.files = test.files
			}
			o := h.options()
			o.Token = test.token
			r := Repo{"org/name", "main"}
			if test.revision != "" {
				r.Revision = test.revision
			}
			_, err := Fetch(context.Background(), r, o)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}
		})
	}
}

func TestParseRepo(t *testing.T) {
	for id, want := range map[string]Repo{
		"Qwen/Qwen3.5-35B-A3B": {"Qwen/Qwen3.5-35B-A3B", "main"}, "a/b@v1": {"a/b", "v1"},
		"a/b@refs/pr/1": {"a/b", "refs/pr/1"},
	} {
		r, err := ParseRepo(id)
		require.NoError(t, err)
		require.Equal(t, want, r)
	}
	for _, id := range []string{"", "a", "a/b/c", "/a/b", "./a", "../a", "a/..", "a/b@", "a/b@../c", "a/b@c/",
		"a/b@c//d", "a b/c", "a/b\n", "a--b/c", "a/b@-x", `a\b`} {
		_, err := ParseRepo(id)
		require.ErrorContains(t, err, "expected org/name", id)
	}
}

func TestEnvironment(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "token"), []byte("of-file\n"), 0o600))
	other := filepath.Join(home, "other")
	require.NoError(t, os.WriteFile(other, []byte("elsewhere"), 0o600))
	tests := []struct {
		env  map[string]string
		want Options
		err  string
	}{
		{env: map[string]string{"HF_HOME": home}, want: Options{Endpoint: "https://huggingface.co", Token: "of-file",
			Cache: filepath.Join(home, "hub")}},
		{env: map[string]string{"XDG_CACHE_HOME": home},
			want: Options{Endpoint: "https://huggingface.co", Cache: filepath.Join(home, "huggingface", "hub")}},
		{env: map[string]string{"HF_HOME": home, "HF_TOKEN": "a", "HF_HUB_CACHE": "c", "HF_ENDPOINT": "http://x:1/",
			"HF_HUB_OFFLINE": "1"},
			want: Options{Endpoint: "http://x:1", Token: "a", Cache: "c", Offline: true}},
		{env: map[string]string{"HF_HOME": home, "HF_TOKEN_PATH": other, "HF_HUB_OFFLINE": "false"},
			want: Options{Endpoint: "https://huggingface.co", Token: "elsewhere", Cache: filepath.Join(home, "hub")}},
		{env: map[string]string{"HF_ENDPOINT": "huggingface.co"},
			err: `HF_ENDPOINT "huggingface.co": expected the address of a hub`},
		{env: map[string]string{"HF_HUB_OFFLINE": "perhaps"}, err: `HF_HUB_OFFLINE "PERHAPS": expected 0 or 1`},
		{env: map[string]string{"HF_HOME": home, "HF_TOKEN": "a\nb"}, err: "expected one line"},
	}
	for _, test := range tests {
		o, err := Environment(func(key string) string { return test.env[key] })
		if test.err != "" {
			require.ErrorContains(t, err, test.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, test.want, o)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{"": 0, "3": 3 * time.Second, "-3": 0, "x": 0,
		"Sat, 21 Nov 2026 05:00:09 GMT": 9 * time.Second, "Sat, 21 Nov 2026 04:00:00 GMT": 0} {
		require.Equal(t, want, retryAfter(value, now), value)
	}
}
