package forwardauth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const limits = `limits:
  api: sliding-log 3/1h
  other: sliding-log 100/1h
  held: concurrency 2 ttl 1m
`

// gate is a handler and what it charges.
type gate struct {
	*forwardauth.Handler
	limiter *headgate.Limiter
	service *service.Service
}

func newGate(t *testing.T, c *forwardauth.Config) *gate {
	t.Helper()
	s := memory.New(nil)
	t.Cleanup(func() { s.Close() })
	return newGateOn(t, s, c)
}

func newGateOn(t *testing.T, s store.Store, c *forwardauth.Config) *gate {
	t.Helper()
	return newGateBy(t, s, "", c)
}

// newGateBy has rules, which are the rest of a config file.
func newGateBy(t *testing.T, s store.Store, rules string, c *forwardauth.Config) *gate {
	t.Helper()
	file, err := config.Parse("headgate.yaml", []byte(limits+rules))
	if err != nil {
		t.Fatal(err)
	}
	l := headgate.New(s, &headgate.Config{Names: file})
	svc := service.New(l, file, nil)
	return &gate{forwardauth.New(svc, c), l, svc}
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := g.Serve(r.Context(), w, r); err != nil {
		edge.WriteProblem(w, forwardauth.Problem(err))
	}
}

// used returns what a key has used of a limit.
func (g *gate) used(t *testing.T, limit, key string) string {
	t.Helper()
	l, err := headgate.Named(limit)
	if err != nil {
		t.Fatal(err)
	}
	st, err := g.limiter.Inspect(t.Context(), l, key)
	if err != nil {
		t.Fatal(err)
	}
	return st.Used.String()
}

// request returns a proxy's request with more headers, such as "Origin: null"; one without a value
// is removed.
func request(method, query string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, "/v1/auth", nil)
	r.URL.RawQuery = query
	r.RemoteAddr = "127.0.0.1:1234"
	for _, h := range append([]string{
		"X-Forwarded-Uri: /", "X-Forwarded-Method: GET", "X-Forwarded-Host: example.com", "X-Forwarded-For: 192.0.2.7",
	}, headers...) {
		name, value, ok := strings.Cut(h, ": ")
		r.Header.Del(name)
		if ok {
			r.Header.Set(name, value)
		}
	}
	return r
}

// TestAnEndUserDoesNotSayWhatIsCharged asks as a proxy does that passes on the query of the end user.
func TestAnEndUserDoesNotSayWhatIsCharged(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	for _, tt := range []struct {
		query, uri string
		want       int
	}{
		{"limit=api&key=x", "/login?limit=api&key=x", http.StatusBadRequest},
		{"limit=api&by=ip&key=x", "/login?key=x", http.StatusBadRequest},
		{"deny=403&limit=api&key=x", "/login?limit=api&key=x", http.StatusBadRequest},
		{"limit=api&key=x", "/login?x", http.StatusNoContent}, // the same ending by chance
		{"limit=api&key=x", "/login?", http.StatusNoContent},
		{"limit=api&key=x", "/login?limit=api", http.StatusNoContent},
	} {
		if w := g.ask(request("GET", tt.query, "X-Forwarded-Uri: "+tt.uri)); w.Code != tt.want {
			t.Errorf("%s about %s: status %d, %s, want %d", tt.query, tt.uri, w.Code, w.Body, tt.want)
		}
	}
}

func (g *gate) ask(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

func problem(t *testing.T, w *httptest.ResponseRecorder) (p api.Problem) {
	t.Helper()
	if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
		t.Errorf("Content-Type: %q", kind)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Errorf("%v: %q", err, w.Body)
	}
	return p
}

// TestTheStatusIsTheAnswer whatever the method.
func TestTheStatusIsTheAnswer(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PROPFIND"} {
		g := newGate(t, nil)
		for i := range 5 {
			want, deny := 204, ""
			if i >= 3 {
				want, deny = []int{429, 403}[i-3], []string{"", "&deny=403"}[i-3]
			}
			w := g.ask(request(method, "limit=api&key=alice"+deny))
			if w.Code != want || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s %d: status %d, want %d; %v", method, i, w.Code, want, w.Header())
			}
			left := fmt.Sprintf(`"api";r=%d`, max(0, 2-i))
			if got := w.Header().Get("RateLimit"); !strings.HasPrefix(got, left) {
				t.Errorf("%s %d: RateLimit: %s, want %s", method, i, got, left)
			}
			if got := w.Header().Get("RateLimit-Policy"); !strings.HasPrefix(got, `"api";q=3`) {
				t.Errorf("%s %d: RateLimit-Policy: %s", method, i, got)
			}
			retry, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if i >= 3 && (err != nil || retry < 3500 || retry > 3600) || i < 3 && err == nil {
				t.Errorf("%s %d: Retry-After: %q", method, i, w.Header()["Retry-After"])
			}
			if i >= 3 {
				if p := problem(t, w); p.Status != want || !strings.HasSuffix(p.Type, "#quota-exceeded") {
					t.Errorf("%s %d: %+v", method, i, p)
				}
			}
		}
		if g.used(t, "api", "alice") != "3" {
			t.Errorf("%s: %s is used", method, g.used(t, "api", "alice"))
		}
	}
}

