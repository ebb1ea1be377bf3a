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

// runReplay runs headgate replay with a log on standard input.
func runReplay(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = runMain(context.Background(), append([]string{"replay"}, args...), strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestReplayCommand(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.html")
	code, out, stderr := runReplay(t, replayLog, "--limit", "token-bucket 1/1m burst 1", "--key", "ip",
		"--html", page, "-")
	if code != 0 || stderr != "" || !strings.Contains(out, "refused    1   33.3 %, 1 key") ||
		!strings.Contains(out, page) {
		t.Errorf("code %d, %s\n%s", code, stderr, out)
	}
	if html, err := os.ReadFile(page); err != nil || !bytes.HasPrefix(html, []byte("<!doctype html>")) {
		t.Errorf("page: %v, %.50s", err, html)
	}
	code, out, stderr = runReplay(t, replayLog, "--limit", "token-bucket 1/1m burst 1", "--key", "ip", "-o", "json",
		"--top", "1", "-")
	var got struct {
		Requests, Keys, Allowed, Denied, Unparsed int
		Top                                       []struct {
			Key              string
			Requests, Denied int
		}
	}
	if err := json.Unmarshal([]byte(out), &got); code != 0 || stderr != "" || err != nil {
		t.Fatalf("code %d, %s, %v: %s", code, stderr, err, out)
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
		"has no \"host\"":           {"--limit", limit, "--key", "host", "--format", "combined", "-"},
		"is not JSON":               {"--limit", limit, "--key", "ip", "--format", "json", "-"},
		"log does not":              {"--limit", "concurrency 10 ttl 30s", "--key", "ip", "-"},
		"is given twice":            {"--limit", limit, "--limit", limit + " burst 1", "--key", "ip", "-"},
		"where:":                    {"--limit", limit, "--key", "ip", "--where", "status", "-"},
		"where: \"status!2\"":       {"--limit", limit, "--key", "ip", "--where", "status!2", "-"},
		"missing closing":           {"--limit", limit, "--key", "ip", "--where", "path~(", "-"},
		"--since: \"yesterday\"":    {"--limit", limit, "--key", "ip", "--since", "yesterday", "-"},
		"until: is not after since": {"--limit", limit, "--key", "ip", "--since", "2015-05-18", "--until", "2015-05-17", "-"},
		"left out by where":         {"--limit", limit, "--key", "ip", "--since", "2016-01-01", "-"},
		"from 33 to 128":            {"--limit", limit, "--key", "ip/24", "-"},
		"has ip twice":              {"--limit", limit, "--key", "ip,ip/48", "-"},
		"an empty part":             {"--limit", limit, "--key", "ip,,path", "-"},
		"is not a decimal":          {"--limit", limit, "--key", "ip", "--cost", "path", "-"},
		"settle: a log":             {"--limit", limit, "--key", "ip", "--settle", "bytes", "--format", "combined", "-"},
		"trace:":                    {"--limit", limit, "--key", "ip", "--trace", "-1", "-"},
		"--key: is given 2 times":   {"--limit", limit, "--key", "ip", "--key", "path", "-"},
		"is a directory":            {"--limit", limit, "--key", "ip", "--html", t.TempDir(), "-"},
	} {
		code, out, stderr := runReplay(t, replayLog, args...)
		if code != 2 || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: code %d, %q, %q; want %q", args, code, out, stderr, want)
		}
	}
	const mailLog = "Nov 22 02:00:00 mx postfix/smtpd[17]: connect from unknown[192.0.2.1]\n"
	if code, out, stderr := runReplay(t, mailLog, "--limit", limit, "--key", "ip", "-"); code != 2 || out != "" ||
		!strings.Contains(stderr, "format not recognised") {
		t.Errorf("log of a mail server: code %d, %s, %s", code, out, stderr)
	}
	const noRequestLog = "Mar 27 14:54:57 h sshd[1]: Server listening on 0.0.0.0 port 22.\n"
	if code, out, stderr := runReplay(t, noRequestLog, "--limit", limit, "--key", "ip", "-"); code != 2 || out != "" ||
		!strings.Contains(stderr, "there is no request in 1 line") {
		t.Errorf("log without requests: code %d, %s, %s", code, out, stderr)
	}
	if code, _, stderr := runReplay(t, "", "--limit", limit, "--key", "ip", "-"); code != 2 ||
		!strings.Contains(stderr, "empty") {
		t.Errorf("empty log: code %d, %s", code, stderr)
	}
}
