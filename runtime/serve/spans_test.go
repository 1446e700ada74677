package serve

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/etc-ml/etc/runtime/batch"
)

// tracedServer is a server whose spans are kept in memory, and its log.
func tracedServer(t *testing.T, change func(x *scripted)) (*testServer, *tracetest.InMemoryExporter, *strings.Builder) {
	t.Helper()
	spans, log := tracetest.NewInMemoryExporter(), &strings.Builder{}
	var mu sync.Mutex
	s := startServer(t, does("Good day."), func(o *Options, x *scripted, _ *batch.Options) {
		o.Traces = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		o.Log = slog.New(slog.NewTextHandler(lockedWriter{log, &mu}, nil))
		if change != nil {
			change(x)
		}
	})
	return s, spans, log
}

// postTraced sends a chat as part of a trace.
func (s *testServer) postTraced(body, parent string) int {
	s.t.Helper()
	q, err := http.NewRequestWithContext(s.t.Context(), "POST", s.http.URL+chatPath, strings.NewReader(body))
	require.NoError(s.t, err)
	q.Header.Set("Traceparent", parent)
	r, err := s.http.Client().Do(q)
	require.NoError(s.t, err)
	require.NoError(s.t, r.Body.Close())
	return r.StatusCode
}

// attributesOf are the attributes of a span by their names.
func attributesOf(s tracetest.SpanStub) map[string]attribute.Value {
	out := map[string]attribute.Value{}
	for _, a := range s.Attributes {
		out[string(a.Key)] = a.Value
	}
	return out
}

// TestSpans: a request for an answer is a span of the client's trace, whose choices say how long they waited, read and
// wrote; nothing that was said is in them. Others have none.
func TestSpans(t *testing.T) {
	s, spans, log := tracedServer(t, nil)
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	require.Equal(t, 200, s.postTraced(`{"n": 2, `+hello+`}`, "00-"+id+"-"+parent+"-01"))
	s.object(chatPath, `{"stop": ["day"], `+hello+`}`) // a trace of its own, ended by a text
	_, _ = s.get("/health")
	_, _ = s.get("/v1/models")
	s.http.Close() // requests end after their answers
	var requests []tracetest.SpanStub
	phases := map[string][]tracetest.SpanStub{} // by the parent's id
	for _, x := range spans.GetSpans() {
		require.NotContains(t, fmt.Sprint(x.Attributes), "day")
		require.False(t, x.EndTime.Before(x.StartTime), x.Name)
		if strings.HasPrefix(x.Name, "POST ") {
			requests = append(requests, x)
			continue
		}
		phases[x.Parent.SpanID().String()] = append(phases[x.Parent.SpanID().String()], x)
	}
	require.Len(t, requests, 2)
	for i, x := range requests {
		require.Equal(t, "POST /v1/chat/completions", x.Name)
		a := attributesOf(x)
		require.Equal(t, "small", a["gen_ai.request.model"].AsString())
		require.Equal(t, int64(200), a["http.response.status_code"].AsInt64())
		require.Positive(t, a["gen_ai.usage.input_tokens"].AsInt64())
		require.Positive(t, a["gen_ai.usage.output_tokens"].AsInt64())
		require.Equal(t, codes.Unset, x.Status.Code)
		if i == 0 {
			require.Equal(t, id, x.SpanContext.TraceID().String())
			require.Equal(t, parent, x.Parent.SpanID().String())
		} else {
			require.NotEqual(t, id, x.SpanContext.TraceID().String())
			require.False(t, x.Parent.SpanID().IsValid())
		}
		require.Contains(t, log.String(), "trace="+x.SpanContext.TraceID().String())
		choices := map[int64][]tracetest.SpanStub{}
		for _, p := range phases[x.SpanContext.SpanID().String()] {
			require.Equal(t, x.SpanContext.TraceID(), p.SpanContext.TraceID())
			require.False(t, p.StartTime.Before(x.StartTime) || p.EndTime.After(x.EndTime))
			choice := attributesOf(p)["etc.choice"].AsInt64()
			choices[choice] = append(choices[choice], p)
		}
		require.Len(t, choices, 2-i)
		for _, list := range choices {
			require.Len(t, list, 3)
			for j, name := range []string{"queue", "prefill", "decode"} {
				require.Equal(t, name, list[j].Name)
				if j > 0 {
					require.Equal(t, list[j-1].EndTime, list[j].StartTime)
				}
			}
		}
	}
}

// TestSpanOfAFailure: an error of the device is the status of the span; prefill ends where it came.
func TestSpanOfAFailure(t *testing.T) {
	broken := false
	s, spans, _ := tracedServer(t, func(x *scripted) {
		x.fail = func(int) error {
			if broken {
				return fmt.Errorf("the device is gone")
			}
			return nil
		}
	})
	broken = true
	code, _ := s.post(chatPath, `{`+hello+`}`)
	require.Equal(t, 500, code)
	s.http.Close()
	var names []string
	for _, x := range spans.GetSpans() {
		names = append(names, x.Name)
		if strings.HasPrefix(x.Name, "POST ") {
			require.Equal(t, codes.Error, x.Status.Code)
			require.Contains(t, x.Status.Description, "the device is gone")
		}
	}
	require.Equal(t, []string{"queue", "prefill", "POST /v1/chat/completions"}, names)
}
