package command

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// clearTraces removes what the environment of the tests says of traces.
func clearTraces(t *testing.T) {
	t.Helper()
	for _, name := range []string{"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
		"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_TRACES_SAMPLER", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"} {
		t.Setenv(name, "")
	}
}

// TestTracesOfTheEnvironment: spans go to the collector that the environment names, with its headers, before the end.
func TestTracesOfTheEnvironment(t *testing.T) {
	clearTraces(t)
	var mu sync.Mutex
	var path, key, body string
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		path, key, body = r.URL.Path, r.Header.Get("X-Key"), body+string(b)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=open")
	t.Setenv("OTEL_SERVICE_NAME", "etc-of-a-test")
	var log strings.Builder
	p, end, err := newTraces(t.Context(), "1.2.3", slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	_, span := p.Tracer("test").Start(t.Context(), "a span of a test")
	span.End()
	end()
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, "/v1/traces", path)
	require.Equal(t, "open", key)
	for _, want := range []string{"a span of a test", "etc-of-a-test", "1.2.3"} {
		require.Contains(t, body, want)
	}
	require.Empty(t, log.String())
}

// TestTracesOff: without a collector there are none; what asks for another form is refused.
func TestTracesOff(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, c := range []struct {
		env     map[string]string
		message string
	}{
		{nil, ""},
		{map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, ""},
		{map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin, want otlp or none"},
		{map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			"OTEL_EXPORTER_OTLP_PROTOCOL=grpc, want http/protobuf, which port 4318 of a collector takes"},
	} {
		clearTraces(t)
		for name, value := range c.env {
			t.Setenv(name, value)
		}
		p, end, err := newTraces(t.Context(), "1.2.3", slog.New(slog.DiscardHandler))
		end()
		if c.message != "" {
			require.EqualError(t, err, c.message)
			require.Equal(t, 2, exitCode(err))
			continue
		}
		require.NoError(t, err)
		require.Nil(t, p)
	}
}
