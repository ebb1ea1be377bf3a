package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
	"github.com/headgate/headgate/httplimit"
)

// TestOnlyFailures checks that successes count only while they are in flight, with four and 64 at once.
func TestOnlyFailures(t *testing.T) {
	for _, notation := range []string{
		"sliding-log 5/15m block 1h", "sliding-window 5/15m block 1h", "sliding-log 5/15m", "sliding-log 5/15m history 1d block 1h",
	} {
		for _, inFlight := range []int{4, 64} {
			headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
				checkSuccesses(t, l, headgate.MustParse(notation), inFlight)
			})
		}
	}
}

// TestOnlyFailuresBlocksWhenTheLimitIsFull checks that only the third failure blocks: no refusal, no request in flight.
func TestOnlyFailuresBlocksWhenTheLimitIsFull(t *testing.T) {
	for _, notation := range []string{"sliding-log 3/15m block 1h", "sliding-window 3/15m block 1h"} {
		headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
			limit := headgate.MustParse(notation)
			blockLeft := func() time.Duration {
				s, err := l.Inspect(t.Context(), limit, "192.0.2.1")
				if err != nil {
					t.Fatal(err)
				}
				return max(0, time.Until(s.BlockedUntil))
			}
			gate := newGatedHandler()
			h := mustHandler(t, l, httplimit.HandlerConfig{
				OnlyFailures: true, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
			})(gate)
			codes := make(chan int, 3)
			start := func(n int) {
				for range n {
					go func() { codes <- send(h, "").Code }()
					<-gate.arrivals
				}
			}
			finish := func(statuses ...int) {
				for _, status := range statuses {
					gate.statuses <- status
					if code := <-codes; code != status {
						t.Errorf("%s: got %d, want %d", notation, code, status)
					}
				}
			}
			start(3)
			if w := send(h, ""); w.Code != 429 || blockLeft() != 0 {
				t.Errorf("%s: with three in flight: got %d, a block for %v; want 429, none", notation, w.Code, blockLeft())
			}
			finish(401)
			if blockLeft() != 0 {
				t.Errorf("%s: one failure and two requests in flight have blocked the key", notation)
			}
			finish(200, 200)
			start(1)
			finish(401)
			if blockLeft() != 0 {
				t.Errorf("%s: the second failure has blocked the key", notation)
			}
			start(1)
			finish(401)
			if d := blockLeft(); d != time.Hour {
				t.Errorf("%s: the third failure: got a block for %v, want an hour", notation, d)
			}
			w := send(h, "")
			if w.Code != 429 || w.Header().Get("Retry-After") != "3600" {
				t.Errorf("%s: when blocked: got %d %v, want 429 and an hour", notation, w.Code, w.Header())
			}
			headgatetest.Advance(time.Hour)
			start(1)
			finish(200)
			if n := usedUnits(t, l, limit, "192.0.2.1"); n != "0" || blockLeft() != 0 {
				t.Errorf("%s: an hour later: got %s used, want 0 and no block", notation, n)
			}
		})
	}
}

// TestOnlyFailuresOfALimitByName checks that failures block a limit that the middleware knows by name only.
func TestOnlyFailuresOfALimitByName(t *testing.T) {
	t.Parallel()
	limit := namedLimit("login", "sliding-log 2/15m block 1h")
	l := headgate.New(memoryStore(), &headgate.Config{Names: limitMap{"login": limit}})
	h := mustHandler(t, l, httplimit.HandlerConfig{
		OnlyFailures: true, Charges: []httplimit.Charge{{Limit: headgate.MustNamed("login"), Key: httplimit.ByIP}},
	})
	for i, want := range []int{200, 401, 200, 401} {
		if w := send(h(respondWith(want)), ""); w.Code != want {
			t.Errorf("request %d: got %d, want %d", i, w.Code, want)
		}
	}
	w := send(h(respondWith(200)), "")
	if s, err := l.Inspect(t.Context(), limit, "192.0.2.1"); err != nil || w.Code != 429 || s.BlockedUntil.IsZero() {
		t.Errorf("after two failures: got %d, %+v, %v; want 429 and a block", w.Code, s, err)
	}
}

// TestOnlyFailuresOfAnUnfitLimitByName checks that a limit that cannot give back all of a success is answered with 500,
// and is charged nothing.
func TestOnlyFailuresOfAnUnfitLimitByName(t *testing.T) {
	t.Parallel()
	for _, notation := range []string{"token-bucket 5/15m", "fixed-window 5/15m block 1h", "interval 5/15m", "gcra 5/15m"} {
		limit := namedLimit("login", notation)
		l := headgate.New(memoryStore(), &headgate.Config{Names: limitMap{"login": limit}})
		for name, cfg := range map[string]httplimit.Charge{
			"Limit": {Limit: headgate.MustNamed("login"), Key: httplimit.ByIP},
			"LimitFor": {
				LimitFor: func(*http.Request) (headgate.Limit, error) { return headgate.MustNamed("login"), nil },
				Key:      httplimit.ByIP,
			},
		} {
			var lastErr error
			h := mustHandler(t, l, httplimit.HandlerConfig{
				OnlyFailures: true, FailOpen: true, Charges: []httplimit.Charge{cfg},
				OnError: func(_ *http.Request, err error) { lastErr = err },
			})(respondWith(200))
			for range 7 { // more than the limit
				lastErr = nil
				w := send(h, "")
				invalid, ok := errors.AsType[*headgate.InvalidError](lastErr)
				if w.Code != 500 || !ok || invalid.Field != "OnlyFailures" ||
					!strings.Contains(invalid.Error(), "login") {
					t.Errorf("%s, %s: got %d, %v; want 500 and an error of OnlyFailures", name, notation, w.Code, lastErr)
				}
			}
			if n := usedUnits(t, l, limit, "192.0.2.1"); n != "0" {
				t.Errorf("%s, %s: got %s charged, want 0", name, notation, n)
			}
		}
	}
}

// TestOnlyFailuresCountsRequestsWithoutAnswer checks requests whose handler writes no status: the client leaves, the
// handler returns, or it panics.
func TestOnlyFailuresCountsRequestsWithoutAnswer(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(cancel func()){
		"gone":  func(cancel func()) { cancel() },
		"none":  func(func()) {},
		"abort": func(func()) { panic(http.ErrAbortHandler) },
	} {
		l, limit := memoryLimiter(), headgate.MustParse("sliding-log 5/1d")
		ctx, cancel := context.WithCancel(t.Context())
		h := mustHandler(t, l, httplimit.HandlerConfig{
			OnlyFailures: true, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
		})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handler(cancel) }))
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		}()
		if n := usedUnits(t, l, limit, "192.0.2.1"); n != "1" {
			t.Errorf("%s: got %s charged, want 1", name, n)
		}
		cancel()
	}
}
