package serving

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzStream: any stream is an answer that ended, or an error.
func FuzzStream(f *testing.F) {
	const event = "data: {\"choices\": [{\"text\": \"a\"}], \"usage\": {\"completion_tokens\": 2}}\n\n"
	for _, s := range []string{event + event + "data: [DONE]\n\n", event, "data: {\n",
		": hello\n\nevent: x\ndata:[DONE]",
		"data: {\"error\": {\"message\": \"no\"}}\n", "data: {\"choices\": null}\ndata: [DONE]\n",
		strings.Repeat("x", 1<<12)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		var a answer
		err := a.readStream(strings.NewReader(stream), func() time.Time { return time.Unix(1, 0) })
		if err == nil {
			require.Contains(t, stream, "[DONE]")
		}
		require.LessOrEqual(t, len(a.parts), strings.Count(stream, "data:"))
	})
}

// TestClosedConnection: a server that closes connections that were used before gets the request over another one.
func TestClosedConnection(t *testing.T) {
	var mu sync.Mutex
	used, closed := map[string]bool{}, 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if used[r.RemoteAddr] {
			closed++
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				c.Close()
			}
			return
		}
		used[r.RemoteAddr] = true
		w.Write([]byte(`{"tokens": [1, 2]}`)) //nolint:errcheck // it is a test
	}))
	defer s.Close()
	c := &client{url: s.URL, http: s.Client(), now: time.Now}
	for range 3 {
		var out struct{ Tokens []int }
		require.NoError(t, c.get(t.Context(), "/tokenize", map[string]string{"content": "x"}, &out))
		require.Equal(t, []int{1, 2}, out.Tokens)
	}
	require.Positive(t, closed)
}
