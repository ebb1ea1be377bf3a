package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// maxLinks is how many callers the span of a batch is linked to at most, beside its parent.
const maxLinks = 100

// linksKey is the key of a context for the links of a batch to its callers.
type linksKey struct{}

// Batch returns the context of a batch, for coalesce.Config. The parent of its span is the first recorded span of a
// caller; the recorded spans of other callers are linked.
func (t *Tracing) Batch(callers []context.Context) context.Context {
	ctx := context.Background()
	var links []trace.Link
	for _, c := range callers {
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
	return context.WithValue(ctx, linksKey{}, links)
}

// Store wraps a store of a kind, such as postgres. It makes a span for each batch whose context has a recorded span.
func (t *Tracing) Store(s store.Store, kind string) store.Store {
	return &tracedStore{Store: s, tracing: t, kind: kind}
}

type tracedStore struct {
	store.Store
	tracing *Tracing
	kind    string
}

// Unwrap implements store.Unwrapper.
func (s *tracedStore) Unwrap() store.Store { return s.Store }

// Apply implements store.Store.
func (s *tracedStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return s.Store.Apply(ctx, ops, outs)
	}
	links, _ := ctx.Value(linksKey{}).([]trace.Link)
	ctx, span := s.tracing.tracer.Start(ctx, "apply "+s.kind, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithLinks(links...), trace.WithAttributes(attribute.String("db.system.name", s.kind),
			attribute.Int("headgate.batch.ops", len(ops))))
	defer span.End()
	err := s.Store.Apply(ctx, ops, outs)
	recordError(span, err)
	return err
}
