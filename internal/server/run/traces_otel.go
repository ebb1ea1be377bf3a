//go:build headgate_otel

package run

import (
	"context"
	"log/slog"

	"github.com/headgate/headgate/internal/server/tracing"
)

func init() {
	openTracing = func(ctx context.Context, version string, log *slog.Logger) (tracer, error) {
		t, err := tracing.Open(ctx, version, log)
		if t == nil { // a nil *Tracing would be a tracer that is not nil
			return nil, err
		}
		return t, err
	}
}
