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

// init enables tracing, as the build tag headgate_otel does.
func init() {
	openTracing = func(ctx context.Context, version string, log *slog.Logger) (tracer, error) {
		t, err := tracing.Open(ctx, version, log)
		if t == nil {
			return nil, err
		}
		return t, err
	}
}

// TestSpansWithoutTheBuildTagAreReported checks that the log says if the variables ask for traces.
func TestSpansWithoutTheBuildTagAreReported(t *testing.T) {
	for _, tt := range []struct {
		variables map[string]string
		want      bool
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
		if got := strings.Contains(log.String(), "(build tag headgate_otel)"); spans != nil || err != nil || got != tt.want {
			t.Errorf("%v: %v, %v, log %q, want a line: %v", tt.variables, spans, err, log.String(), tt.want)
		}
	}
}

// TestSpansAreSentWhereTheVariablesSay checks that a collector receives the names of the spans, and no key.
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
	received := func(text string) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(got.String(), text)
	}
	await.Until(t, "that spans were sent", func() bool { return received("POST /v1/take") && received("decide") })
	if !received("/v1/traces") || !received("headgate.limit") || received("mallory") {
		t.Errorf("received %q, want the limit without the key", got.String())
	}
	s.stop()
	if err := await.Receive(t, "the end", s.served); err != nil {
		t.Error(err)
	}
}
