package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// blockOf returns for how long the server's key is blocked, and why.
func (s *scriptedServer) blockOf(t *testing.T, limit headgate.Limit) (time.Duration, string) {
	t.Helper()
	st, err := s.limiter.Inspect(t.Context(), limit, "far")
	if err != nil {
		t.Fatal(err)
	}
	if st.BlockedUntil.IsZero() {
		return 0, ""
	}
	return st.BlockedUntil.Sub(st.At), st.Reason
}

func TestRetryAfterBlocksTheKeyInTheStore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer answer
		block  time.Duration
		reason string
	}{
		{"429", answer{429, "Retry-After: 60"}, time.Minute, "the server answered 429: Retry-After"},
		{"a quota used up", answer{200, `RateLimit: "a";r=0;t=60`}, time.Minute, "the server answered 200: RateLimit"},
		{
			"more than the longest block",
			answer{503, "Retry-After: 999999999"},
			time.Hour,
			"the server answered 503: Retry-After",
		},
		{"nonsense", answer{429, "Retry-After: -1\nRateLimit: ;;;"}, 0, ""},
	} {
		s := newScriptedServer(t, fastLimit, httplimit.Config{}, tt.answer)
		status, body, err := s.send(t.Context(), "GET", "")
		if status != tt.answer.status || body != http.StatusText(status) || err != nil {
			t.Errorf("%s: got %d %q (%v)", tt.name, status, body, err)
		}
		got, reason := s.blockOf(t, fastLimit)
		if got > tt.block || got < tt.block-5*time.Second || reason != tt.reason {
			t.Errorf("%s: blocked for %v because %q, want %v because %q", tt.name, got, reason, tt.block, tt.reason)
		}
		if (len(s.backoffs) == 1) != (tt.block > 0) || tt.block > 0 &&
			(s.backoffs[0].For != tt.block || s.backoffs[0].Err != nil || s.backoffs[0].Key != "far") {
			t.Errorf("%s: OnBackoff: got %+v", tt.name, s.backoffs)
		}
		_, _, err = s.send(t.Context(), "GET", "")
		if errors.Is(err, headgate.ErrDenied) != (tt.block > 0) {
			t.Errorf("%s: the next request: got %v, want refused %v", tt.name, err, tt.block > 0)
		}
	}
}

// slowCellsStore answers Cells a second late, so that the cells may have changed by then.
type slowCellsStore struct{ *memory.Store }

func (s slowCellsStore) Cells(ctx context.Context, q store.Query) ([]store.Cell, int64, error) {
	defer time.Sleep(time.Second)
	return s.Store.Cells(ctx, q)
}

// TestTheLongestRetryAfterBlocks has 20 requests answered at once, one of them with a longer Retry-After. The key must
// be blocked until the end of that one, in whatever order the answers come.
func TestTheLongestRetryAfterBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := headgate.New(slowCellsStore{memory.New(nil)}, nil)
		var requests atomic.Int32
		rt, err := httplimit.New(l, fastLimit, &httplimit.Config{
			Next: roundTripFunc(func(*http.Request) (*http.Response, error) {
				retry := "Retry-After: 600"
				if requests.Add(1) == 7 {
					retry = "Retry-After: 3000"
				}
				time.Sleep(time.Second) // until all are on their way
				return &http.Response{
					StatusCode: http.StatusTooManyRequests, Header: headerOf(retry), Body: http.NoBody,
				}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			})
		}
		wg.Wait()
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("it took %v, want 1s for the answers and 2s for two reads of the cell", took)
		}
		s, err := l.Inspect(t.Context(), fastLimit, "example.com")
		if got := s.BlockedUntil.Sub(begin); err != nil || got != 3001*time.Second {
			t.Errorf("blocked until %v after the start (%v), want 3001s", got, err)
		}
	})
}

// TestRetryAfterKeepsALongerBlock has another replica block the key for an hour before an answer with Retry-After 2.
func TestRetryAfterKeepsALongerBlock(t *testing.T) {
	t.Parallel()
	l := headgate.New(memory.New(nil), nil)
	rt, err := httplimit.New(l, fastLimit, &httplimit.Config{
		Next: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			_, err := l.Block(req.Context(), fastLimit, "example.com", time.Hour, "another")
			return &http.Response{
				StatusCode: http.StatusTooManyRequests, Header: headerOf("Retry-After: 2"), Body: http.NoBody,
			}, err
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
	if _, err := rt.RoundTrip(req); err != nil { //nolint:bodyclose // it has no connection
		t.Fatal(err)
	}
	s, err := l.Inspect(t.Context(), fastLimit, "example.com")
	if d := s.BlockedUntil.Sub(s.At); err != nil || d < 59*time.Minute || s.Reason != "another" {
		t.Errorf("blocked for %v because %q (%v), want an hour because of another", d, s.Reason, err)
	}
}

// takeOnlyStore is a store whose Apply fails unless the first op is a Take.
type takeOnlyStore struct{ store.Store }

func (s takeOnlyStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if ops[0].Verb != law.Take {
		return store.ErrUnavailable
	}
	return s.Store.Apply(ctx, ops, outs)
}

func TestAnAnswerIsReturnedThoughTheStoreIsAway(t *testing.T) {
	t.Parallel()
	var backoff httplimit.Backoff
	body := &trackedBody{Reader: strings.NewReader("later")}
	rt, err := httplimit.New(headgate.New(takeOnlyStore{memory.New(nil)}, nil), fastLimit, &httplimit.Config{
		Next: roundTripFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusTooManyRequests, Header: headerOf("Retry-After: 7"), Body: body,
			}, nil
		}),
		OnBackoff: func(b httplimit.Backoff) { backoff = b },
	})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://Example.com./", nil)
	resp, err := rt.RoundTrip(req) //nolint:bodyclose // it has no connection
	if err != nil || resp.StatusCode != http.StatusTooManyRequests || body.closed.Load() {
		t.Errorf("got %v (%v), closed: %v", resp, err, body.closed.Load())
	}
	if backoff.Key != "example.com" || backoff.For != 7*time.Second || backoff.Status != 429 ||
		!errors.Is(backoff.Err, store.ErrUnavailable) {
		t.Errorf("OnBackoff: got %+v", backoff)
	}
}
