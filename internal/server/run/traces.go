package run

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"os"
	"strconv"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// tracer makes spans of requests, decisions and batches. Package internal/server/tracing has one.
type tracer interface {
	headgate.Observer
	Handler(h http.Handler) http.Handler
	Unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error)
	Stream(impl any, stream grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error
	Batch(of []context.Context) context.Context
	Store(s store.Store, kind string) store.Store
	Close()
}

// openTracing returns a tracer that environment variables configure; nil: they request no traces, or this headgate was
// built without the tag headgate_otel, which replaces the function.
var openTracing = noTracing

// noTracing logs a warning if environment variables request traces, and returns no tracer.
func noTracing(_ context.Context, _ string, log *slog.Logger) (tracer, error) {
	off, _ := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED"))
	exporter := cmp.Or(os.Getenv("OTEL_TRACES_EXPORTER"), os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "none")
	if exporter != "none" && !off {
		log.Warn("there are no spans: this headgate was built without OpenTelemetry (build tag headgate_otel)",
			"class", "traces")
	}
	return nil, nil
}
