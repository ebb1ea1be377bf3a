package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store"
)

// gatedHandler is a handler whose requests wait for a status to answer with.
type gatedHandler struct {
	arrivals chan struct{} // a value for each request
	statuses chan int
}

func newGatedHandler() gatedHandler { return gatedHandler{make(chan struct{}, 100), make(chan int)} }

func (h gatedHandler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.arrivals <- struct{}{}
	w.WriteHeader(<-h.statuses)
}

// checkSuccesses sends inFlight requests of one address at once to a limit of 5 failures. At most five are served, and
// count while they are in flight; the others are refused. When the served ones have succeeded, none counts.
func checkSuccesses(t *testing.T, l *headgate.Limiter, limit headgate.Limit, inFlight int) {
	t.Helper()
	gate := newGatedHandler()
	h := mustHandler(t, l, httplimit.HandlerConfig{
		OnlyFailures: true, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
	})(gate)
	codes, served := make(chan int, inFlight), min(5, inFlight)
	for range inFlight {
		go func() { codes <- send(h, "").Code }()
	}
	for range served {
		<-gate.arrivals
	}
	refusals := 0
	for range inFlight - served {
		if code := <-codes; code == 429 {
			refusals++
		}
	}
	if n := usedUnits(t, l, limit, "192.0.2.1"); n != strconv.Itoa(served) {
		t.Errorf("%v: got %s of %d requests in flight counted, want %d", limit, n, inFlight, served)
	}
	for range served {
		gate.statuses <- 200
	}
	for range served {
		if code := <-codes; code != 200 {
			t.Errorf("%v: got %d, want 200", limit, code)
		}
	}
	if refusals != inFlight-served {
		t.Errorf("%v: got %d of %d refused, want %d", limit, refusals, inFlight, inFlight-served)
	}
	s, err := l.Inspect(t.Context(), limit, "192.0.2.1")
	if err != nil || s.Used.String() != "0" || !s.BlockedUntil.IsZero() {
		t.Errorf("%v, %d in flight: got %v used, blocked until %v, %v; want 0, no block", limit, inFlight, s.Used, s.BlockedUntil, err)
	}
}

func TestRefundFailures(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		failed  func(*httplimit.Response) bool
		want    string // charged
	}{
		"200":   {func(http.ResponseWriter, *http.Request) {}, nil, "1"},
		"404":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, nil, "1"},
		"500":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, nil, "0"},
		"panic": {func(http.ResponseWriter, *http.Request) { panic("wrong") }, nil, "0"},
		"abort": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, "0"},
		"too late": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half of")
			panic(http.ErrAbortHandler)
		}, nil, "1"},
		"gone": {func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			w.WriteHeader(http.StatusBadGateway) // as a proxy does if its client leaves
		}, nil, "1"},
		"early hints": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusInternalServerError)
		}, nil, "0"},
		"by a function": {
			func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Failed", "1") },
			func(r *httplimit.Response) bool { return r.Header.Get("Failed") != "" }, "0",
		},
	} {
		l, limit := memoryLimiter(), headgate.MustParse("fixed-window 5/1d from-first")
		h := mustHandler(t, l, httplimit.HandlerConfig{
			RefundFailures: true, Failed: tt.failed, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
		})(tt.handler)
		ctx := t.Context()
		if name == "gone" {
			ctx = cancelled
		}
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			if name == "panic" || name == "abort" || name == "too late" {
				t.Errorf("%s: the middleware swallowed the panic", name)
			}
		}()
		if n := usedUnits(t, l, limit, "192.0.2.1"); n != tt.want {
			t.Errorf("%s: got %s charged, want %s", name, n, tt.want)
		}
	}
}

// TestCorrectionsAfterAResetOfOneKey checks that the charge of the other key is corrected, and OnError is called.
func TestCorrectionsAfterAResetOfOneKey(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]httplimit.HandlerConfig{
		"OnlyFailures":   {OnlyFailures: true},
		"RefundFailures": {RefundFailures: true, Failed: func(*httplimit.Response) bool { return true }},
		"Settle":         {},
	} {
		l := memoryLimiter()
		resetLimit, otherLimit := namedLimit("one", "sliding-window 5/1d"), namedLimit("all", "sliding-window 9/1d")
		var lastErr error
		cfg.OnError = func(_ *http.Request, err error) { lastErr = err }
		cfg.Charges = []httplimit.Charge{
			{Limit: resetLimit, Key: httplimit.ByIP}, {Limit: otherLimit, Key: httplimit.ByIP},
		}
		zeroCost := func(*httplimit.Response) (headgate.Cost, error) { return headgate.Units(0), nil }
		for i := range cfg.Charges {
			if name == "Settle" {
				cfg.Charges[i].Settle = zeroCost
			}
		}
		send(mustHandler(t, l, cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := l.Reset(r.Context(), resetLimit, "192.0.2.1"); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusOK)
		})), "")
		if n := usedUnits(t, l, otherLimit, "192.0.2.1"); n != "0" || !errors.Is(lastErr, headgate.ErrUnknownID) {
			t.Errorf("%s: got %s charged to the other key, error %v; want 0, %v", name, n, lastErr, headgate.ErrUnknownID)
		}
	}
}

