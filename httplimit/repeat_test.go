package httplimit_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// TestRetries checks that only idempotent requests are sent again, and only if the answer says when, within MaxWait.
func TestRetries(t *testing.T) {
	t.Parallel()
	retrySoon := answer{429, "Retry-After: 0.05"}
	for _, tt := range []struct {
		name, method string
		key          bool // with an Idempotency-Key
		noGetBody    bool // the body cannot be read again
		retries      int
		script       []answer
		status       int
		requests     int
	}{
		{"GET", "GET", false, false, 2, []answer{retrySoon, retrySoon, {200, ""}}, 200, 3},
		{"PUT after 503", "PUT", false, false, 2, []answer{{503, "Retry-After: 0.05"}, {200, ""}}, 200, 2},
		{
			"DELETE after 403", "DELETE", false, false, 1,
			[]answer{{403, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 50ms"}, {200, ""}},
			200, 2,
		},
		{"as often as Retries", "GET", false, false, 2, []answer{retrySoon}, 429, 3},
		{"without Retries", "GET", false, false, 0, []answer{retrySoon, {200, ""}}, 429, 1},
		{"POST", "POST", false, false, 2, []answer{retrySoon, {200, ""}}, 429, 1},
		{"POST with a key", "POST", true, false, 2, []answer{retrySoon, {201, ""}}, 201, 2},
		{"a body without GetBody", "PUT", false, true, 2, []answer{retrySoon, {200, ""}}, 429, 1},
		{"an answer without a time", "GET", false, false, 2, []answer{{429, ""}, {200, ""}}, 429, 1},
		{"a time beyond MaxWait", "GET", false, false, 2, []answer{{429, "Retry-After: 600"}, {200, ""}}, 429, 1},
		{"another status", "GET", false, false, 2, []answer{{500, "Retry-After: 0.05"}, {200, ""}}, 500, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := httplimit.Config{MaxWait: time.Minute, Retries: tt.retries}
			s := newScriptedServer(t, fastLimit, cfg, tt.script...)
			req, _ := http.NewRequestWithContext(t.Context(), tt.method, s.URL, strings.NewReader("what was sent"))
			if tt.key {
				req.Header.Set("Idempotency-Key", "1")
			}
			if tt.noGetBody {
				req.GetBody = nil
			}
			original := *req
			header := req.Header.Clone()
			resp, err := s.client.Transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || string(body) != http.StatusText(tt.status) || err != nil {
				t.Errorf("got %d %q (%v), want %d", resp.StatusCode, body, err, tt.status)
			}
			bodies := s.requestBodies()
			for _, b := range bodies {
				if b != "what was sent" {
					t.Errorf("the server got %q", b)
				}
			}
			if len(bodies) != tt.requests {
				t.Errorf("the request was sent %d times, want %d", len(bodies), tt.requests)
			}
			if req.Body != original.Body || req.URL != original.URL || len(req.Header) != len(header) {
				t.Error("the request was changed")
			}
		})
	}
}

func TestAnswersThatAreNotReturnedAreReadAndClosed(t *testing.T) {
	t.Parallel()
	var bodies []*trackedBody
	rt, err := httplimit.New(headgate.New(memory.New(nil), nil), fastLimit, &httplimit.Config{
		MaxWait: time.Minute, Retries: 1,
		Next: roundTripFunc(func(*http.Request) (*http.Response, error) {
			bodies = append(bodies, &trackedBody{Reader: strings.NewReader("later")})
			return &http.Response{
				StatusCode: http.StatusTooManyRequests, Header: headerOf("Retry-After: 0.01"),
				Body: bodies[len(bodies)-1],
			}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
	resp, err := rt.RoundTrip(req)
	if err != nil || len(bodies) != 2 || resp.Body != bodies[1] || bodies[1].closed.Load() {
		t.Fatalf("%d answers, got %v (%v)", len(bodies), resp, err)
	}
	resp.Body.Close()
	if rest, _ := io.ReadAll(bodies[0]); !bodies[0].closed.Load() || len(rest) > 0 {
		t.Errorf("the first answer: closed %v, %q not read", bodies[0].closed.Load(), rest)
	}
}

// TestRetriesWaitThoughTheStoreIsAway checks that a retry waits for Retry-After also if the store cannot block the key.
func TestRetriesWaitThoughTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var sent []time.Duration
		rt, err := httplimit.New(headgate.New(takeOnlyStore{memory.New(nil)}, nil), fastLimit, &httplimit.Config{
			MaxWait: time.Minute, Retries: 1,
			Next: roundTripFunc(func(*http.Request) (*http.Response, error) {
				sent = append(sent, time.Since(begin))
				return &http.Response{
					StatusCode: http.StatusTooManyRequests, Header: headerOf("Retry-After: 2"), Body: http.NoBody,
				}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
		_, err = rt.RoundTrip(req) //nolint:bodyclose // it has no connection
		if err != nil || !slices.Equal(sent, []time.Duration{0, 2 * time.Second}) {
			t.Errorf("sent at %v (%v), want at 0s and 2s", sent, err)
		}
	})
}
