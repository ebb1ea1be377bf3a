package run

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/server/tracing"
	"github.com/headgate/headgate/internal/testing/await"
)

// The tests have tracing as with the build tag headgate_otel.
func init() {
	openTracing = func(ctx context.Context, version string, log *slog.Logger) (tracer, error) {
		t, err := tracing.Open(ctx, version, log)
		if t == nil {
			return nil, err
		}
		return t, err
	}
}

// TestSpansWithoutTheBuildTagAreReported: the log says that traces are missing.
func TestSpansWithoutTheBuildTagAreReported(t *testing.T) {
	for _, tt := range []struct {
		variables map[string]string
		told      bool
	}{
		{nil, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318"}, true},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, false},
	} {
		for _, name := range []string{
			"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT",
		} {
			t.Setenv(name, tt.variables[name])
		}
		var log strings.Builder
		spans, err := noTracing(t.Context(), "", slog.New(slog.NewTextHandler(&log, nil)))
		if told := strings.Contains(log.String(), "(build tag headgate_otel)"); spans != nil || err != nil || told != tt.told {
			t.Errorf("%v: %v, %v, log %q", tt.variables, spans, err, log.String())
		}
	}
}

// TestSpansAreSentWhereTheVariablesSay gives a server a collector, which receives the names of the spans.
func TestSpansAreSentWhereTheVariablesSay(t *testing.T) {
	var mu sync.Mutex
	var got strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got.WriteString(r.URL.Path + " ")
		got.Write(body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	s := startServer(t, "limits: {login: fixed-window 1/30d}\n")
	if _, status := s.take(t, "login", "mallory"); status != http.StatusOK {
		t.Fatal(status)
	}
	sent := func(text string) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(got.String(), text)
	}
	await.Until(t, "that spans were sent", func() bool { return sent("POST /v1/take") && sent("decide") })
	if !sent("/v1/traces") || !sent("headgate.limit") || sent("mallory") {
		t.Errorf("sent: %q", got.String())
	}
	s.stop()
	if err := await.Receive(t, "the end", s.ended); err != nil {
		t.Error(err)
	}
}
