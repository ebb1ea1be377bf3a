package forwardauth_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/forwardauth"
)

// TestTrustedPeers checks which client is charged, or which problem is answered, by the peer and X-Forwarded-For.
func TestTrustedPeers(t *testing.T) {
	t.Parallel()
	listed, err := httpkey.ParseProxies("10.0.0.0/8", "2001:db8::/32")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		proxies      httpkey.Proxies
		peer         string
		forwardedFor string // X-Forwarded-For
		key          string // key that is charged; empty: the request is a problem
		wantErr      string // part of the problem
	}{
		{nil, "127.0.0.1:1", "192.0.2.7", "192.0.2.7", ""},
		{nil, "127.9.9.9:1", "192.0.2.7", "192.0.2.7", ""},
		{nil, "[::1]:1", "2001:db8:1:2:3::4", "2001:db8:1:2::/64", ""},
		{nil, "[::ffff:127.0.0.1]:1", "192.0.2.7", "192.0.2.7", ""},
		{nil, "127.0.0.1:1", "6.6.6.6, 192.0.2.7", "192.0.2.7", ""},
		{nil, "127.0.0.1:1", "6.6.6.6, 192.0.2.7, 127.0.0.1", "192.0.2.7", ""},
		{nil, "10.1.2.3:1", "192.0.2.7", "", "10.1.2.3:1 is not listed as a proxy"},
		{listed, "10.1.2.3:1", "192.0.2.7", "192.0.2.7", ""},
		{listed, "10.1.2.3:1", "6.6.6.6, 192.0.2.7, 10.3.3.3", "192.0.2.7", ""},
		{listed, "127.0.0.1:1", "192.0.2.7", "", "127.0.0.1:1 is not listed as a proxy"},
		{httpkey.Proxies{}, "127.0.0.1:1", "192.0.2.7", "", "is not listed as a proxy"},
		{nil, "@", "192.0.2.7", "", "is not listed as a proxy"},
		{nil, "", "192.0.2.7", "", "is not listed as a proxy"},
		{nil, "127.0.0.1:1", "", "", "X-Forwarded-For: is missing"},
		{nil, "127.0.0.1:1", "nonsense", "", "nonsense"},
		{nil, "127.0.0.1:1", "192.0.2.7, nonsense", "", "nonsense"},
		{nil, "127.0.0.1:1", strings.Repeat("127.0.0.1,", 1000) + "192.0.2.7", "192.0.2.7", ""},
		{nil, "127.0.0.1:1", "192.0.2.7," + strings.Repeat("127.0.0.1,", 1000), "", "more than 100 addresses"},
	} {
		g := newGate(t, &forwardauth.Config{Proxies: tt.proxies})
		r := request("GET", "limit=api&by=ip", "X-Forwarded-For: "+tt.forwardedFor)
		r.RemoteAddr = tt.peer
		w := g.send(r)
		if tt.key == "" {
			if p := readProblem(t, w); w.Code != http.StatusBadRequest || !strings.Contains(p.Detail, tt.wantErr) {
				t.Errorf("%s %.40q: status %d, %s; want %s", tt.peer, tt.forwardedFor, w.Code, p.Detail, tt.wantErr)
			}
		} else if w.Code != http.StatusNoContent || g.usedBy(t, "api", tt.key) != "1" {
			t.Errorf("%s %.40q: status %d, %s is not charged", tt.peer, tt.forwardedFor, w.Code, tt.key)
		}
		// A key in the query is charged whatever the peer and X-Forwarded-For are.
		r = request("GET", "limit=other&key=k", "X-Forwarded-For: "+tt.forwardedFor)
		r.RemoteAddr = tt.peer
		if w := g.send(r); w.Code != http.StatusNoContent || g.usedBy(t, "other", "k") != "1" {
			t.Errorf("%s: status %d, want 204", tt.peer, w.Code)
		}
	}
}

// TestOverAUnixSocket checks that a peer on a Unix socket, which has no address, is a proxy.
func TestOverAUnixSocket(t *testing.T) {
	t.Parallel()
	g := newGate(t, &forwardauth.Config{Proxies: httpkey.Proxies{}})
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := edge.NewServer(g, slog.New(slog.DiscardHandler), nil)
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	r := request("GET", "limit=api&by=ip")
	r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", "headgate"
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent || g.usedBy(t, "api", "192.0.2.7") != "1" {
		t.Errorf("got status %d, want 204 and one charge", res.StatusCode)
	}
}

// TestBehindTheEdge checks that package edge refuses large headers and unknown hosts, but serves other origins.
func TestBehindTheEdge(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	server := edge.NewServer(g, slog.New(slog.DiscardHandler), &edge.Config{Proxied: []string{forwardauth.Path}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	for _, tt := range []struct {
		header, host string
		want         []int // 0: the connection is closed
	}{
		{"X-Forwarded-For: 192.0.2.7", "localhost", []int{204}},
		{"X-Forwarded-For: 192.0.2.7\r\nOrigin: https://evil.example\r\nSec-Fetch-Site: cross-site", "localhost", []int{204}},
		{"X-Forwarded-For: 192.0.2.7\r\nCookie: " + strings.Repeat("x", 15_000), "localhost", []int{204}},
		{"X-Forwarded-For: 192.0.2.7\r\nCookie: " + strings.Repeat("x", 30_000), "localhost", []int{431}},
		{"X-Forwarded-For: " + strings.Repeat("127.0.0.1, ", 3_000) + "192.0.2.7", "localhost", []int{431}},
		{strings.Repeat("X-Forwarded-For: 127.0.0.1\r\n", 3_000) + "X-Forwarded-For: 192.0.2.7", "localhost", []int{0, 400, 431}},
		{"X-Forwarded-For: 192.0.2.7", "rebind.evil", []int{421}},
	} {
		usedBefore := g.usedBy(t, "other", "192.0.2.7")
		status := sendOverTCP(t, l.Addr().String(), "GET /v1/auth?limit=other&by=ip HTTP/1.1\r\nHost: "+tt.host+
			"\r\nX-Forwarded-Uri: /\r\n"+tt.header+"\r\n\r\n")
		if !slices.Contains(tt.want, status) {
			t.Errorf("%.60q: status %d, want %d", tt.header, status, tt.want)
		}
		if usedAfter := g.usedBy(t, "other", "192.0.2.7"); (usedAfter != usedBefore) != (status == 204) {
			t.Errorf("%.60q: status %d, %s was used, then %s", tt.header, status, usedBefore, usedAfter)
		}
	}
}

// sendOverTCP sends a request and returns the status of the answer, or 0 if there is none.
func sendOverTCP(t *testing.T, addr, text string) int {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { _, _ = io.WriteString(c, text) }()
	var status int
	if _, err := fmt.Fscanf(c, "HTTP/1.1 %d", &status); err != nil {
		return 0
	}
	return status
}
