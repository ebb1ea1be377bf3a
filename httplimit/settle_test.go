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

// gate is a handler whose requests wait until they are let out, with a status.
type gate struct {
	in  chan struct{}
	out chan int
}

func newGate() gate { return gate{make(chan struct{}, 100), make(chan int)} }

func (g gate) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	g.in <- struct{}{}
	w.WriteHeader(<-g.out)
}

// succeed lets requests of one address be in flight together, of which those that may succeed, and
// looks at what they count before and after.
func succeed(t *testing.T, l *headgate.Limiter, limit headgate.Limit, inFlight int) {
	t.Helper()
	g := newGate()
	h := must(t, l, httplimit.HandlerConfig{
		OnlyFailures: true, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
	})(g)
	codes := make(chan int, inFlight)
	for range inFlight {
		go func() { codes <- get(h, "").Code }()
	}
	for range min(5, inFlight) {
		<-g.in
	}
	refused := 0
	for range inFlight - min(5, inFlight) {
		if code := <-codes; code == 429 {
			refused++
		}
	}
	if n := used(t, l, limit, "192.0.2.1"); n != strconv.Itoa(min(5, inFlight)) {
		t.Errorf("%v: %s of %d count in flight", limit, n, inFlight)
	}
	for range min(5, inFlight) {
		g.out <- 200
	}
	for range min(5, inFlight) {
		if code := <-codes; code != 200 {
			t.Errorf("%v: %d", limit, code)
		}
	}
	if refused != max(0, inFlight-5) {
		t.Errorf("%v: %d of %d are refused", limit, refused, inFlight)
	}
	s, err := l.Inspect(t.Context(), limit, "192.0.2.1")
	if err != nil || s.Used.String() != "0" || !s.BlockedUntil.IsZero() {
		t.Errorf("%v, %d in flight: %v are left, blocked until %v; %v", limit, inFlight, s.Used, s.BlockedUntil, err)
	}
}

func TestRefunds(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		failed  func(*httplimit.Response) bool
		want    string
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
			leave()
			w.WriteHeader(http.StatusBadGateway) // as a proxy does whose client leaves
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
		h := must(t, l, httplimit.HandlerConfig{
			RefundFailures: true, Failed: tt.failed, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
		})(tt.handler)
		ctx := t.Context()
		if name == "gone" {
			ctx = gone
		}
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			if name == "panic" || name == "abort" || name == "too late" {
				t.Errorf("%s: the panic is lost", name)
			}
		}()
		if n := used(t, l, limit, "192.0.2.1"); n != tt.want {
			t.Errorf("%s: %s charged, want %s", name, n, tt.want)
		}
	}
}

// TestAResetOfOneOfTwoKeys: the other charge of the request is corrected nevertheless.
func TestAResetOfOneOfTwoKeys(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]httplimit.HandlerConfig{
		"OnlyFailures":   {OnlyFailures: true},
		"RefundFailures": {RefundFailures: true, Failed: func(*httplimit.Response) bool { return true }},
		"Settle":         {},
	} {
		l, one, all := memoryLimiter(), named("one", "sliding-window 5/1d"), named("all", "sliding-window 9/1d")
		var told error
		cfg.OnError = func(_ *http.Request, err error) { told = err }
		cfg.Charges = []httplimit.Charge{{Limit: one, Key: httplimit.ByIP}, {Limit: all, Key: httplimit.ByIP}}
		nothing := func(*httplimit.Response) (headgate.Cost, error) { return headgate.Units(0), nil }
		for i := range cfg.Charges {
			if name == "Settle" {
				cfg.Charges[i].Settle = nothing
			}
		}
		get(must(t, l, cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := l.Reset(r.Context(), one, "192.0.2.1"); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusOK)
		})), "")
		if n := used(t, l, all, "192.0.2.1"); n != "0" || !errors.Is(told, headgate.ErrUnknownID) {
			t.Errorf("%s: %s charged to the other key; told of %v", name, n, told)
		}
	}
}

func TestSettlement(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	requests, tokens := named("requests", "fixed-window 10/1d from-first"), named("tokens", "fixed-window 100/1d from-first")
	for name, tt := range map[string]struct {
		settle httplimit.SettleFunc
		header string // of the answer
		panics bool
		refund bool
		want   string
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
			return headgate.Cost{}, wrong
		}, "", false, false, "50", 1},
		"bytes": {func(r *httplimit.Response) (headgate.Cost, error) {
			if r.Status != 200 || r.Request.URL.Path != "/" || r.Gone {
				return headgate.Cost{}, fmt.Errorf("%+v", r)
			}
			return headgate.Units(r.Written), nil
		}, "", false, false, "5", 0},
	} {
		l, told := memoryLimiter(), 0
		h := must(t, l, httplimit.HandlerConfig{
			RefundFailures: tt.refund, OnError: func(*http.Request, error) { told++ },
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
					t.Errorf("%s: the panic is lost, or there is one", name)
				}
			}()
			get(h, "")
		}()
		calls := "1"
		if tt.panics && tt.refund {
			calls = "0"
		}
		if n, m := used(t, l, tokens, "192.0.2.1"), used(t, l, requests, "192.0.2.1"); n != tt.want || m != calls ||
			told != tt.errors {
			t.Errorf("%s: %s tokens and %s requests charged, %d errors", name, n, m, told)
		}
	}
}

// TestFailedCorrectionsAreReported: the store goes away while the handler works.
func TestFailedCorrectionsAreReported(t *testing.T) {
	t.Parallel()
	s := &leaving{Store: memoryStore()}
	var told error
	h := must(t, headgate.New(s, nil), httplimit.HandlerConfig{
		RefundFailures: true, OnError: func(_ *http.Request, err error) { told = err },
		Charges: []httplimit.Charge{{Limit: headgate.MustParse("fixed-window 5/1d from-first"), Key: httplimit.ByIP}},
	})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.gone.Store(true)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	if w := get(h, ""); w.Code != 500 || !errors.Is(told, store.ErrUnavailable) {
		t.Errorf("%d, %v", w.Code, told)
	}
}

// names finds limits in a map.
type names map[string]headgate.Limit

func (n names) Find(_ context.Context, name, _ string) (headgate.Limit, error) {
	if limit, ok := n[name]; ok {
		return limit, nil
	}
	return headgate.Limit{}, headgate.ErrUnknownLimit
}

func (n names) FindAll(ctx context.Context, charges []headgate.Charge) (err error) {
	for i := range charges {
		if c := &charges[i]; c.Limit.OnlyName() {
			if c.Limit, err = n.Find(ctx, c.Limit.Name(), c.Key); err != nil {
				return err
			}
		}
	}
	return nil
}
