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

// must returns a NewHandler, or fails.
func must(t testing.TB, l httplimit.HandlerLimiter, cfg httplimit.HandlerConfig) func(http.Handler) http.Handler {
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

// answers returns a handler that answers with a status.
func answers(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// get asks a handler from 192.0.2.1, with lines of fields.
func get(h http.Handler, lines string) *httptest.ResponseRecorder {
	return post(h, lines, "")
}

func post(h http.Handler, lines, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	for name, values := range fields(lines) {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// used returns how many units of a limit a key has used.
func used(t testing.TB, l headgate.Operator, limit headgate.Limit, key string) string {
	t.Helper()
	s, err := l.Inspect(context.Background(), limit, key)
	if err != nil {
		t.Fatal(err)
	}
	return s.Used.String()
}

func memoryLimiter() *headgate.Limiter { return headgate.New(memory.New(nil), nil) }

func TestOneLine(t *testing.T) {
	t.Parallel()
	h := httplimit.Handler(memoryLimiter(), headgate.MustParse("fixed-window 2/1h from-first"), httplimit.ByIP)(answers(204))
	for i, want := range []int{204, 204, 429} {
		w := get(h, "X-Forwarded-For: 203.0.113.9\nIdempotency-Key: 1")
		if w.Code != want || w.Header().Get("RateLimit-Policy") == "" || w.Header().Get("RateLimit") == "" {
			t.Errorf("%d: %d, %v", i, w.Code, w.Header())
		}
		if refused := w.Code == 429; (w.Header().Get("Retry-After") != "") != refused ||
			strings.Contains(w.Body.String(), httplimit.QuotaExceeded) != refused {
			t.Errorf("%d: %v %s", i, w.Header(), w.Body)
		}
	}
}

func TestWrongParameters(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("sliding-log 5/1m")
	ok := httplimit.Charge{Limit: limit, Key: httplimit.ByIP}
	with := func(change func(*httplimit.Charge)) []httplimit.Charge {
		c := ok
		change(&c)
		return []httplimit.Charge{ok, c}
	}
	one := []httplimit.Charge{ok}
	settle := httplimit.SettleByHeader("Cost")
	for field, cfg := range map[string]httplimit.HandlerConfig{
		"Charges:":        {},
		"Limit: is":       {Charges: with(func(c *httplimit.Charge) { c.Limit = headgate.Limit{} })},
		"Limit: concu":    {Charges: with(func(c *httplimit.Charge) { c.Limit = headgate.MustParse("concurrency 5 ttl 1m") })},
		"Key:":            {Charges: with(func(c *httplimit.Charge) { c.Key = nil })},
		"Keep:":           {Charges: with(func(c *httplimit.Charge) { c.Keep = headgate.Percent(100) })},
		"Mode:":           {Charges: one, Mode: 3},
		"RefundFailures:": {Charges: one, OnlyFailures: true, RefundFailures: true},
		"Settle:":         {Charges: with(func(c *httplimit.Charge) { c.Settle = settle }), OnlyFailures: true},
		"ID:":             {Charges: one, OnlyFailures: true, ID: func(*http.Request) (string, error) { return "", nil }},
		"Life:":           {Charges: one, Life: -1},
		"Status:":         {Charges: one, Status: 200},
		"Legacy:":         {Charges: one, Legacy: 9},
		"OnlyFailures:": {OnlyFailures: true, Charges: with(func(c *httplimit.Charge) {
			c.Limit = headgate.MustParse("fixed-window 5/1m from-first")
		})},
		"LimitFor:": {Charges: with(func(c *httplimit.Charge) {
			c.LimitFor = func(*http.Request) (headgate.Limit, error) { return limit, nil }
		})},
	} {
		_, err := httplimit.NewHandler(l, cfg)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s %v", field, err)
		}
	}
	_, err := httplimit.NewHandler(nil, httplimit.HandlerConfig{Charges: one})
	if !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("no limiter: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("Handler takes a limit that is missing")
		}
	}()
	httplimit.Handler(l, headgate.Limit{}, httplimit.ByIP)
}

// TestSeveralCharges: all or none, with headroom; what is left out; tiers.
func TestSeveralCharges(t *testing.T) {
	t.Parallel()
	l := memoryLimiter()
	limits := map[string]headgate.Limit{
		"free": named("free", "fixed-window 2/1h from-first"),
		"gold": named("gold", "fixed-window 4/1h from-first"),
	}
	all := named("all", "fixed-window 10/1h from-first")
	h := must(t, l, httplimit.HandlerConfig{Charges: []httplimit.Charge{
		{
			LimitFor: func(r *http.Request) (headgate.Limit, error) { return limits[r.Header.Get("Tier")], nil },
			Key:      httplimit.ByHeader("Api-Key"),
		},
		{Limit: all, Key: httplimit.ByConst("all"), Keep: headgate.Percent(30)},
		{Limit: all, Key: httplimit.ByConst("none"), Cost: func(*http.Request) (headgate.Cost, error) {
			return headgate.Units(0), nil
		}},
	}})(answers(204))
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
		w := get(h, tt.lines)
		if w.Code != tt.want || strings.Count(w.Header().Get("RateLimit-Policy"), ";q=") != tt.policies ||
			!strings.Contains(w.Header().Get("RateLimit"), tt.remaining) {
			t.Errorf("%d: %d, %v", i, w.Code, w.Header())
		}
	}
	if n := used(t, l, all, "none"); n != "0" {
		t.Errorf("a cost of 0 charges %v", n)
	}
}

func TestTheStoreIsAway(t *testing.T) {
	t.Parallel()
	l := headgate.New(storetest.Failing{Store: memory.New(nil), Err: store.ErrUnavailable}, nil)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for name, tt := range map[string]struct {
		cfg    httplimit.HandlerConfig
		ctx    context.Context
		want   int
		errors int
	}{
		"closed":            {httplimit.HandlerConfig{}, t.Context(), 503, 1},
		"open":              {httplimit.HandlerConfig{FailOpen: true}, t.Context(), 204, 1},
		"open, client gone": {httplimit.HandlerConfig{FailOpen: true}, ctx, 503, 0},
		"shadow":            {httplimit.HandlerConfig{Mode: httplimit.Shadow}, t.Context(), 204, 1},
		"advise":            {httplimit.HandlerConfig{Mode: httplimit.Advise}, t.Context(), 204, 1},
		"failures":          {httplimit.HandlerConfig{OnlyFailures: true}, t.Context(), 503, 1},
		"failures, open":    {httplimit.HandlerConfig{OnlyFailures: true, FailOpen: true}, t.Context(), 204, 1},
		"refund":            {httplimit.HandlerConfig{RefundFailures: true}, t.Context(), 503, 1},
		"id, open": {httplimit.HandlerConfig{FailOpen: true, ID: func(*http.Request) (string, error) {
			return "1", nil
		}}, t.Context(), 204, 1},
	} {
		told := 0
		tt.cfg.OnError = func(_ *http.Request, err error) {
			if told++; !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		tt.cfg.Charges = []httplimit.Charge{{Limit: headgate.MustParse("sliding-log 5/1m"), Key: httplimit.ByIP}}
		w := httptest.NewRecorder()
		must(t, l, tt.cfg)(answers(204)).ServeHTTP(w, httptest.NewRequestWithContext(tt.ctx, http.MethodGet, "/", nil))
		h := w.Header()
		if w.Code != tt.want || told != tt.errors || h["Ratelimit"] != nil || h["Ratelimit-Policy"] != nil {
			t.Errorf("%s: %d, %v; told %d times", name, w.Code, h, told)
		}
		if w.Code == 503 && (h.Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "reduced-capacity")) {
			t.Errorf("%s: %v, %s", name, h, w.Body)
		}
	}
}

// TestWrongProgram: errors of the program are no refusals and no open doors.
func TestWrongProgram(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("fixed-window 5/1m from-first")
	broken := errors.New("broken")
	for name, c := range map[string]httplimit.Charge{
		"unknown limit": {Limit: headgate.MustNamed("unknown"), Key: httplimit.ByIP},
		"key":           {Limit: limit, Key: func(*http.Request) (string, error) { return "", broken }},
		"path":          {Limit: limit, Key: httplimit.ByPathValue("id")},
		"limit": {Key: httplimit.ByIP, LimitFor: func(*http.Request) (headgate.Limit, error) {
			return headgate.Limit{}, broken
		}},
	} {
		told := 0
		h := must(t, l, httplimit.HandlerConfig{
			FailOpen: true, Charges: []httplimit.Charge{c}, OnError: func(*http.Request, error) { told++ },
		})
		if w := get(h(answers(204)), ""); w.Code != 500 || told != 1 || strings.Contains(w.Body.String(), "broken") {
			t.Errorf("%s: %d %s; told %d times", name, w.Code, w.Body, told)
		}
	}
}

func TestIDs(t *testing.T) {
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
		served := 0
		counting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served++
			if r.Header.Get("Fail") != "" {
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		h := must(t, l, cfg)(counting)
		long := strings.Repeat("x", 1000)
		for i, tt := range []struct {
			lines  string
			want   int
			a      string // charged to customer a
			served int
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
			{"Customer: a\nOrder: " + long, 200, "6", 8},
			{"Customer: a\nOrder: " + long, 409, "6", 8},
			{"Customer: a\nOrder: " + long + "x", 200, "7", 9},
		} {
			w := get(h, tt.lines)
			if n := used(t, l, limit, "a"); w.Code != tt.want || n != tt.a || served != tt.served {
				t.Errorf("%d: %d, %s charged, %d served; want %v", i, w.Code, n, served, tt)
			}
		}
		cfg.ServeReplays = true
		h = must(t, l, cfg)(counting)
		if w := get(h, "Customer: a\nOrder: 1\nFail: 1"); w.Code != 502 || used(t, l, limit, "a") != "7" {
			t.Errorf("a replay: %d, %v", w.Code, used(t, l, limit, "a")) // that failed: it was not charged
		}
		headgatetest.Advance(time.Hour + time.Second)
		if w := get(h, "Customer: a\nOrder: 1"); w.Code != 200 || used(t, l, limit, "a") != "8" {
			t.Errorf("when the id is forgotten: %d, %v", w.Code, used(t, l, limit, "a"))
		}
	})
}

