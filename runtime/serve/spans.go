package serve

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/etc-ml/etc/runtime/batch"
)

// This file tells traces of OpenTelemetry where the time of requests goes. A request for an answer is a span, part of
// the trace that its header traceparent names. Below it every choice has three: queue, until its first call; prefill,
// until the first token; decode, until the end. None holds what was said.

// scope is OpenTelemetry's name of this package as the code that makes spans: their instrumentation scope.
const scope = "github.com/etc-ml/etc/runtime/serve"

// traced begins the span of a request, where it is one for an answer.
func (s *Server) traced(r *http.Request, name string, v *visit, like int) *http.Request {
	if like&counted == 0 || s.options.Traces == nil {
		return r
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, v.span = s.options.Traces.Tracer(scope).Start(ctx, r.Method+" "+name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(v.begun), trace.WithAttributes(attribute.String("http.request.method", r.Method),
			attribute.String("http.route", name), attribute.String("etc.request.id", v.id)))
	return r.WithContext(ctx)
}

// endSpan ends the span of a request.
func (v *visit) endSpan() {
	if v.span == nil {
		return
	}
	v.span.SetAttributes(attribute.Int("http.response.status_code", v.code))
	if v.model != "" {
		v.span.SetAttributes(attribute.String("gen_ai.request.model", v.model),
			attribute.Int("gen_ai.usage.input_tokens", v.usage.prompt),
			attribute.Int("gen_ai.usage.output_tokens", v.usage.answer),
			attribute.Int("etc.cached_tokens", v.usage.cached))
	}
	if v.err != nil && v.code >= http.StatusInternalServerError {
		v.span.SetStatus(codes.Error, v.err.Error())
	}
	v.span.End()
}

// tellPhases tells where the time of a choice went, to now where its stream still runs.
func tellPhases(ctx context.Context, choice int, s *batch.Stream) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return
	}
	tracer, t := parent.TracerProvider().Tracer(scope), s.Times()
	if t.Ended.IsZero() {
		t.Ended = time.Now()
	}
	attributes := []attribute.KeyValue{attribute.Int("etc.choice", choice)}
	for _, phase := range []struct {
		name     string
		from, to time.Time
	}{{"queue", t.Arrived, t.Started}, {"prefill", t.Started, t.First}, {"decode", t.First, t.Ended}} {
		if phase.from.IsZero() {
			return
		}
		if phase.to.IsZero() {
			phase.to = t.Ended
		}
		if phase.name == "prefill" {
			attributes = append(attributes, attribute.Int("etc.cached_tokens", s.Cached()))
		}
		_, span := tracer.Start(ctx, phase.name, trace.WithTimestamp(phase.from), trace.WithAttributes(attributes...))
		span.End(trace.WithTimestamp(phase.to))
	}
}
