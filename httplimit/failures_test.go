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

// TestOnlyFailures: many successes at the same time count while they are in flight, and leave nothing
// behind.
func TestOnlyFailures(t *testing.T) {
	for _, notation := range []string{
		"sliding-log 5/15m block 1h", "sliding-window 5/15m block 1h", "sliding-log 5/15m", "sliding-log 5/15m history 1d block 1h",
	} {
		for _, inFlight := range []int{4, 64} {
			headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
				succeed(t, l, headgate.MustParse(notation), inFlight)
			})
		}
	}
}

// TestTheFailureThatFillsTheLimitBlocks, and neither a refusal nor those in flight do.
func TestTheFailureThatFillsTheLimitBlocks(t *testing.T) {
	for _, notation := range []string{"sliding-log 3/15m block 1h", "sliding-window 3/15m block 1h"} {
		headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
			limit := headgate.MustParse(notation)
			blocked := func() time.Duration {
				s, err := l.Inspect(t.Context(), limit, "192.0.2.1")
				if err != nil {
					t.Fatal(err)
				}
				return max(0, time.Until(s.BlockedUntil))
			}
			g := newGate()
			h := must(t, l, httplimit.HandlerConfig{
				OnlyFailures: true, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
			})(g)
			codes := make(chan int, 3)
			try := func(n int) {
				for range n {
					go func() { codes <- get(h, "").Code }()
					<-g.in
				}
			}
			end := func(statuses ...int) {
				for _, status := range statuses {
					g.out <- status
					if code := <-codes; code != status {
						t.Errorf("%s: %d, want %d", notation, code, status)
					}
				}
			}
			try(3)
			if w := get(h, ""); w.Code != 429 || blocked() != 0 {
				t.Errorf("%s: with three in flight: %d, blocked for %v", notation, w.Code, blocked())
			}
			end(401)
			if blocked() != 0 {
				t.Errorf("%s: a failure blocks beside two that are in flight", notation)
			}
			end(200, 200)
			try(1)
			end(401)
			if blocked() != 0 {
				t.Errorf("%s: the second failure blocks", notation)
			}
			try(1)
			end(401)
			if d := blocked(); d != time.Hour {
				t.Errorf("%s: the third failure blocks for %v", notation, d)
			}
			w := get(h, "")
			if w.Code != 429 || w.Header().Get("Retry-After") != "3600" {
				t.Errorf("%s: when blocked: %d %v", notation, w.Code, w.Header())
			}
			headgatetest.Advance(time.Hour)
			try(1)
			end(200)
			if n := used(t, l, limit, "192.0.2.1"); n != "0" || blocked() != 0 {
				t.Errorf("%s: an hour later: %s used", notation, n)
			}
		})
	}
}

// TestOnlyFailuresOfALimitByName: the limiter knows what the middleware does not.
func TestOnlyFailuresOfALimitByName(t *testing.T) {
	t.Parallel()
	limit := named("login", "sliding-log 2/15m block 1h")
	l := headgate.New(memoryStore(), &headgate.Config{Names: names{"login": limit}})
	h := must(t, l, httplimit.HandlerConfig{
		OnlyFailures: true, Charges: []httplimit.Charge{{Limit: headgate.MustNamed("login"), Key: httplimit.ByIP}},
	})
	for i, want := range []int{200, 401, 200, 401} {
		if w := get(h(answers(want)), ""); w.Code != want {
			t.Errorf("%d: %d, want %d", i, w.Code, want)
		}
	}
	w := get(h(answers(200)), "")
	if s, err := l.Inspect(t.Context(), limit, "192.0.2.1"); err != nil || w.Code != 429 || s.BlockedUntil.IsZero() {
		t.Errorf("%d, %+v, %v", w.Code, s, err)
	}
}

// TestOnlyFailuresOfAnUnfitLimitByName: what cannot give back a success is an error with the first request, also
// if it is so for one key only, and charges nothing.
func TestOnlyFailuresOfAnUnfitLimitByName(t *testing.T) {
	t.Parallel()
	for _, notation := range []string{"token-bucket 5/15m", "fixed-window 5/15m block 1h", "interval 5/15m", "gcra 5/15m"} {
		var told error
		limit := named("login", notation)
		l := headgate.New(memoryStore(), &headgate.Config{Names: names{"login": limit}})
		for name, cfg := range map[string]httplimit.Charge{
			"Limit": {Limit: headgate.MustNamed("login"), Key: httplimit.ByIP},
			"LimitFor": {
				LimitFor: func(*http.Request) (headgate.Limit, error) { return headgate.MustNamed("login"), nil },
				Key:      httplimit.ByIP,
			},
		} {
			h := must(t, l, httplimit.HandlerConfig{
				OnlyFailures: true, FailOpen: true, Charges: []httplimit.Charge{cfg},
				OnError: func(_ *http.Request, err error) { told = err },
			})(answers(200))
			for range 7 { // beyond the limit too
				w := get(h, "")
				wrong, ok := errors.AsType[*headgate.InvalidError](told)
				if w.Code != 500 || !ok || wrong.Field != "OnlyFailures" || !strings.Contains(told.Error(), "login") {
					t.Errorf("%s, %s: %d, %v", name, notation, w.Code, told)
				}
			}
			if n := used(t, l, limit, "192.0.2.1"); n != "0" {
				t.Errorf("%s, %s: %s charged", name, notation, n)
			}
		}
	}
}

// TestAnAttemptWithoutAnswerIsAFailure: leaving early is no way to guess for free, and what a framework
// answers later is not known.
func TestAnAttemptWithoutAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(leave func()){
		"gone":  func(leave func()) { leave() },
		"none":  func(func()) {},
		"abort": func(func()) { panic(http.ErrAbortHandler) },
	} {
		l, limit := memoryLimiter(), headgate.MustParse("sliding-log 5/1d")
		ctx, leave := context.WithCancel(t.Context())
		h := must(t, l, httplimit.HandlerConfig{
			OnlyFailures: true, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
		})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handler(leave) }))
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		}()
		if n := used(t, l, limit, "192.0.2.1"); n != "1" {
			t.Errorf("%s: %s charged", name, n)
		}
		leave()
	}
}
