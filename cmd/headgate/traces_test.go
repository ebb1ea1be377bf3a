package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSpansAreSentWhereTheVariablesSay gives a server a collector, which finds the names of the spans in what it gets.
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
	s := start(t, t.TempDir(), "--store", "memory:")
	if _, status, err := s.take(http.DefaultClient, `{"limit":"fixed-window 1/30d","key":"mallory"}`); status != 200 {
		t.Fatal(status, err)
	}
	sent := func(text string) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(got.String(), text)
	}
	s.until(t, time.Minute, "that spans were sent", func() bool { return sent("POST /v1/take") && sent("decide") })
	if !sent("/v1/traces") || !sent("headgate.limit") || sent("mallory") {
		t.Errorf("sent: %q", got.String())
	}
	s.stop(t)
}