// TestSeveralChargesAreAdmittedAllOrNone in their order, with their costs and headroom.
func TestSeveralChargesAreAdmittedAllOrNone(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	for _, tt := range []struct {
		query      string
		want       int
		api, other string // used then
	}{
		{"limit=api&key=k&limit=other&key=k&cost=10", 204, "1", "10"},
		{"deny=403&limit=other&cost=2.5&key=k&limit=api&by=ip", 204, "1", "12.5"},
		{"limit=api&key=k&cost=3&limit=other&key=k", 429, "1", "12.5"},
		{"limit=api&key=k&keep=2", 429, "1", "12.5"},
		{"limit=other&key=k&keep=50%25&&", 204, "1", "13.5"},
		{"limit=other&key=k&cost=86.5&deny=401", 204, "1", "100"},
		{"limit=other&key=k&cost=101&deny=401", 401, "1", "100"},
		{"limit=other&key=", 204, "1", "100"},
		{"limit=api&key=192.0.2.7&cost=2&limit=api&key=k", 204, "2", "100"}, // one was taken by=ip
		{"limit=api&by=ip&cost=0.5", 429, "2", "100"},
	} {
		if w := g.ask(request("GET", tt.query)); w.Code != tt.want {
			t.Errorf("%s: status %d, want %d: %s", tt.query, w.Code, tt.want, w.Body)
		}
		if api, other := g.used(t, "api", "k"), g.used(t, "other", "k"); api != tt.api || other != tt.other {
			t.Errorf("%s: %s and %s are used, want %s and %s", tt.query, api, other, tt.api, tt.other)
		}
	}
}

// TestWrongParametersChargeNothing and name what is wrong.
func TestWrongParametersChargeNothing(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	for query, says := range map[string]string{
		"":                                  "limit: is missing, and this server has no rules",
		"key=k":                             "key: stands before the limit",
		"cost=1&limit=api&key=k":            "cost: stands before the limit",
		"limit=api":                         `key: of limit "api" is missing`,
		"limit=api&limit=other&key=k":       `key: of limit "api" is missing`,
		"limit=&key=k":                      "limit: is empty",
		"limit=none&key=k":                  "none",
		"limit=token-bucket+1/s&key=k":      "notations are not accepted",
		"limit=held&key=k":                  "acquire",
		"limit=api&key=k&key=l":             `key: is said twice of limit "api"`,
		"limit=api&key=k&by=ip":             "by: is said twice",
		"limit=api&by=ip&key=k":             "key: is said twice",
		"limit=api&by=name":                 `by: "name" is neither ip nor ip/BITS, such as ip/56`,
		"limit=api&key=k&cost=x":            "cost",
		"limit=api&key=k&cost=-1":           "cost",
		"limit=api&key=k&cost=":             "cost: is empty",
		"limit=api&key=k&cost=1&cost=2":     "cost: is said twice",
		"limit=api&key=k&keep=lots":         "keep",
		"limit=api&key=k&keep=":             "keep: is empty",
		"limit=api&key=k&keep=1&keep=2":     "keep: is said twice",
		"limit=api&key=k&deny=200":          `deny: "200" is not 401, 403 or 429`,
		"limit=api&key=k&deny=403&deny=429": "deny: is said twice",
		"limit=api&key=k&id=x":              `query: "id" is not known; known are limit, key, by, cost, keep and deny`,
		"limit=api&key=k&Cost=2":            `query: "Cost" is not known`,
		"limit=api&key=k&co%73t=2":          `query: "co%73t" is not known`,
		"limit=api&key=%zz":                 "not escaped",
		"limit=api&key=%00":                 "key",
		"limit=api&key=%ff":                 "key",
		"limit=api&key=" + strings.Repeat("k", law.MaxKey+1):       "key",
		strings.Repeat("limit=api&key=k&", 10_000):                 "limit: stands more than 64 times",
		"limit=api&key=k&" + strings.Repeat("cost=1&", 10_000):     "cost: is said twice",
		"limit=api&key=k&" + strings.Repeat("x", 1_000) + "=1":     "query",
		"limit=" + strings.Repeat("x", 10_000) + "&key=k&deny=403": "limit",
	} {
		w := g.ask(request("GET", query))
		p := problem(t, w)
		if w.Code != http.StatusBadRequest || !strings.Contains(p.Detail, says) || len(w.Body.String()) > 3000 {
			t.Errorf("%.80s: status %d, %.300s; want %s", query, w.Code, p.Detail, says)
		}
	}
	for _, limit := range []string{"api", "other"} {
		for _, key := range []string{"k", "l", "", "192.0.2.7"} {
			if used := g.used(t, limit, key); used != "0" {
				t.Errorf("%s is used of %s for %q", used, limit, key)
			}
		}
	}
}

