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

// blocked returns for how long the store holds back.
func (f *far) blocked(t *testing.T, limit headgate.Limit) (time.Duration, string) {
	t.Helper()
	s, err := f.limiter.Inspect(t.Context(), limit, "far")
	if err != nil {
		t.Fatal(err)
	}
	if s.BlockedUntil.IsZero() {
		return 0, ""
	}
	return s.BlockedUntil.Sub(s.At), s.Reason
}

func TestAnswersBlockTheKeyInTheStore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer answer
		want   time.Duration
		reason string
	}{
		{"429", answer{429, "Retry-After: 60"}, time.Minute, "the server answered 429: Retry-After"},
		{"a quota used up", answer{200, `RateLimit: "a";r=0;t=60`}, time.Minute, "the server answered 200: RateLimit"},
		{
			"more than may be asked",
			answer{503, "Retry-After: 999999999"},
			time.Hour,
			"the server answered 503: Retry-After",
		},
		{"nonsense", answer{429, "Retry-After: -1\nRateLimit: ;;;"}, 0, ""},
	} {
		f := newFar(t, plenty, httplimit.Config{}, tt.answer)
		status, body, err := f.do(t.Context(), "GET", "")
		if status != tt.answer.status || body != http.StatusText(status) || err != nil {
			t.Errorf("%s: got %d %q (%v)", tt.name, status, body, err)
		}
		got, reason := f.blocked(t, plenty)
		if got > tt.want || got < tt.want-5*time.Second || reason != tt.reason {
			t.Errorf("%s: blocked for %v because %q, want %v because %q", tt.name, got, reason, tt.want, tt.reason)
		}
		if (len(f.holds) == 1) != (tt.want > 0) || tt.want > 0 && (f.holds[0].For != tt.want || f.holds[0].Err != nil ||
			f.holds[0].Key != "far") {
			t.Errorf("%s: OnBackoff was told of %+v", tt.name, f.holds)
		}
		_, _, err = f.do(t.Context(), "GET", "")
		if errors.Is(err, headgate.ErrDenied) != (tt.want > 0) {
			t.Errorf("%s: the next request: %v", tt.name, err)
		}
	}
}

// slow is a store that has changed by the time one reads its answer to a look.
type slow struct{ *memory.Store }

func (s slow) Cells(ctx context.Context, q store.Query) ([]store.Cell, int64, error) {
	defer time.Sleep(time.Second)
	return s.Store.Cells(ctx, q)
}

// TestALongerBlockStays has many requests answered at once, of which one is asked
// to stay away for longer.
func TestALongerBlockStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := headgate.New(slow{memory.New(nil)}, nil)
		var n atomic.Int32
		rt, err := httplimit.New(l, plenty, &httplimit.Config{
			Next: sender(func(*http.Request) (*http.Response, error) {
				retry := "Retry-After: 600"
				if n.Add(1) == 7 {
					retry = "Retry-After: 3000"
				}
				time.Sleep(time.Second) // until all are on their way
				return &http.Response{StatusCode: http.StatusTooManyRequests, Header: fields(retry), Body: http.NoBody},
					nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com", nil)
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			})
		}
		all.Wait()
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("it took %v, want 1s for the answers and 2s for telling", took)
		}
		s, err := l.Inspect(t.Context(), plenty, "example.com")
		if got := s.BlockedUntil.Sub(begin); err != nil || got != 3001*time.Second {
			t.Errorf("blocked until %v after the start (%v), want 3001s", got, err)
		}
	})
}

// TestALongerBlockOfAnotherStays has another replica set it while the answer is on
// its way.
func TestALongerBlockOfAnotherStays(t *testing.T) {
	t.Parallel()
	l := headgate.New(memory.New(nil), nil)
	rt, err := httplimit.New(l, plenty, &httplimit.Config{
		Next: sender(func(req *http.Request) (*http.Response, error) {
			_, err := l.Block(req.Context(), plenty, "example.com", time.Hour, "another")
			return &http.Response{
				StatusCode: http.StatusTooManyRequests, Header: fields("Retry-After: 2"),
				Body: http.NoBody,
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
	s, err := l.Inspect(t.Context(), plenty, "example.com")
	if left := s.BlockedUntil.Sub(s.At); err != nil || left < 59*time.Minute || s.Reason != "another" {
		t.Errorf("blocked for %v because %q (%v), want an hour because of another", left, s.Reason, err)
	}
}

// deaf is a store that cannot be told.
type deaf struct{ store.Store }

func (d deaf) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if ops[0].Verb != law.Take {
		return store.ErrUnavailable
	}
	return d.Store.Apply(ctx, ops, outs)
}

func TestAnAnswerIsReturnedThoughTheStoreIsAway(t *testing.T) {
	t.Parallel()
	var hold httplimit.Backoff
	answered := &body{Reader: strings.NewReader("later")}
	rt, err := httplimit.New(headgate.New(deaf{memory.New(nil)}, nil), plenty, &httplimit.Config{
		Next: sender(func(*http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusTooManyRequests, Header: fields("Retry-After: 7"),
				Body: answered,
			}, nil
		}),
		OnBackoff: func(h httplimit.Backoff) { hold = h },
	})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://Example.com./", nil)
	resp, err := rt.RoundTrip(req) //nolint:bodyclose // it has no connection
	if err != nil || resp.StatusCode != http.StatusTooManyRequests || answered.closed.Load() {
		t.Errorf("got %v (%v), closed: %v", resp, err, answered.closed.Load())
	}
	if hold.Key != "example.com" || hold.For != 7*time.Second || hold.Status != 429 ||
		!errors.Is(hold.Err, store.ErrUnavailable) {
		t.Errorf("OnBackoff was told of %+v", hold)
	}
}