func TestSettleCorrectsTheCharge(t *testing.T) {
	t.Parallel()
	errSettle := errors.New("wrong")
	requests, tokens := namedLimit("requests", "fixed-window 10/1d from-first"), namedLimit("tokens", "fixed-window 100/1d from-first")
	for name, tt := range map[string]struct {
		settle httplimit.SettleFunc
		header string // of the answer
		panics bool
		refund bool
		want   string // tokens charged
		errors int
	}{
		"less":           {httplimit.SettleByHeader("Tokens"), "7", false, false, "7", 0},
		"more":           {httplimit.SettleByHeader("Tokens"), "170", false, false, "170", 0}, // beyond the capacity
		"nothing":        {httplimit.SettleByHeader("Tokens"), "0", false, false, "0", 0},
		"not said":       {httplimit.SettleByHeader("Tokens"), "", false, false, "50", 0},
		"wrongly said":   {httplimit.SettleByHeader("Tokens"), "-3", false, false, "50", 1},
		"panic":          {httplimit.SettleByHeader("Tokens"), "7", true, false, "7", 0},
		"panic, refund":  {httplimit.SettleByHeader("Tokens"), "7", true, true, "0", 0},
		"refund, served": {httplimit.SettleByHeader("Tokens"), "7", false, true, "7", 0},
		"error": {func(*httplimit.Response) (headgate.Cost, error) {
			return headgate.Cost{}, errSettle
		}, "", false, false, "50", 1},
		"bytes": {func(r *httplimit.Response) (headgate.Cost, error) {
			if r.Status != 200 || r.Request.URL.Path != "/" || r.Gone {
				return headgate.Cost{}, fmt.Errorf("%+v", r)
			}
			return headgate.Units(r.Written), nil
		}, "", false, false, "5", 0},
	} {
		l, errCount := memoryLimiter(), 0
		h := mustHandler(t, l, httplimit.HandlerConfig{
			RefundFailures: tt.refund, OnError: func(*http.Request, error) { errCount++ },
			Charges: []httplimit.Charge{
				{Limit: requests, Key: httplimit.ByIP},
				{
					Limit: tokens, Key: httplimit.ByIP, Settle: tt.settle,
					Cost: func(*http.Request) (headgate.Cost, error) { return headgate.Units(50), nil },
				},
			},
		})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if tt.header != "" {
				w.Header().Set("Tokens", tt.header)
			}
			if tt.panics {
				panic("wrong")
			}
			_, _ = io.WriteString(w, "hello")
		}))
		func() {
			defer func() {
				if (recover() != nil) != tt.panics {
					t.Errorf("%s: want a panic: %v", name, tt.panics)
				}
			}()
			send(h, "")
		}()
		wantRequests := "1"
		if tt.panics && tt.refund {
			wantRequests = "0"
		}
		gotTokens, gotRequests := usedUnits(t, l, tokens, "192.0.2.1"), usedUnits(t, l, requests, "192.0.2.1")
		if gotTokens != tt.want || gotRequests != wantRequests || errCount != tt.errors {
			t.Errorf("%s: got %s tokens and %s requests charged, %d errors; want %s, %s, %d", name, gotTokens,
				gotRequests, errCount, tt.want, wantRequests, tt.errors)
		}
	}
}

// TestFailedCorrectionsAreReported checks that OnError gets the error if the store goes away during the request.
func TestFailedCorrectionsAreReported(t *testing.T) {
	t.Parallel()
	s := &switchableStore{Store: memoryStore()}
	var lastErr error
	h := mustHandler(t, headgate.New(s, nil), httplimit.HandlerConfig{
		RefundFailures: true, OnError: func(_ *http.Request, err error) { lastErr = err },
		Charges: []httplimit.Charge{{Limit: headgate.MustParse("fixed-window 5/1d from-first"), Key: httplimit.ByIP}},
	})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.away.Store(true)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	if w := send(h, ""); w.Code != 500 || !errors.Is(lastErr, store.ErrUnavailable) {
		t.Errorf("got %d, error %v; want 500, %v", w.Code, lastErr, store.ErrUnavailable)
	}
}

// limitMap finds limits by their names.
type limitMap map[string]headgate.Limit

func (m limitMap) Find(_ context.Context, name, _ string) (headgate.Limit, error) {
	if limit, ok := m[name]; ok {
		return limit, nil
	}
	return headgate.Limit{}, headgate.ErrUnknownLimit
}

func (m limitMap) FindAll(ctx context.Context, charges []headgate.Charge) (err error) {
	for i := range charges {
		if c := &charges[i]; c.Limit.OnlyName() {
			if c.Limit, err = m.Find(ctx, c.Limit.Name(), c.Key); err != nil {
				return err
			}
		}
	}
	return nil
}