// named returns a limit with a name.
func named(name, notation string) headgate.Limit {
	limit, err := headgate.MustParse(notation).WithName(name)
	if err != nil {
		panic(err)
	}
	return limit
}

func memoryStore() store.Store { return memory.New(nil) }

// leaving is a store that goes away.
type leaving struct {
	store.Store
	gone atomic.Bool
}

func (l *leaving) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if l.gone.Load() {
		return store.ErrUnavailable
	}
	return l.Store.Apply(ctx, ops, outs)
}

// TestTheHandlerSeesTheDecision, but none where nobody decided.
func TestTheHandlerSeesTheDecision(t *testing.T) {
	t.Parallel()
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		var seen headgate.Decision
		var decided bool
		limit := headgate.MustParseNamed("l", "token-bucket 2/1h")
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen, decided = httplimit.DecisionFrom(r.Context())
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
			{"it would be refused", httplimit.Shadow, false, true, false, 0},
		} {
			seen, decided = headgate.Decision{}, false
			get(must(t, l, httplimit.HandlerConfig{
				Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
				Mode:    tt.mode, Skip: func(*http.Request) bool { return tt.skip },
			})(next), "")
			if decided != tt.decided || seen.Allowed != tt.allowed || seen.Remaining != tt.remain {
				t.Errorf("%s: %v, %+v", tt.name, decided, seen)
			}
		}
	})
}
