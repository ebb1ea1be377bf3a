package rest_test

import (
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/lograte"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/metrics"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// measuredHandler returns the handler of stackHandler with the metrics of headgate serve.
func measuredHandler(b *testing.B) (http.Handler, *slog.Logger) {
	lines := lograte.New(slog.NewTextHandler(io.Discard, nil))
	b.Cleanup(lines.Close)
	log := slog.New(lines)
	observer := metrics.New(nil)
	s := front.New(memory.New(&memory.Config{Names: true}), &front.Config{
		Logger: slog.New(slog.DiscardHandler), Observer: observer,
	})
	b.Cleanup(func() { s.Close() })
	limiter := headgate.New(s, &headgate.Config{Timeout: -1, Observer: observer})
	return rest.New(service.New(limiter, &config.Config{}, nil), log, nil), log
}
