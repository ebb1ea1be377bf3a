package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// fetch gets a URL with a token, and returns the status and the body.
func fetch(t *testing.T, url, token string) (status int, text string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// checkMetrics takes three times from a limit that admits two, and checks the metrics at a URL.
func (s *server) checkMetrics(t *testing.T, url string) {
	t.Helper()
	for range 3 {
		res, err := http.Post(s.url+"/v1/take", "application/json", strings.NewReader(`{"limit":"login","key":"secret-key"}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	status, text := fetch(t, url, "")
	if status != http.StatusOK || strings.Contains(text, "secret-key") {
		t.Errorf("got status %d, %.200s, want 200 without keys", status, text)
	}
	for _, line := range []string{
		`headgate_decisions_total{limit="login",outcome="admitted",protocol="http",verb="take",way="store"} 2`,
		`headgate_decisions_total{limit="login",outcome="refused",protocol="http",verb="take",way="store"} 1`,
		`headgate_decision_seconds_count{protocol="http",way="store"} 3`,
		`headgate_config_applied_total{result="ok"} 1`,
		`headgate_catalog_limits 1`, `headgate_catalog_version 1`, `headgate_store_away 0`,
		`headgate_build_info{`, `headgate_requests_in_flight `, `go_goroutines `, `process_resident_memory_bytes `,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("no line %s in %s", line, text)
		}
	}
}

func TestMetricsAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	replaceFile(t, filepath.Join(dir, "headgate.yaml"), "limits:\n  login: fixed-window 2/30d\n")
	s := startReady(t, dir, "--store", "memory:", "--config", "headgate.yaml")
	s.checkMetrics(t, s.url+"/metrics")

	separate := startReady(t, dir, "--store", "memory:", "--config", "headgate.yaml", "--metrics", "127.0.0.1:0")
	addr := ""
	separate.waitUntil(t, "the address of the metrics", func() (found bool) { // it is printed after the address of HTTP
		_, rest, _ := strings.Cut(separate.out.String(), "metrics is on ")
		addr, _, found = strings.Cut(rest, "\n")
		return found
	})
	separate.checkMetrics(t, "http://"+addr+"/metrics")
	if status, _ := fetch(t, separate.url+"/metrics", ""); status != http.StatusNotFound {
		t.Errorf("/metrics on the address of --http beside --metrics: status %d, want 404", status)
	}
}

// TestMetricsNeedTheRoleRead checks the status of /metrics on the address of HTTP with tokens of several roles.
func TestMetricsNeedTheRoleRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.yaml")
	readToken := newToken(t, file, "prometheus", "--role", "read")
	takeToken := newToken(t, file, "checkout", "--role", "take")
	patternToken := newToken(t, file, "team", "--role", "read", "--limits", "api*") // the metrics name all limits
	s := startReady(t, dir, "--store", "memory:", "--tokens", file)
	for token, want := range map[string]int{"": 401, takeToken: 403, patternToken: 403, readToken: 200} {
		if status, text := fetch(t, s.url+"/metrics", token); status != want {
			t.Errorf("got status %d, want %d: %.200s", status, want, text)
		}
	}
}
