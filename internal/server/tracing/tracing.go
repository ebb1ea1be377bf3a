// Package tracing makes spans of OpenTelemetry: one for each request by HTTP and gRPC, but not for monitoring, one
// below it for each decision, and one for each batch of the store. No span has a key.
//
// A server without tracing has no [Tracing], and wraps no handlers or stores.
package tracing

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/service"
)

// Tracing makes spans. Its methods are safe for concurrent use.
type Tracing struct {
	tracer   trace.Tracer
	headers  propagation.TextMapPropagator
	shutdown func(context.Context) error
}

// New returns a Tracing that makes spans by a provider, and reads the trace context of requests by a propagator.
func New(p trace.TracerProvider, headers propagation.TextMapPropagator) *Tracing {
	return &Tracing{
		tracer: p.Tracer("github.com/headgate/headgate"), headers: headers,
		shutdown: func(context.Context) error { return nil },
	}
}

// settings has what the environment says.
type settings struct {
	enabled bool
	grpc    bool // the collector is called by gRPC, else by HTTP
	headers propagation.TextMapPropagator
}

// readSettings reads the variables that the library leaves to programs. Errors are ErrInvalid and name a variable.
func readSettings(get func(string) string) (s settings, err error) {
	firstSet := func(names ...string) (name, value string) {
		for _, name = range names {
			if value = strings.TrimSpace(get(name)); value != "" {
				break
			}
		}
		return name, value
	}
	if off, err := strconv.ParseBool(get("OTEL_SDK_DISABLED")); err == nil && off {
		return s, nil
	}
	switch _, exporter := firstSet("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return s, nil
	case "otlp":
		s.enabled = true
	case "":
		_, endpoint := firstSet("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
		s.enabled = endpoint != ""
	default:
		return s, headgate.Invalid("OTEL_TRACES_EXPORTER", "%.40q is not otlp or none", exporter)
	}
	if !s.enabled {
		return s, nil
	}
	switch name, protocol := firstSet("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "grpc":
		s.grpc = true
	case "", "http/protobuf":
	default:
		return s, headgate.Invalid(name, "%.40q is not grpc or http/protobuf", protocol)
	}
	_, names := firstSet("OTEL_PROPAGATORS")
	var propagators []propagation.TextMapPropagator
	for name := range strings.SplitSeq(cmp.Or(names, "tracecontext,baggage"), ",") {
		switch strings.TrimSpace(name) {
		case "tracecontext":
			propagators = append(propagators, propagation.TraceContext{})
		case "baggage": // accepted, but spans have no baggage, and it is not passed on
		case "none":
		default:
			return s, headgate.Invalid("OTEL_PROPAGATORS", "%.40q is not tracecontext, baggage or none", name)
		}
	}
	s.headers = propagation.NewCompositeTextMapPropagator(propagators...)
	return s, nil
}

// Open returns a Tracing by the standard variables of the environment, OTEL_EXPORTER_OTLP_ENDPOINT and others; nil
// if they enable none. It sets where OpenTelemetry in this process logs later errors. Errors are headgate.ErrInvalid.
func Open(ctx context.Context, version string, log *slog.Logger) (*Tracing, error) {
	s, err := readSettings(os.Getenv)
	if err != nil || !s.enabled {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("spans were not sent", "class", "traces", "error", err)
	}))
	var exporter sdk.SpanExporter
	if s.grpc {
		exporter, err = otlptracegrpc.New(ctx)
	} else {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, headgate.Invalid("OTEL_EXPORTER_OTLP_ENDPOINT", "%v", err)
	}
	serverResource, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "headgate"),
		attribute.String("service.version", version)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, headgate.Invalid("OTEL_RESOURCE_ATTRIBUTES", "%v", err)
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(serverResource))
	t := New(p, s.headers)
	t.shutdown = p.Shutdown
	return t, nil
}

// Close sends the last spans, and gives up after 3 s.
func (t *Tracing) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := t.shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// Decided implements headgate.Observer. If ctx has a recorded span, it makes one below it for the decision.
func (t *Tracing) Decided(ctx context.Context, e headgate.Event) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	end := time.Now()
	d := &e.Decision
	outcome, limit := "refused", d.LimitName
	switch {
	case e.Err != nil:
		outcome, limit = "failed", e.Limit
	case d.Allowed:
		outcome = "admitted"
	}
	attrs := make([]attribute.KeyValue, 0, 10)
	attrs = append(attrs, attribute.String("headgate.verb", string(e.Verb)),
		attribute.String("headgate.protocol", service.ProtocolOf(ctx).String()),
		attribute.Int("headgate.charges", len(e.Charges)), attribute.String("headgate.limit", limit),
		attribute.String("headgate.outcome", outcome))
	if e.Err == nil {
		attrs = append(attrs, attribute.String("headgate.way", d.Via.String()),
			attribute.Int64("headgate.remaining", d.Remaining), attribute.Int64("headgate.capacity", d.Capacity))
		if !d.Allowed && d.RetryAfter != headgate.Never {
			attrs = append(attrs, attribute.Int64("headgate.retry_after_ms", service.Millis(d.RetryAfter)))
		}
	}
	_, span := t.tracer.Start(ctx, "decide", trace.WithTimestamp(end.Add(-e.Took)), trace.WithAttributes(attrs...))
	recordError(span, e.Err)
	span.End(trace.WithTimestamp(end))
}

// recordError adds the class of an error, if there is one, to a span, but not its text, which may have a key.
func recordError(span trace.Span, err error) {
	if err != nil {
		span.SetAttributes(attribute.String("error.type", service.Class(err)))
		span.SetStatus(codes.Error, service.Class(err))
	}
}
