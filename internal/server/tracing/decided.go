package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/service"
)

// Decided implements headgate.Observer. Only a decision within a span that is recorded has one.
func (t *Tracing) Decided(ctx context.Context, e headgate.Event) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	end := time.Now()
	d := &e.Decision
	attrs := make([]attribute.KeyValue, 0, 10)
	attrs = append(attrs, attribute.String("headgate.verb", string(e.Verb)),
		attribute.String("headgate.protocol", service.ProtocolOf(ctx).String()),
		attribute.Int("headgate.charges", len(e.Charges)))
	if e.Err != nil {
		attrs = append(attrs, attribute.String("headgate.limit", e.Limit),
			attribute.String("headgate.outcome", "failed"))
	} else {
		outcome := "refused"
		if d.Allowed {
			outcome = "admitted"
		}
		attrs = append(attrs, attribute.String("headgate.limit", d.LimitName),
			attribute.String("headgate.outcome", outcome),
			attribute.String("headgate.way", d.Via.String()), attribute.Int64("headgate.remaining", d.Remaining),
			attribute.Int64("headgate.capacity", d.Capacity))
		if !d.Allowed && d.RetryAfter != headgate.Never {
			attrs = append(attrs, attribute.Int64("headgate.retry_after_ms", service.Millis(d.RetryAfter)))
		}
	}
	_, span := t.tracer.Start(ctx, "decide", trace.WithTimestamp(end.Add(-e.Took)), trace.WithAttributes(attrs...))
	failed(span, e.Err)
	span.End(trace.WithTimestamp(end))
}

// failed adds the class of an error to a span; its text may have a key.
func failed(span trace.Span, err error) {
	if err != nil {
		span.SetAttributes(attribute.String("error.type", service.Class(err)))
		span.SetStatus(codes.Error, service.Class(err))
	}
}
