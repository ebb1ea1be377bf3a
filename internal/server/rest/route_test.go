package rest_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/rest"
)

// TestPathsAreMatchedAsByServeMux checks the patterns and answers for paths in usual and unusual spellings.
func TestPathsAreMatchedAsByServeMux(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	for _, tt := range []struct {
		method, path, pattern        string
		status                       int
		allow, location, contentType string
	}{
		{"POST", "/v1/take", "POST /v1/take", 200, "", "", "application/json"},
		{"POST", "/v1/t%61ke", "POST /v1/take", 200, "", "", "application/json"},
		{"POST", "/v1/take?x=1", "POST /v1/take", 200, "", "", "application/json"},
		{"POST", "/v1%2Ftake", "", 404, "", "", "application/problem+json"},
		{"POST", "/v1/take/", "", 404, "", "", "application/problem+json"},
		{"POST", "/v1/Take", "", 404, "", "", "application/problem+json"},
		{"POST", "/", "", 404, "", "", "application/problem+json"},
		{"POST", "//v1/take", "POST /v1/take", 307, "", "/v1/take", ""},
		{"POST", "/v1/./take?x=1", "POST /v1/take", 307, "", "/v1/take?x=1", ""},
		{"GET", "//v1/limits", "GET /v1/limits", 307, "", "/v1/limits", "text/html; charset=utf-8"},
		{"POST", "//nothing", "", 307, "", "/nothing", "application/problem+json"},
		{"GET", "/v1/take", "", 405, "POST", "", "application/problem+json"},
		{"OPTIONS", "/v1/check", "", 405, "POST", "", "application/problem+json"},
		{"POST", "/v1/limits", "", 405, "GET, HEAD", "", "application/problem+json"},
		{"HEAD", "/v1/limits", "GET /v1/limits", 200, "", "", "application/json"},
		{"CONNECT", "/v1/take", "", 405, "POST", "", "application/problem+json"},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader(bodies["/v1/take"]))
		h.ServeHTTP(w, r)
		if w.Code != tt.status || w.Header().Get("Allow") != tt.allow || w.Header().Get("Location") != tt.location ||
			w.Header().Get("Content-Type") != tt.contentType || tt.pattern != "" && r.Pattern != tt.pattern {
			t.Errorf("got status %d, pattern %q, %v; want %+v", w.Code, r.Pattern, w.Header(), tt)
		}
	}
}

// TestPatternsHaveNoWildcards checks that no pattern has a wildcard, whose value withProblems would not set.
func TestPatternsHaveNoWildcards(t *testing.T) {
	t.Parallel()
	for _, pattern := range rest.Patterns() {
		if strings.ContainsAny(pattern, "{}") || strings.HasSuffix(pattern, "/") {
			t.Errorf("%s has a wildcard", pattern)
		}
	}
}
