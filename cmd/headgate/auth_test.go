package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestForwardAuthentication sends requests as a proxy does. In them the Origin of an end user is no reason to refuse,
// and only the X-Forwarded-For of a listed proxy counts.
func TestForwardAuthentication(t *testing.T) {
	t.Parallel()
	loopbackListed := start(t, t.TempDir(), "--store", "memory:")
	loopbackUnlisted := start(t, t.TempDir(), "--store", "memory:", "--proxy", "10.0.0.0/8",
		"--proxy", "192.0.2.1", "--auth-headers", "draft,x-ratelimit")
	for _, tt := range []struct {
		server *server
		method string
		query  string
		header string // a proxy sends one of X-Forwarded-Uri, X-Original-Uri and Headgate-Token
		want   int
	}{
		{loopbackListed, "GET", "?limit=token-bucket+1/1h&key=k", "X-Forwarded-Uri", 204},
		{loopbackListed, "POST", "?limit=token-bucket+1/1h&key=k", "X-Original-Uri", 429},
		{loopbackListed, "GET", "?limit=token-bucket+1/1h&key=k&deny=403", "Headgate-Token", 403},
		{loopbackListed, "GET", "?limit=token-bucket+1/1h&key=new", "X-Other", 403},
		{loopbackListed, "OPTIONS", "?limit=token-bucket+1/1h&key=new", "X-Forwarded-Uri", 204},
		{loopbackListed, "GET", "?limit=token-bucket+1/1h&by=ip", "X-Forwarded-Uri", 204},
		{loopbackListed, "GET", "", "X-Forwarded-Uri", 400},
		{loopbackUnlisted, "GET", "?limit=token-bucket+1/1h&by=ip", "X-Forwarded-Uri", 400},
		{loopbackUnlisted, "GET", "?limit=token-bucket+1/1h&key=k", "X-Forwarded-Uri", 204},
	} {
		r, err := http.NewRequest(tt.method, tt.server.url+"/v1/auth"+tt.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "https://shop.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("X-Forwarded-For", "203.0.113.5")
		r.Header.Set(tt.header, "/")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != tt.want {
			t.Errorf("%s %s with %s: status %d, want %d", tt.method, tt.query, tt.header, res.StatusCode, tt.want)
		}
		wantLegacy := tt.server == loopbackUnlisted && tt.want == 204
		if legacy := res.Header.Get("X-RateLimit-Limit"); (legacy != "") != wantLegacy {
			t.Errorf("%s with %s: got X-RateLimit-Limit %q", tt.query, tt.header, legacy)
		}
	}
}

// TestForwardAuthDecidesByConfigRules checks that the rules of the config file decide, and that a change replaces them.
func TestForwardAuthDecidesByConfigRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "headgate.yaml")
	writeRules := func(path string) {
		text := "limits:\n  login: sliding-log 3/1h\nrules:\n  - name: guessing\n    method: [POST]\n    path: " + path +
			"\n    limits: [{limit: login, key: ip}]\nblock: [198.51.100.0/24]\n"
		replaceFile(t, file, text)
	}
	writeRules("/login")
	s := start(t, dir, "--store", "memory:", "--config", file)
	authorize := func(target *server, method, path, client string) int {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, target.url+"/v1/auth", nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"X-Forwarded-Method": method, "X-Forwarded-Uri": path, "X-Forwarded-Host": "example.com",
			"X-Forwarded-For": client, "Idempotency-Key": "one", // the key of an end user makes nothing free
		} {
			r.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		if res.Body.Close(); res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") == "" {
			t.Error("a refusal without Retry-After")
		}
		if res.StatusCode == http.StatusBadRequest {
			t.Errorf("%s %s: got 400 %s; the server says %s", method, path, text, target.out.String())
		}
		return res.StatusCode
	}
	for i, want := range []int{204, 204, 204, 429, 429} {
		if got := authorize(s, "POST", "//login?x=1", "192.0.2.7"); got != want {
			t.Errorf("login %d: status %d, want %d", i, got, want)
		}
	}
	for _, tt := range []struct {
		method, path, client string
		want                 int
	}{
		{"POST", "/login", "192.0.2.8", 204},
		{"GET", "/login", "192.0.2.7", 204},
		{"POST", "/other", "192.0.2.7", 204},
		{"POST", "/login", "198.51.100.1", 403},
	} {
		if got := authorize(s, tt.method, tt.path, tt.client); got != tt.want {
			t.Errorf("%s %s by %s: status %d, want %d", tt.method, tt.path, tt.client, got, tt.want)
		}
	}
	writeRules("/other")
	s.waitUntil(t, "that the changed rules decide", func() bool { return authorize(s, "POST", "/other", "192.0.2.7") == 429 })
	replaceFile(t, file, "rules: [{name: x, nonsense: 1}]")
	s.waitUntil(t, "the error of the file",
		func() bool { return strings.Contains(s.out.String(), "is not applied") })
	if got := authorize(s, "POST", "/other", "192.0.2.7"); got != http.StatusTooManyRequests {
		t.Errorf("after an invalid file: status %d, want 429", got)
	}
	// Without its store a server refuses every request that matches a rule.
	writeRules("/login")
	storeless := start(t, dir, "--store", "postgres://nobody@127.0.0.1:1/none", "--config", file)
	if got := authorize(storeless, "POST", "/login", "192.0.2.7"); got != http.StatusServiceUnavailable {
		t.Errorf("without a store: status %d, want 503", got)
	}
}