// TestOnlyProxiesAreAnswered: a page can send none of the headers that are requested here.
func TestOnlyProxiesAreAnswered(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	bare := []string{"X-Forwarded-Uri"}
	for _, tt := range []struct {
		headers []string
		want    int
	}{
		{bare, 403},
		{append(bare, "Origin: https://evil.example", "Content-Type: text/plain"), 403},
		{append(bare, "Authorization: Bearer x"), 403},
		{append(bare, "Headgate-Token: x"), 204},
		{append(bare, "X-Original-Uri: /"), 204},
		{append(bare, "X-Original-Url: /"), 403},
		{nil, 204},
		{append(bare, "X-Forwarded-Uri: "), 204}, // which a page cannot send either
	} {
		w := g.ask(request("GET", "limit=api&key=k", tt.headers...))
		if w.Code != tt.want {
			t.Errorf("%q: status %d, want %d", tt.headers, w.Code, tt.want)
		}
		if w.Code == 403 && !strings.Contains(problem(t, w).Detail, "Nothing was charged. /v1/auth answers") {
			t.Errorf("%q: %s", tt.headers, w.Body)
		}
		if w.Code == 204 {
			if l, err := headgate.Named("api"); err != nil {
				t.Fatal(err)
			} else if _, err := g.limiter.Reset(t.Context(), l, "k"); err != nil {
				t.Fatal(err)
			}
		}
		if used := g.used(t, "api", "k"); used != "0" {
			t.Errorf("%q: %s is used", tt.headers, used)
		}
	}
}

// TestAnEndUsersHeadersChangeNothing, also where a proxy passes all of them on.
func TestAnEndUsersHeadersChangeNothing(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	passed := 0
	for i := range 1000 {
		w := g.ask(request("POST", "limit=api&by=ip", "Idempotency-Key: one", "Authorization: Basic eDp5",
			"Origin: https://evil.example", "Cookie: a=b", "Sec-Fetch-Site: cross-site",
			fmt.Sprintf("X-Forwarded-For: 198.51.100.%d, 192.0.2.7", i%250)))
		if w.Code == http.StatusNoContent {
			passed++
		} else if w.Code != http.StatusTooManyRequests {
			t.Fatal(w.Code, w.Body)
		}
	}
	if passed != 3 || g.used(t, "api", "192.0.2.7") != "3" {
		t.Errorf("%d passed", passed)
	}
}

// broken is a store that fails.
type broken struct {
	*memory.Store
	err error
}

func (b broken) Apply(context.Context, []law.Op, []law.Outcome) error { return b.err }

// TestAStoreThatFailsLetsNothingThrough and end users are not told why.
func TestAStoreThatFailsLetsNothingThrough(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{
		store.ErrUnavailable, store.ErrUnknownOutcome, store.ErrFull, store.ErrBusy, context.DeadlineExceeded,
		errors.New("secret"),
	} {
		g := newGateOn(t, broken{memory.New(nil), fmt.Errorf("secret: %w", failure)}, nil)
		w := g.ask(request("GET", "limit=api&key=k&deny=403"))
		p := problem(t, w)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" ||
			!strings.HasSuffix(p.Type, "#temporary-reduced-capacity") || strings.Contains(w.Body.String(), "secret") ||
			w.Header().Get("RateLimit") != "" {
			t.Errorf("%v: status %d, %v, %+v", failure, w.Code, w.Header(), p)
		}
	}
}

// TestRefusalsAreRemembered as those of other ways to charge are.
func TestRefusalsAreRemembered(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	for range 5 {
		g.ask(request("GET", "limit=api&key=alice"))
	}
	usage, err := g.service.Usage(t.Context(), &api.UsageQuery{Key: "alice"}, func(int) error { return nil })
	if err != nil || len(usage.Refusals) != 2 {
		t.Errorf("%+v, %v", usage, err)
	}
}
