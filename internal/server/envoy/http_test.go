package envoy_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

func TestJSONAndHealth(t *testing.T) {
	t.Parallel()
	r := startRig(t, envoy.Headers{Legacy: true}, flatFile)
	const body = `{"domain": "flat", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}], "hitsAddend": 1}`
	post := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r.server.ServeJSON(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
		return w
	}
	for i := range 4 {
		w := post(body)
		want, code := http.StatusOK, rls.RateLimitResponse_OK
		if i == 3 {
			want, code = http.StatusTooManyRequests, rls.RateLimitResponse_OVER_LIMIT
		}
		var got rls.RateLimitResponse
		err := protojson.Unmarshal(w.Body.Bytes(), &got)
		if err != nil || w.Code != want || got.GetOverallCode() != code {
			t.Errorf("request %d: %d %s, %v", i, w.Code, w.Body, err)
		}
		if got := w.Header().Get("X-RateLimit-Limit"); got != "3" {
			t.Errorf("X-RateLimit-Limit is %q, want 3", got)
		}
	}
	for _, body := range []string{"", "{", `{"domain": 7}`, `{"domain": "flat"}`, `{"nonsense": 1}`, `{"domain": "flat"}` + strings.Repeat(" ", 2<<20)} {
		if w := post(body); w.Code != http.StatusBadRequest {
			t.Errorf("%.40q: %d, want 400", body, w.Code)
		}
	}
	if w := post(`{"descriptors": [` + strings.Repeat("{},", 100_000) + "{}]}"); w.Code != http.StatusBadRequest ||
		!strings.Contains(w.Body.String(), "more than 50000 objects") {
		t.Errorf("100,001 descriptors: %d %.200s", w.Code, w.Body)
	}
	health := func(s *envoy.Server) int {
		w := httptest.NewRecorder()
		s.ServeHealth(w, httptest.NewRequest(http.MethodGet, "/healthcheck", http.NoBody))
		return w.Code
	}
	if got := health(r.server); got != http.StatusOK {
		t.Errorf("health %d, want 200", got)
	}
	if got := health(startRig(t, noHeaders).server); got != http.StatusInternalServerError {
		t.Errorf("health without a configuration %d, want 500", got)
	}
}

// awayStore is a store that cannot be reached.
type awayStore struct{ store.Store }

func (awayStore) Apply(context.Context, []law.Op, []law.Outcome) error {
	return fmt.Errorf("%w: connection refused", store.ErrUnavailable)
}
func (awayStore) Close() error { return nil }

func TestUnavailableStore(t *testing.T) {
	t.Parallel()
	r := startRigWithStore(t, awayStore{}, noHeaders, hourly+"}\n")
	for _, n := range []int64{0, 1, 5, -1} {
		answer, err := r.trySend("d", 0, hits(desc("k", "x"), n))
		if status.Code(err) != codes.Unavailable || answer != nil {
			t.Errorf("%d hits: %v, %v; want Unavailable, so that Envoy decides", n, answer, err)
		}
	}
	if _, err := r.trySend("d", 0, desc("k", "x"), desc("k", "y")); status.Code(err) == codes.OK {
		t.Error("two descriptors were answered without a store")
	}
	if answer, err := r.trySend("d", 0, desc("other", "x")); err != nil || answer.GetOverallCode() != rls.RateLimitResponse_OK {
		t.Errorf("a descriptor without a limit: %v, %v; want OK without the store", answer, err)
	}
	w := httptest.NewRecorder()
	r.server.ServeJSON(w, httptest.NewRequest(http.MethodPost, "/json",
		strings.NewReader(`{"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}]}`)))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("POST /json: %d, want 500", w.Code)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	headers, err := envoy.ParseHeaders([]string{"x-ratelimit", "draft"})
	if err != nil {
		t.Fatal(err)
	}
	const file = `
domain: d
algorithm: fixed-window
descriptors:
  - {key: a, rate_limit: {name: wide, unit: hour, requests_per_unit: 10}}
  - {key: b, rate_limit: {name: narrow, unit: minute, requests_per_unit: 2}}
  - {key: c, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
`
	r := startRig(t, headers, file)
	r.advance(30 * time.Second)
	headerLines := func() string {
		var lines []string
		for _, h := range r.send("d", 0, desc("a", "x"), desc("b", "x"), desc("c", "x")).GetResponseHeadersToAdd() {
			lines = append(lines, h.GetKey()+": "+h.GetValue())
		}
		return strings.Join(lines, "\n")
	}
	for _, want := range []string{
		"ratelimit: \"narrow\";r=1;t=30\nratelimit-policy: \"narrow\";q=2;w=60\nx-ratelimit-limit: 2\nx-ratelimit-remaining: 1\nx-ratelimit-reset: 30",
		"ratelimit: \"narrow\";r=0;t=30\nratelimit-policy: \"narrow\";q=2;w=60\nx-ratelimit-limit: 2\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 30",
		"ratelimit: \"narrow\";r=0;t=30\nratelimit-policy: \"narrow\";q=2;w=60\nretry-after: 30\nx-ratelimit-limit: 2\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 30",
	} {
		if got := headerLines(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	if got := r.send("d", 0, desc("other", "x")).GetResponseHeadersToAdd(); len(got) > 0 {
		t.Errorf("headers without a limit: %v", got)
	}
	if _, err := envoy.ParseHeaders([]string{"cookies"}); err == nil {
		t.Error("headers of an unknown kind: got no error")
	}
}
