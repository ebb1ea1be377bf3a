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

func TestOnlyWhatMayBeIsSentAgain(t *testing.T) {
	t.Parallel()
	soon := answer{429, "Retry-After: 0.05"}
	for _, tt := range []struct {
		name, method string
		key          bool // with an Idempotency-Key
		once         bool // the body cannot be had again
		retries      int
		script       []answer
		want, sent   int
	}{
		{"GET", "GET", false, false, 2, []answer{soon, soon, {200, ""}}, 200, 3},
		{"PUT after 503", "PUT", false, false, 2, []answer{{503, "Retry-After: 0.05"}, {200, ""}}, 200, 2},
		{
			"DELETE after 403", "DELETE", false, false, 1,
			[]answer{{403, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 50ms"}, {200, ""}},
			200, 2,
		},
		{"as often as allowed", "GET", false, false, 2, []answer{soon}, 429, 3},
		{"unless told to", "GET", false, false, 0, []answer{soon, {200, ""}}, 429, 1},
		{"POST", "POST", false, false, 2, []answer{soon, {200, ""}}, 429, 1},
		{"POST with a key", "POST", true, false, 2, []answer{soon, {201, ""}}, 201, 2},
		{"a body that is gone", "PUT", false, true, 2, []answer{soon, {200, ""}}, 429, 1},
		{"an answer without a time", "GET", false, false, 2, []answer{{429, ""}, {200, ""}}, 429, 1},
		{"a time beyond patience", "GET", false, false, 2, []answer{{429, "Retry-After: 600"}, {200, ""}}, 429, 1},
		{"another status", "GET", false, false, 2, []answer{{500, "Retry-After: 0.05"}, {200, ""}}, 500, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFar(t, plenty, httplimit.Config{MaxWait: time.Minute, Retries: tt.retries}, tt.script...)
			req, _ := http.NewRequestWithContext(t.Context(), tt.method, f.URL, strings.NewReader("what was sent"))
			if tt.key {
				req.Header.Set("Idempotency-Key", "1")
			}
			if tt.once {
				req.GetBody = nil
			}
			was := *req
			header := req.Header.Clone()
			resp, err := f.client.Transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.want || string(body) != http.StatusText(tt.want) || err != nil {
				t.Errorf("got %d %q (%v), want %d", resp.StatusCode, body, err, tt.want)
			}
			sent := f.seen()
			for _, s := range sent {
				if s != "what was sent" {
					t.Errorf("the server got %q", s)
				}
			}
			if len(sent) != tt.sent {
				t.Errorf("it was sent %d times, want %d", len(sent), tt.sent)
			}
			if req.Body != was.Body || req.URL != was.URL || len(req.Header) != len(header) {
				t.Error("the request was changed")
			}
		})
	}
}

func TestAnswersThatAreNotReturnedAreReadAndClosed(t *testing.T) {
	t.Parallel()
	var answers []*body
	rt, err := httplimit.New(headgate.New(memory.New(nil), nil), plenty, &httplimit.Config{
		MaxWait: time.Minute, Retries: 1,
		Next: sender(func(*http.Request) (*http.Response, error) {
			answers = append(answers, &body{Reader: strings.NewReader("later")})
			return &http.Response{
				StatusCode: http.StatusTooManyRequests, Header: fields("Retry-After: 0.01"),
				Body: answers[len(answers)-1],
			}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
	resp, err := rt.RoundTrip(req)
	if err != nil || len(answers) != 2 || resp.Body != answers[1] || answers[1].closed.Load() {
		t.Fatalf("%d answers, got %v (%v)", len(answers), resp, err)
	}
	resp.Body.Close()
	if rest, _ := io.ReadAll(answers[0]); !answers[0].closed.Load() || len(rest) > 0 {
		t.Errorf("the first answer: closed %v, %q not read", answers[0].closed.Load(), rest)
	}
}

func TestRepeatIsInTimeWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var sent []time.Duration
		rt, err := httplimit.New(headgate.New(deaf{memory.New(nil)}, nil), plenty, &httplimit.Config{
			MaxWait: time.Minute, Retries: 1,
			Next: sender(func(*http.Request) (*http.Response, error) {
				sent = append(sent, time.Since(begin))
				return &http.Response{
					StatusCode: http.StatusTooManyRequests, Header: fields("Retry-After: 2"),
					Body: http.NoBody,
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
