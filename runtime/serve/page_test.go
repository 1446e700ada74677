package serve

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/batch"
)

// status gets a path.
func (s *testServer) status(path string) (int, string) {
	s.t.Helper()
	r, err := s.http.Client().Get(s.http.URL + path)
	require.NoError(s.t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(s.t, err)
	return r.StatusCode, string(b)
}

// The page is there without a key, which it asks for itself, and not there when it is turned off.
func TestPage(t *testing.T) {
	s := startServer(t, does("hi"), func(o *Options, _ *scripted, _ *batch.Options) { o.Keys = []string{"secret"} })
	code, text := s.status("/")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "<!doctype html>")
	code, _ = s.status("/ui/main.js")
	require.Equal(t, http.StatusOK, code)
	code, _ = s.status("/v1/models")
	require.Equal(t, http.StatusUnauthorized, code)
	code, _ = s.status("/other")
	require.Equal(t, http.StatusNotFound, code)

	s = startServer(t, does("hi"), func(o *Options, _ *scripted, _ *batch.Options) { o.NoPage = true })
	for _, path := range []string{"/", "/ui/main.js"} {
		code, _ = s.status(path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
}
