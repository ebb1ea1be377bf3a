package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// mustHandler returns middleware. Without an OnError, an error fails the test.
func mustHandler(
	t testing.TB, l httplimit.HandlerLimiter, cfg httplimit.HandlerConfig,
) func(http.Handler) http.Handler {
	t.Helper()
	if cfg.OnError == nil {
		cfg.OnError = func(_ *http.Request, err error) { t.Errorf("OnError: %v", err) }
	}
	wrap, err := httplimit.NewHandler(l, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return wrap
}

// respondWith returns a handler that answers with a status.
func respondWith(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// send sends a handler a POST request from 192.0.2.1, with lines "Name: value" as its header and without a body.
func send(h http.Handler, lines string) *httptest.ResponseRecorder {
	return sendBody(h, lines, "")
}

func sendBody(h http.Handler, lines, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	for name, values := range headerOf(lines) {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// usedUnits returns how many units of a limit a key has used.
func usedUnits(t testing.TB, l headgate.Operator, limit headgate.Limit, key string) string {
	t.Helper()
	s, err := l.Inspect(context.Background(), limit, key)
	if err != nil {
		t.Fatal(err)
	}
	return s.Used.String()
}

func memoryLimiter() *headgate.Limiter { return headgate.New(memory.New(nil), nil) }

func TestHandler(t *testing.T) {
	t.Parallel()
	h := httplimit.Handler(memoryLimiter(), headgate.MustParse("fixed-window 2/1h from-first"), httplimit.ByIP)(respondWith(204))
	for i, want := range []int{204, 204, 429} {
		w := send(h, "X-Forwarded-For: 203.0.113.9\nIdempotency-Key: 1")
		if w.Code != want || w.Header().Get("RateLimit-Policy") == "" || w.Header().Get("RateLimit") == "" {
			t.Errorf("request %d: got %d, %v; want %d", i, w.Code, w.Header(), want)
		}
		if refused := w.Code == 429; (w.Header().Get("Retry-After") != "") != refused ||
			strings.Contains(w.Body.String(), httplimit.QuotaExceeded) != refused {
			t.Errorf("request %d: got %v %s, want a problem only if refused", i, w.Header(), w.Body)
		}
	}
}

func TestNewHandlerErrors(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("sliding-log 5/1m")
	valid := httplimit.Charge{Limit: limit, Key: httplimit.ByIP}
	withCharge := func(change func(*httplimit.Charge)) []httplimit.Charge {
		c := valid
		change(&c)
		return []httplimit.Charge{valid, c}
	}
	charges := []httplimit.Charge{valid}
	settle := httplimit.SettleByHeader("Cost")
	for field, cfg := range map[string]httplimit.HandlerConfig{
		"Charges:":        {},
		"Limit: is":       {Charges: withCharge(func(c *httplimit.Charge) { c.Limit = headgate.Limit{} })},
		"Limit: concu":    {Charges: withCharge(func(c *httplimit.Charge) { c.Limit = headgate.MustParse("concurrency 5 ttl 1m") })},
		"Key:":            {Charges: withCharge(func(c *httplimit.Charge) { c.Key = nil })},
		"Keep:":           {Charges: withCharge(func(c *httplimit.Charge) { c.Keep = headgate.Percent(100) })},
		"Mode:":           {Charges: charges, Mode: 3},
		"RefundFailures:": {Charges: charges, OnlyFailures: true, RefundFailures: true},
		"Settle:":         {Charges: withCharge(func(c *httplimit.Charge) { c.Settle = settle }), OnlyFailures: true},
		"ID:":             {Charges: charges, OnlyFailures: true, ID: func(*http.Request) (string, error) { return "", nil }},
		"Life:":           {Charges: charges, Life: -1},
		"Status:":         {Charges: charges, Status: 200},
		"Legacy:":         {Charges: charges, Legacy: 9},
		"OnlyFailures:": {OnlyFailures: true, Charges: withCharge(func(c *httplimit.Charge) {
			c.Limit = headgate.MustParse("fixed-window 5/1m from-first")
		})},
		"LimitFor:": {Charges: withCharge(func(c *httplimit.Charge) {
			c.LimitFor = func(*http.Request) (headgate.Limit, error) { return limit, nil }
		})},
	} {
		_, err := httplimit.NewHandler(l, cfg)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("got %v, want an error of %s", err, field)
		}
	}
	_, err := httplimit.NewHandler(nil, httplimit.HandlerConfig{Charges: charges})
	if !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("without a limiter: got %v, want %v", err, headgate.ErrInvalid)
	}
	defer func() {
		if recover() == nil {
			t.Error("Handler with the zero Limit did not panic")
		}
	}()
	httplimit.Handler(l, headgate.Limit{}, httplimit.ByIP)
}

// TestSeveralCharges checks that charges are admitted all or none, and which charges are left out.
func TestSeveralCharges(t *testing.T) {
	t.Parallel()
	l := memoryLimiter()
	limits := map[string]headgate.Limit{
		"free": namedLimit("free", "fixed-window 2/1h from-first"),
		"gold": namedLimit("gold", "fixed-window 4/1h from-first"),
	}
	all := namedLimit("all", "fixed-window 10/1h from-first")
	h := mustHandler(t, l, httplimit.HandlerConfig{Charges: []httplimit.Charge{
		{
			LimitFor: func(r *http.Request) (headgate.Limit, error) { return limits[r.Header.Get("Tier")], nil },
			Key:      httplimit.ByHeader("Api-Key"),
		},
		{Limit: all, Key: httplimit.ByConst("all"), Keep: headgate.Percent(30)},
		{Limit: all, Key: httplimit.ByConst("none"), Cost: func(*http.Request) (headgate.Cost, error) {
			return headgate.Units(0), nil
		}},
	}})(respondWith(204))
	for i, tt := range []struct {
		lines     string
		want      int
		policies  int
		remaining string // in RateLimit
	}{
		{"Tier: free\nApi-Key: a", 204, 2, `"free";r=1`},
		{"Tier: free\nApi-Key: a", 204, 2, `"free";r=0`},
		{"Tier: free\nApi-Key: a", 429, 2, `"all";r=8`}, // nothing was charged
		{"Tier: free\nApi-Key: b", 204, 2, `"all";r=7`},
		{"Tier: gold\nApi-Key: c", 204, 2, `"all";r=6`},
		{"Tier: gold\nApi-Key: c", 204, 2, `"all";r=5`},
		{"Api-Key: c", 204, 1, `"all";r=4`}, // no tier, one charge
		{"Tier: gold\nApi-Key: c", 204, 2, `"all";r=3`},
		{"Tier: gold\nApi-Key: c", 429, 2, `"gold";r=1`}, // 3 of 10 are kept free
	} {
		w := send(h, tt.lines)
		if w.Code != tt.want || strings.Count(w.Header().Get("RateLimit-Policy"), ";q=") != tt.policies ||
			!strings.Contains(w.Header().Get("RateLimit"), tt.remaining) {
			t.Errorf("request %d: got %d, %v; want %+v", i, w.Code, w.Header(), tt)
		}
	}
	if n := usedUnits(t, l, all, "none"); n != "0" {
		t.Errorf("a cost of 0: got %v charged, want 0", n)
	}
}

func TestFailOpenWhenTheStoreIsAway(t *testing.T) {
	t.Parallel()
	l := headgate.New(storetest.Failing{Store: memory.New(nil), Err: store.ErrUnavailable}, nil)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		cfg    httplimit.HandlerConfig
		ctx    context.Context
		want   int
		errors int
	}{
		"closed":            {httplimit.HandlerConfig{}, t.Context(), 503, 1},
		"open":              {httplimit.HandlerConfig{FailOpen: true}, t.Context(), 204, 1},
		"open, client gone": {httplimit.HandlerConfig{FailOpen: true}, cancelled, 503, 0},
		"shadow":            {httplimit.HandlerConfig{Mode: httplimit.Shadow}, t.Context(), 204, 1},
		"advise":            {httplimit.HandlerConfig{Mode: httplimit.Advise}, t.Context(), 204, 1},
		"failures":          {httplimit.HandlerConfig{OnlyFailures: true}, t.Context(), 503, 1},
		"failures, open":    {httplimit.HandlerConfig{OnlyFailures: true, FailOpen: true}, t.Context(), 204, 1},
		"refund":            {httplimit.HandlerConfig{RefundFailures: true}, t.Context(), 503, 1},
		"id, open": {httplimit.HandlerConfig{FailOpen: true, ID: func(*http.Request) (string, error) {
			return "1", nil
		}}, t.Context(), 204, 1},
	} {
		errCount := 0
		tt.cfg.OnError = func(_ *http.Request, err error) {
			if errCount++; !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		tt.cfg.Charges = []httplimit.Charge{{Limit: headgate.MustParse("sliding-log 5/1m"), Key: httplimit.ByIP}}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(tt.ctx, http.MethodGet, "/", nil)
		mustHandler(t, l, tt.cfg)(respondWith(204)).ServeHTTP(w, r)
		h := w.Header()
		if w.Code != tt.want || errCount != tt.errors || h["Ratelimit"] != nil || h["Ratelimit-Policy"] != nil {
			t.Errorf("%s: got %d, %v, %d errors; want %d, %d errors", name, w.Code, h, errCount, tt.want, tt.errors)
		}
		if w.Code == 503 && (h.Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "reduced-capacity")) {
			t.Errorf("%s: got %v, %s; want a Retry-After and a problem", name, h, w.Body)
		}
	}
}

// TestErrorsOfTheProgramAreAnsweredWith500 checks that FailOpen does not serve a request after an error of the program.
func TestErrorsOfTheProgramAreAnsweredWith500(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("fixed-window 5/1m from-first")
	errBroken := errors.New("broken")
	for name, c := range map[string]httplimit.Charge{
		"unknown limit": {Limit: headgate.MustNamed("unknown"), Key: httplimit.ByIP},
		"key":           {Limit: limit, Key: func(*http.Request) (string, error) { return "", errBroken }},
		"path":          {Limit: limit, Key: httplimit.ByPathValue("id")},
		"limit": {Key: httplimit.ByIP, LimitFor: func(*http.Request) (headgate.Limit, error) {
			return headgate.Limit{}, errBroken
		}},
	} {
		errCount := 0
		h := mustHandler(t, l, httplimit.HandlerConfig{
			FailOpen: true, Charges: []httplimit.Charge{c}, OnError: func(*http.Request, error) { errCount++ },
		})
		if w := send(h(respondWith(204)), ""); w.Code != 500 || errCount != 1 || strings.Contains(w.Body.String(), "broken") {
			t.Errorf("%s: got %d %s, %d errors; want 500, 1 error", name, w.Code, w.Body, errCount)
		}
	}
}

func TestIDAndServeReplays(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		limit := headgate.MustParse("fixed-window 10/1d from-first")
		cfg := httplimit.HandlerConfig{
			Charges: []httplimit.Charge{{
				Limit: limit, Key: httplimit.ByHeader("Customer"), Cost: httplimit.CostByHeader("Cost"),
			}},
			ID:             func(r *http.Request) (string, error) { return r.Header.Get("Order"), nil },
			Life:           time.Hour,
			RefundFailures: true,
		}
		serveCount := 0
		counter := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serveCount++
			if r.Header.Get("Fail") != "" {
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		h := mustHandler(t, l, cfg)(counter)
		longID := strings.Repeat("x", 1000)
		for i, tt := range []struct {
			lines      string
			want       int
			chargedA   string // to customer a
			serveCount int
		}{
			{"Customer: a\nOrder: 1", 200, "1", 1},
			{"Customer: a\nOrder: 1", 409, "1", 1},
			{"Customer: a\nOrder: 1\nCost: 2", 409, "1", 1},
			{"Customer: b\nOrder: 1", 200, "1", 2}, // another customer has ids of his own
			{"Customer: a\nOrder: 2", 200, "2", 3},
			{"Customer: a", 200, "3", 4}, // no id
			{"Customer: a", 200, "4", 5},
			{"Customer: a\nOrder: 3\nFail: 1", 502, "4", 6},
			{"Customer: a\nOrder: 3", 200, "5", 7}, // it was given back, and may be tried again
			{"Customer: a\nOrder: " + longID, 200, "6", 8},
			{"Customer: a\nOrder: " + longID, 409, "6", 8},
			{"Customer: a\nOrder: " + longID + "x", 200, "7", 9},
		} {
			w := send(h, tt.lines)
			if n := usedUnits(t, l, limit, "a"); w.Code != tt.want || n != tt.chargedA || serveCount != tt.serveCount {
				t.Errorf("request %d: got %d, %s charged, %d served; want %v", i, w.Code, n, serveCount, tt)
			}
		}
		cfg.ServeReplays = true
		h = mustHandler(t, l, cfg)(counter)
		if w := send(h, "Customer: a\nOrder: 1\nFail: 1"); w.Code != 502 || usedUnits(t, l, limit, "a") != "7" {
			t.Errorf("a failed replay: got %d, %v charged; want 502, 7", w.Code, usedUnits(t, l, limit, "a"))
		}
		headgatetest.Advance(time.Hour + time.Second)
		if w := send(h, "Customer: a\nOrder: 1"); w.Code != 200 || usedUnits(t, l, limit, "a") != "8" {
			t.Errorf("after Life: got %d, %v charged; want 200, 8", w.Code, usedUnits(t, l, limit, "a"))
		}
	})
}

