package hub

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFetchClosesConnections: a fetch leaves no connection open that waits for requests which never come.
func TestFetchClosesConnections(t *testing.T) {
	var open, made atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"sha":"` + testCommit + `","siblings":[]}`)) //nolint:errcheck // the client reads it
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
			made.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	_, err := Fetch(t.Context(), Repo{"org/name", "main"}, Options{Endpoint: server.URL, Cache: t.TempDir(), Jobs: 1,
		Log: func(string, ...any) {}})
	require.Error(t, err)
	require.Positive(t, made.Load())
	require.Eventually(t, func() bool { return open.Load() == 0 }, time.Minute, time.Millisecond)
}
