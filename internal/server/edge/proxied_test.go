package edge_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/internal/server/edge"
)

// TestProxiedPathsTakeAnyOrigin checks that other origins, but no unknown hosts, are served on the proxied path alone.
func TestProxiedPathsTakeAnyOrigin(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t, "127.0.0.1:0", hello, &edge.Config{Proxied: []string{"/v1/auth"}})
	for _, tt := range []struct {
		path, host string
		want       int
	}{
		{"/v1/auth", addr, 200},
		{"/v1/auth?x=/", "localhost", 200},
		{"/v1/%61uth", addr, 403},
		{"/v1/auth", "rebind.evil", 421},
		{"/v1/auth/", addr, 403},
		{"/v1/auth/x", addr, 403},
		{"//v1/auth", addr, 403},
		{"/v1%2Fauth", addr, 403},
		{"/v1/Auth", addr, 403},
		{"/v1/take", addr, 403},
		{"/v1/take?/v1/auth", addr, 403},
		{"/", addr, 403},
	} {
		for _, method := range []string{"GET", "POST", "HEAD", "OPTIONS", "DELETE"} {
			r, err := http.NewRequest(method, "http://"+addr+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = tt.host
			r.Header.Set("Origin", "https://evil.example")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			res, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if res.Body.Close(); res.StatusCode != tt.want {
				t.Errorf("%s %s as %s: status %d, want %d", method, tt.path, tt.host, res.StatusCode, tt.want)
			}
			if got := res.Header.Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("%s %s: X-Content-Type-Options: %q", method, tt.path, got)
			}
		}
	}
}