// namedLimit returns a limit with a name.
func namedLimit(name, notation string) headgate.Limit {
	limit, err := headgate.MustParse(notation).WithName(name)
	if err != nil {
		panic(err)
	}
	return limit
}

func memoryStore() store.Store { return memory.New(nil) }

// switchableStore is a store whose Apply fails while away is set.
type switchableStore struct {
	store.Store
	away atomic.Bool
}

func (s *switchableStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if s.away.Load() {
		return store.ErrUnavailable
	}
	return s.Store.Apply(ctx, ops, outs)
}

// TestDecisionFrom checks that DecisionFrom returns the decision, and none for a skipped request.
func TestDecisionFrom(t *testing.T) {
	t.Parallel()
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		var d headgate.Decision
		var ok bool
		limit := headgate.MustParseNamed("l", "token-bucket 2/1h")
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			d, ok = httplimit.DecisionFrom(r.Context())
		})
		for _, tt := range []struct {
			name    string
			mode    httplimit.Mode
			skip    bool
			decided bool
			allowed bool
			remain  int64
		}{
			{"admitted", httplimit.Enforce, false, true, true, 1},
			{"the last unit", httplimit.Enforce, false, true, true, 0},
			{"skipped", httplimit.Enforce, true, false, false, 0},
			{"refused in shadow mode", httplimit.Shadow, false, true, false, 0},
		} {
			d, ok = headgate.Decision{}, false
			send(mustHandler(t, l, httplimit.HandlerConfig{
				Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
				Mode:    tt.mode, Skip: func(*http.Request) bool { return tt.skip },
			})(next), "")
			if ok != tt.decided || d.Allowed != tt.allowed || d.Remaining != tt.remain {
				t.Errorf("%s: got %v, %+v; want %+v", tt.name, ok, d, tt)
			}
		}
	})
}
