package rules

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// FuzzParseTarget checks that no target is accepted whose path has a segment that some servers resolve.
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
			strings.Contains(got.Path+"/", "/../") || strings.Contains(got.Path, `\`):
			t.Errorf("%q: path %q", uri, got.Path)
		case !strings.Contains(uri, got.Query):
			t.Errorf("%q: query %q", uri, got.Query)
		}
	})
}
