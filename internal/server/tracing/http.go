package tracing

import (
	"net/http"

	"github.com/felixge/httpsnoop"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// untracedPaths have no spans: monitoring requests them again and again.
var untracedPaths = map[string]bool{"/livez": true, "/readyz": true, "/healthz": true, "/metrics": true}

// Handler returns a handler that makes a span for each request but those of untracedPaths, in the trace of its headers.
func (t *Tracing) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if untracedPaths[r.URL.Path] {
			h.ServeHTTP(w, r)
			return
		}
		ctx := t.headers.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, methodName(r.Method), trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", methodName(r.Method)),
				attribute.String("url.scheme", scheme(r))))
		defer span.End()
		if !span.IsRecording() {
			h.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		r = r.WithContext(ctx)
		r.Pattern = ""
		response := httpsnoop.Metrics{Code: http.StatusOK}
		defer func() {
			if r.Pattern != "" { // the mux has set it
				span.SetName(r.Pattern)
				span.SetAttributes(attribute.String("http.route", r.Pattern))
			}
			span.SetAttributes(attribute.Int("http.response.status_code", response.Code))
			if response.Code >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, "")
			}
		}()
		response.CaptureMetrics(w, func(w http.ResponseWriter) { h.ServeHTTP(w, r) })
	})
}

// methodName returns the name of a standard method, and one name for all others.
func methodName(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "_OTHER"
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}
