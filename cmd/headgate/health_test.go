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

// TestHealth requests both paths of a server whose store is away, by its URL and by its address.
func TestHealth(t *testing.T) {
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
			t.Errorf("%s is asked", r.URL.Path)
		}
	}))
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	_, port, _ := strings.Cut(addr, ":")
	for _, c := range []struct {
		args string
		code int
		says string
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
		var out, errs bytes.Buffer
		code := runMain(context.Background(), append([]string{"health"}, strings.Fields(c.args)...), strings.NewReader(""),
			&out, &errs)
		if said := out.String() + errs.String(); code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("health %s: exit code %d, %s; want %d, %q", c.args, code, said, c.code, c.says)
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
