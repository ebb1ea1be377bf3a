package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestHealthCommand runs headgate health with a server whose store is away, by its URL and by its address.
func TestHealthCommand(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/livez":
			_, _ = w.Write([]byte(`{"status":"ok"}`))
		case "/readyz":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"type":"urn:headgate:unavailable","title":"t","status":503,"detail":"the disk is away"}`))
		default:
			t.Errorf("got a request of %s", r.URL.Path)
		}
	}))
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	_, port, _ := strings.Cut(addr, ":")
	for _, tt := range []struct {
		args     string
		code     int
		wantText string
	}{
		{"--live --server " + s.URL, exitOK, `{"status":"ok"}`},
		{"--live --http " + addr, exitOK, `{"status":"ok"}`},
		{"--live --metrics :" + port + " --http 127.0.0.1:1", exitOK, `{"status":"ok"}`},
		{"--server " + s.URL, exitRefused, "the disk is away"},
		{"--metrics " + addr, exitRefused, "the disk is away"},
		{"--live --http 127.0.0.1:1", exitRefused, "refused"},
		{"--live --http unix:" + filepath.Join(t.TempDir(), "none"), exitRefused, "none"},
		{"--live --metrics=", exitError, "is empty"},
	} {
		var stdout, stderr bytes.Buffer
		code := runMain(context.Background(), append([]string{"health"}, strings.Fields(tt.args)...), strings.NewReader(""),
			&stdout, &stderr)
		if output := stdout.String() + stderr.String(); code != tt.code || !strings.Contains(output, tt.wantText) {
			t.Errorf("health %s: exit code %d, %s; want %d, %q", tt.args, code, output, tt.code, tt.wantText)
		}
	}
}

func TestLocalURL(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		":8080": "http://127.0.0.1:8080", "0.0.0.0:8080": "http://127.0.0.1:8080", "[::]:8080": "http://[::1]:8080",
		"10.1.2.3:80": "http://10.1.2.3:80", "localhost:80": "http://localhost:80", "unix:/run/x": "unix:/run/x",
	} {
		if got := localURL("http", addr); got != want {
			t.Errorf("%s: got %s, want %s", addr, got, want)
		}
	}
}
