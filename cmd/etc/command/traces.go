package command

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// traceTime is how long the last spans may take on their way when the server ends.
const traceTime = 5 * time.Second

// newTraces makes what takes the spans of a server, as OpenTelemetry's variables of the environment say: nil where none
// names a collector. end sends what is left. Errors of sending go to the log; requests do not wait for them.
func newTraces(ctx context.Context, version string, log *slog.Logger) (p trace.TracerProvider, end func(),
	err error) {
	end = func() {}
	if disabled, err := tracesDisabled(); disabled || err != nil {
		return nil, end, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, end, usagef("OTEL_EXPORTER_OTLP_ENDPOINT: %v", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "etc"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, end, usagef("OTEL_RESOURCE_ATTRIBUTES: %v", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err.Error()) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	end = func() {
		ctx, cancel := context.WithTimeout(context.Background(), traceTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("traces", "error", err.Error())
		}
	}
	return provider, end, nil
}

// tracesDisabled reports whether the environment names no collector, or switches traces off. What asks for an exporter
// or a protocol that etc has not is an error.
func tracesDisabled() (bool, error) {
	first := func(names ...string) (name, value string) {
		for _, name := range names {
			if v := os.Getenv(name); v != "" {
				return name, v
			}
		}
		return "", ""
	}
	exporterName, exporter := first("OTEL_TRACES_EXPORTER")
	_, endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || exporter == "none" ||
		endpoint == "" && exporter == "" {
		return true, nil
	}
	if exporter != "" && exporter != "otlp" {
		return false, usagef("%s=%s, want otlp or none", exporterName, exporter)
	}
	name, protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	if protocol != "" && protocol != "http/protobuf" {
		return false, usagef("%s=%s, want http/protobuf, which port 4318 of a collector takes", name, protocol)
	}
	return false, nil
}
