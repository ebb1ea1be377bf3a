package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const replayLog = `10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"
10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"
10.0.0.2 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"
`

// runReplay runs the command with a log on standard input.
func runReplay(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"replay"}, args...), strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestReplayCommand(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.html")
	code, out, errs := runReplay(t, replayLog, "--limit", "token-bucket 1/1m burst 1", "--key", "ip",
		"--html", page, "-")
	if code != 0 || errs != "" || !strings.Contains(out, "refused    1   33.3 %, 1 key") ||
		!strings.Contains(out, page) {
		t.Errorf("code %d, %s\n%s", code, errs, out)
	}
	if html, err := os.ReadFile(page); err != nil || !bytes.HasPrefix(html, []byte("<!doctype html>")) {
		t.Errorf("page: %v, %.50s", err, html)
	}
	code, out, errs = runReplay(t, replayLog, "--limit", "token-bucket 1/1m burst 1", "--key", "ip", "--json",
		"--top", "1", "-")
	var got struct {
		Requests, Keys, Allowed, Denied, Unparsed int
		Top                                       []struct {
			Key              string
			Requests, Denied int
		}
	}
	if err := json.Unmarshal([]byte(out), &got); code != 0 || errs != "" || err != nil {
		t.Fatalf("code %d, %s, %v: %s", code, errs, err, out)
	}
	if got.Requests != 3 || got.Keys != 2 || got.Allowed != 2 || got.Denied != 1 || len(got.Top) != 1 ||
		got.Top[0].Key != "10.0.0.1" {
		t.Errorf("got %+v", got)
	}
}

func TestReplayCommandErrors(t *testing.T) {
	t.Parallel()
	const limit = "token-bucket 1/1m"
	for want, args := range map[string][]string{
		"--limit":                   {"--key", "ip", "-"},
		"--key":                     {"--limit", limit, "-"},
		"log:":                      {"--limit", limit, "--key", "ip"},
		"directory":                 {"--limit", limit, "--key", "ip", t.TempDir()},
		"no such file":              {"--limit", limit, "--key", "ip", "/does/not/exist"},
		"format":                    {"--limit", limit, "--key", "ip", "--format", "xml", "-"},
		"--top":                     {"--limit", limit, "--key", "ip", "--top", "-1", "-"},
		"--html":                    {"--limit", limit, "--key", "ip", "--html", "/does/not/exist/x.html", "-"},
		"amount":                    {"--limit", "token-bucket 0/1m", "--key", "ip", "-"},
		"unknown flag":              {"--limit", limit, "--key", "ip", "--jsn", "-"},
		"no field":                  {"--limit", limit, "--key", "host", "--format", "combined", "-"},
		"is not JSON":               {"--limit", limit, "--key", "ip", "--format", "json", "-"},
		"log does not":              {"--limit", "concurrency 10 ttl 30s", "--key", "ip", "-"},
		"--limit: is given 2 times": {"--limit", limit, "--limit", limit, "--key", "ip", "-"},
		"--key: is given 2 times":   {"--limit", limit, "--key", "ip", "--key", "path", "-"},
		"is a directory":            {"--limit", limit, "--key", "ip", "--html", t.TempDir(), "-"},
	} {
		code, out, errs := runReplay(t, replayLog, args...)
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%q: code %d, %q, %q; want %q", args, code, out, errs, want)
		}
	}
	const alb = `2026-05-01T00:00:00.1Z app/lb/1 1.2.3.4:2817 10.0.0.1:80 0.0 0.0 0.0 200 200 34 366 "GET http://example.com:80/ HTTP/1.1" "curl" - -`
	if code, out, errs := runReplay(t, alb, "--limit", limit, "--key", "ip", "-"); code != 2 || out != "" ||
		!strings.Contains(errs, "format not recognised") {
		t.Errorf("load balancer: code %d, %s, %s", code, out, errs)
	}
	if code, _, errs := runReplay(t, "", "--limit", limit, "--key", "ip", "-"); code != 2 ||
		!strings.Contains(errs, "empty") {
		t.Errorf("empty: code %d, %s", code, errs)
	}
}
