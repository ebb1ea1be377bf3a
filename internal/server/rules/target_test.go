package rules

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// FuzzParseTarget checks that an accepted path has nothing that servers read differently, such as a segment "..".
func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{
		"/", "*", "/a/../b/./c//d/?x=/../y", "//host/path", "http://example.com/a?b", "http://example.com",
		"/%2e%2e/%2F%00", "mailto:x", "a", "", "/a/.", "/a/..", "/\xff", "/a?b#c", `/a\b`, "/a%5cb", "/a..b/.c/...",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		got, err := ParseTarget("uri", uri)
		switch {
		case err != nil && !errors.Is(err, headgate.ErrInvalid):
			t.Errorf("%q: %v", uri, err)
		case err != nil || uri == "*":
		case !strings.HasPrefix(got.Path, "/") || strings.Contains(got.Path+"/", "/./") ||
			strings.Contains(got.Path+"/", "/../") || strings.Contains(got.Path, "/..;") || strings.Contains(uri, "#") ||
			strings.ContainsAny(got.Path, "\\\r\n\t\x7f"):
			t.Errorf("%q: path %q", uri, got.Path)
		case strings.Contains(got.Path, EncodedSlash) && !strings.Contains(strings.ToLower(uri), "%2f") ||
			strings.Contains(strings.ReplaceAll(got.Path, EncodedSlash, "/")+"/", "/../"):
			t.Errorf("%q: path %q", uri, got.Path)
		case !strings.Contains(uri, got.Query):
			t.Errorf("%q: query %q", uri, got.Query)
		}
	})
}

// TestTargets checks the paths of targets, and that targets which some applications serve as another path are errors.
func TestTargets(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"/login": "/login", "/login%23": "/login#", "/login;x": "/login;x", "/login;sid=1": "/login;sid=1",
		"/a..;b": "/a..;b", "/...": "/...", "/...;x": "/...;x", "/login%20": "/login ", "/%c3%a9": "/\u00e9",
		"/login?next=%00%2e%2e%2f": "/login", "/a%2Fb/%252f": "/a\x00b/%2f", "http://shop.example/login": "/login",
	} {
		if got, err := ParseTarget("uri", uri); err != nil || got.Path != want {
			t.Errorf("%s: %q, %v; want %q", uri, got.Path, err, want)
		}
	}
	for _, uri := range []string{
		"/login#", "/login#x", "/login?a=b#x", "http://shop.example/login#x", "/#/login",
		"/login%00", "/%00login", "/login%0a", "/login%0D", "/login%09", "/login%7f", "/%1flogin",
		"/..;/login", "/api/..;/login", "/api/..;x=y/login", "/.;/login", "/%2e%2e;/login", "/api/..%3b/login",
		"/api/%2E%2E%3Bx/login", "/api/..;", "/api/.%3b", "/a%2f..%2fb", "/a/..%2fb", "/a%2F.", "/%2f%00",
	} {
		if got, err := ParseTarget("uri", uri); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: got %q, %v, want ErrInvalid", uri, got.Path, err)
		}
	}
}
