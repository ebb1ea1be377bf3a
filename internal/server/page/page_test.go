package page_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/page"
)

// TestFiles checks the answers for a file of each type, and for paths that are no files of the page.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := newPageServer(t, false)
	contentTypes := map[string]string{
		"/": "text/html; charset=utf-8", "/page/app.js": "text/javascript; charset=utf-8",
		"/page/app.css": "text/css; charset=utf-8", "/page/palette.css": "text/css; charset=utf-8",
		"/page/icon.svg": "image/svg+xml", "/page/LICENSE.uplot": "text/plain; charset=utf-8",
	}
	for path, contentType := range contentTypes {
		res := sendRequest(t, http.MethodGet, s.base+path)
		h := res.header
		if res.status != http.StatusOK || h.Get("Content-Type") != contentType || res.text == "" {
			t.Errorf("%s: status %d, %s, %d bytes", path, res.status, h.Get("Content-Type"), len(res.text))
		}
		if len(h["Content-Security-Policy"]) != 1 || h.Get("Content-Security-Policy") != page.Policy ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: got %v, want the headers of the policy", path, h)
		}
		cached := sendRequest(t, http.MethodGet, s.base+path, "If-None-Match: "+h.Get("ETag"))
		if cached.status != http.StatusNotModified {
			t.Errorf("%s with its ETag: status %d, want 304", path, cached.status)
		}
		if head := sendRequest(t, http.MethodHead, s.base+path); head.status != http.StatusOK {
			t.Errorf("HEAD %s: status %d", path, head.status)
		}
		if post := sendRequest(t, http.MethodPost, s.base+path); post.status < 400 {
			t.Errorf("POST %s: status %d", path, post.status)
		}
	}
	for _, path := range []string{"/page/", "/page/page.go", "/page/../page.go", "/page", "/index.html", "/page/index.html"} {
		if res := sendRequest(t, http.MethodGet, s.base+path); res.status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, res.status)
		}
	}
}

// TestPolicyAllowsOnlyTheServer checks that the policy and the page have no inline code, other hosts, or text as HTML.
func TestPolicyAllowsOnlyTheServer(t *testing.T) {
	t.Parallel()
	for _, part := range strings.Split(page.Policy, "; ") {
		name, sources, _ := strings.Cut(part, " ")
		switch {
		case name == "default-src" && sources == "'none'", name == "require-trusted-types-for" && sources == "'script'":
		case sources != "'none'" && sources != "'self'":
			t.Errorf("%s allows %s", name, sources)
		}
	}
	res := sendRequest(t, http.MethodGet, newPageServer(t, false).base+"/")
	for _, inline := range []string{"<style", " style=", " onclick=", " onload=", "http://", "https://", "<script>"} {
		if strings.Contains(res.text, inline) {
			t.Errorf("the page has %q", inline)
		}
	}
}
