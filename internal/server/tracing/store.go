package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// maxLinks is how many other callers the span of a batch is linked to.
const maxLinks = 100

// callers is what a batch has of those whose questions it carries.
type callers struct{}

// Batch returns the context of a batch, for coalesce.Config. Its span is below that of the first caller with one that
// is recorded, and linked to those of others.
func (t *Tracing) Batch(of []context.Context) context.Context {
	ctx := context.Background()
	var links []trace.Link
	for _, c := range of {
		span := trace.SpanFromContext(c)
		switch {
		case !span.IsRecording():
		case !trace.SpanFromContext(ctx).IsRecording():
			ctx = trace.ContextWithSpan(ctx, span)
		case len(links) < maxLinks:
			links = append(links, trace.Link{SpanContext: span.SpanContext()})
		}
	}
	if links == nil {
		return ctx
	}
	return context.WithValue(ctx, callers{}, links)
}

// Store makes a span of each batch of a store within a span. kind is that of the store, such as postgres.
func (t *Tracing) Store(s store.Store, kind string) store.Store {
	return &spanned{Store: s, tracing: t, kind: kind}
}

// spanned is a store with spans.
type spanned struct {
	store.Store
	tracing *Tracing
	kind    string
}

// Unwrap implements store.Unwrapper.
func (s *spanned) Unwrap() store.Store { return s.Store }

// Apply implements store.Store.
func (s *spanned) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return s.Store.Apply(ctx, ops, outs)
	}
	links, _ := ctx.Value(callers{}).([]trace.Link)
	ctx, span := s.tracing.tracer.Start(ctx, "apply "+s.kind, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithLinks(links...), trace.WithAttributes(attribute.String("db.system.name", s.kind),
			attribute.Int("headgate.batch.ops", len(ops))))
	defer span.End()
	err := s.Store.Apply(ctx, ops, outs)
	failed(span, err)
	return err
}
