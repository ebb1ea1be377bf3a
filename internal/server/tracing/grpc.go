package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

// Unary is an interceptor that makes a span for each call, unless isUntraced.
func (t *Tracing) Unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (
	out any, err error,
) {
	if t.isUntraced(info.FullMethod) {
		return h(ctx, in)
	}
	ctx, span := t.startSpan(ctx, info.FullMethod)
	defer func() { endSpan(span, err) }()
	return h(ctx, in)
}

// Stream is an interceptor that makes a span for each stream, unless isUntraced.
func (t *Tracing) Stream(impl any, stream grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (
	err error,
) {
	if t.isUntraced(info.FullMethod) {
		return h(impl, stream)
	}
	ctx, span := t.startSpan(stream.Context(), info.FullMethod)
	defer func() { endSpan(span, err) }()
	return h(impl, &tracedStream{stream, ctx})
}

type tracedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *tracedStream) Context() context.Context { return s.ctx }

// isUntraced reports whether calls of a method have no spans: health checks and reflection.
func (t *Tracing) isUntraced(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}

func (t *Tracing) startSpan(ctx context.Context, method string) (context.Context, trace.Span) {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		carrier := propagation.MapCarrier{}
		for _, name := range t.headers.Fields() {
			if values := md.Get(name); len(values) > 0 {
				carrier[name] = values[0]
			}
		}
		ctx = t.headers.Extract(ctx, carrier)
	}
	name := strings.TrimPrefix(method, "/")
	service, verb, _ := strings.Cut(name, "/")
	return t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service),
		attribute.String("rpc.method", verb)))
}

func endSpan(span trace.Span, err error) {
	code := grpcstatus.Code(err)
	span.SetAttributes(attribute.Int("rpc.grpc.status_code", int(code)))
	switch code { // the conventions of OpenTelemetry call these errors of a server
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		span.SetStatus(otelcodes.Error, code.String())
	}
	span.End()
}
