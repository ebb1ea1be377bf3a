package main

import (
	"net/http"
	"testing"
)

// TestForwardAuthentication over the network: an end user's Origin is no reason to refuse, and only a
// listed proxy is believed.
func TestForwardAuthentication(t *testing.T) {
	t.Parallel()
	byLoopback, byNone := start(t, t.TempDir(), "--store", "memory:"), start(t, t.TempDir(), "--store", "memory:",
		"--proxy", "10.0.0.0/8", "--proxy", "192.0.2.1")
	for _, tt := range []struct {
		server *server
		method string
		query  string
		header string // what shows that it is a proxy's
		want   int
	}{
		{byLoopback, "GET", "?limit=token-bucket+1/1h&key=k", "X-Forwarded-Uri", 204},
		{byLoopback, "POST", "?limit=token-bucket+1/1h&key=k", "X-Original-Uri", 429},
		{byLoopback, "GET", "?limit=token-bucket+1/1h&key=k&deny=403", "Headgate-Token", 403},
		{byLoopback, "GET", "?limit=token-bucket+1/1h&key=new", "X-Other", 403},
		{byLoopback, "OPTIONS", "?limit=token-bucket+1/1h&key=new", "X-Forwarded-Uri", 204},
		{byLoopback, "GET", "?limit=token-bucket+1/1h&by=ip", "X-Forwarded-Uri", 204},
		{byLoopback, "GET", "", "X-Forwarded-Uri", 400},
		{byNone, "GET", "?limit=token-bucket+1/1h&by=ip", "X-Forwarded-Uri", 400},
		{byNone, "GET", "?limit=token-bucket+1/1h&key=k", "X-Forwarded-Uri", 204},
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
	}
}
