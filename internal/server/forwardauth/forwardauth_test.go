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

const limitsText = `limits:
  api: sliding-log 3/1h
  other: sliding-log 100/1h
  held: concurrency 2 ttl 1m
`

// gate is a handler, with the service and the limiter below it.
type gate struct {
	*forwardauth.Handler
	limiter *headgate.Limiter
	service *service.Service
}

func newGate(t *testing.T, c *forwardauth.Config) *gate {
	t.Helper()
	s := memory.New(nil)
	t.Cleanup(func() { s.Close() })
	return newGateWithStore(t, s, c)
}

func newGateWithStore(t *testing.T, s store.Store, c *forwardauth.Config) *gate {
	t.Helper()
	return newGateWithRules(t, s, "", c)
}

// newGateWithRules returns a gate with rules, which are appended to the config file.
func newGateWithRules(t *testing.T, s store.Store, rules string, c *forwardauth.Config) *gate {
	t.Helper()
	file, err := config.Parse("headgate.yaml", []byte(limitsText+rules))
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
		edge.WriteProblem(w, forwardauth.ProblemOf(err))
	}
}

// usedBy returns what a key has used of a limit.
func (g *gate) usedBy(t *testing.T, limit, key string) string {
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

// request returns a proxy's request with more headers, such as "Origin: null". A header without a value is removed.
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

// TestTheQueryOfAnEndUserIsRefused sends what a proxy sends that passes on the query of the end user, or only seems to.
func TestTheQueryOfAnEndUserIsRefused(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	for _, tt := range []struct {
		query, uri string
		want       int
	}{
		{"limit=api&key=x", "/login?limit=api&key=x", http.StatusBadRequest},
		{"limit=api&by=ip&key=x", "/login?key=x", http.StatusBadRequest},
		{"deny=403&limit=api&key=x", "/login?limit=api&key=x", http.StatusBadRequest},
		{"limit=api&key=x", "/login?x", http.StatusNoContent}, // ends in the same way by chance
		{"limit=api&key=x", "/login?", http.StatusNoContent},
		{"limit=api&key=x", "/login?limit=api", http.StatusNoContent},
	} {
		if w := g.send(request("GET", tt.query, "X-Forwarded-Uri: "+tt.uri)); w.Code != tt.want {
			t.Errorf("%s about %s: status %d, %s, want %d", tt.query, tt.uri, w.Code, w.Body, tt.want)
		}
	}
}

func (g *gate) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

func readProblem(t *testing.T, w *httptest.ResponseRecorder) (p api.Problem) {
	t.Helper()
	if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
		t.Errorf("Content-Type: %q", kind)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Errorf("%v: %q", err, w.Body)
	}
	return p
}

// TestTheStatusIsTheAnswer checks 3 admissions and 2 refusals, for each method.
func TestTheStatusIsTheAnswer(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PROPFIND"} {
		g := newGate(t, nil)
		for i := range 5 {
			want, deny := 204, ""
			if i >= 3 {
				want, deny = []int{429, 403}[i-3], []string{"", "&deny=403"}[i-3]
			}
			w := g.send(request(method, "limit=api&key=alice"+deny))
			if w.Code != want || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s %d: status %d, want %d; %v", method, i, w.Code, want, w.Header())
			}
			wantLimit := fmt.Sprintf(`"api";r=%d`, max(0, 2-i))
			if got := w.Header().Get("RateLimit"); !strings.HasPrefix(got, wantLimit) {
				t.Errorf("%s %d: RateLimit: %s, want %s", method, i, got, wantLimit)
			}
			if got := w.Header().Get("RateLimit-Policy"); !strings.HasPrefix(got, `"api";q=3`) {
				t.Errorf("%s %d: RateLimit-Policy: %s", method, i, got)
			}
			retry, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if i >= 3 && (err != nil || retry < 3500 || retry > 3600) || i < 3 && err == nil {
				t.Errorf("%s %d: Retry-After: %q", method, i, w.Header()["Retry-After"])
			}
			if i >= 3 {
				if p := readProblem(t, w); p.Status != want || !strings.HasSuffix(p.Type, "#quota-exceeded") {
					t.Errorf("%s %d: got %+v, want the status %d and the type quota-exceeded", method, i, p, want)
				}
			}
		}
		if g.usedBy(t, "api", "alice") != "3" {
			t.Errorf("%s: %s is used, want 3", method, g.usedBy(t, "api", "alice"))
		}
	}
}

// TestSeveralChargesAreAdmittedAllOrNone checks one or two charges, with costs and headroom, in either order.
func TestSeveralChargesAreAdmittedAllOrNone(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	for _, tt := range []struct {
		query      string
		want       int
		api, other string // what the key has used after the request
	}{
		{"limit=api&key=k&limit=other&key=k&cost=10", 204, "1", "10"},
		{"deny=403&limit=other&cost=2.5&key=k&limit=api&by=ip", 204, "1", "12.5"},
		{"limit=api&key=k&cost=3&limit=other&key=k", 429, "1", "12.5"},
		{"limit=api&key=k&keep=2", 429, "1", "12.5"},
		{"limit=other&key=k&keep=50%25&&", 204, "1", "13.5"},
		{"limit=other&key=k&cost=86.5&deny=401", 204, "1", "100"},
		{"limit=other&key=k&cost=101&deny=401", 401, "1", "100"},
		{"limit=other&key=", 204, "1", "100"},
		{"limit=api&key=192.0.2.7&cost=2&limit=api&key=k", 204, "2", "100"}, // 1 was taken with by=ip
		{"limit=api&by=ip&cost=0.5", 429, "2", "100"},
	} {
		if w := g.send(request("GET", tt.query)); w.Code != tt.want {
			t.Errorf("%s: status %d, want %d: %s", tt.query, w.Code, tt.want, w.Body)
		}
		if api, other := g.usedBy(t, "api", "k"), g.usedBy(t, "other", "k"); api != tt.api || other != tt.other {
			t.Errorf("%s: %s and %s are used, want %s and %s", tt.query, api, other, tt.api, tt.other)
		}
	}
}

// TestWrongParametersChargeNothing checks the problem of each invalid query.
func TestWrongParametersChargeNothing(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	for query, want := range map[string]string{
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
		w := g.send(request("GET", query))
		p := readProblem(t, w)
		if w.Code != http.StatusBadRequest || !strings.Contains(p.Detail, want) || len(w.Body.String()) > 3000 {
			t.Errorf("%.80s: status %d, %.300s; want %s", query, w.Code, p.Detail, want)
		}
	}
	for _, limit := range []string{"api", "other"} {
		for _, key := range []string{"k", "l", "", "192.0.2.7"} {
			if used := g.usedBy(t, limit, key); used != "0" {
				t.Errorf("%q has used %s of %s, want 0", key, used, limit)
			}
		}
	}
}

// TestOnlyProxiesAreAnswered checks that a request needs one of three headers, none of which a page can send.
func TestOnlyProxiesAreAnswered(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	noURI := []string{"X-Forwarded-Uri"}
	for _, tt := range []struct {
		headers []string
		want    int
	}{
		{noURI, 403},
		{append(noURI, "Origin: https://evil.example", "Content-Type: text/plain"), 403},
		{append(noURI, "Authorization: Bearer x"), 403},
		{append(noURI, "Headgate-Token: x"), 204},
		{append(noURI, "X-Original-Uri: /"), 204},
		{append(noURI, "X-Original-Url: /"), 403},
		{nil, 204},
		{append(noURI, "X-Forwarded-Uri: "), 204}, // a page cannot send an empty one either
	} {
		w := g.send(request("GET", "limit=api&key=k", tt.headers...))
		if w.Code != tt.want {
			t.Errorf("%q: status %d, want %d", tt.headers, w.Code, tt.want)
		}
		if w.Code == 403 && !strings.Contains(readProblem(t, w).Detail, "Nothing was charged. /v1/auth answers") {
			t.Errorf("%q: %s", tt.headers, w.Body)
		}
		if w.Code == 204 {
			if l, err := headgate.Named("api"); err != nil {
				t.Fatal(err)
			} else if _, err := g.limiter.Reset(t.Context(), l, "k"); err != nil {
				t.Fatal(err)
			}
		}
		if used := g.usedBy(t, "api", "k"); used != "0" {
			t.Errorf("%q: %s is used, want 0", tt.headers, used)
		}
	}
}

// TestAnEndUsersHeadersChangeNothing checks that headers which a proxy passes on change neither the key nor the charge.
func TestAnEndUsersHeadersChangeNothing(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	passed := 0
	for i := range 1000 {
		w := g.send(request("POST", "limit=api&by=ip", "Idempotency-Key: one", "Authorization: Basic eDp5",
			"Origin: https://evil.example", "Cookie: a=b", "Sec-Fetch-Site: cross-site",
			fmt.Sprintf("X-Forwarded-For: 198.51.100.%d, 192.0.2.7", i%250)))
		if w.Code == http.StatusNoContent {
			passed++
		} else if w.Code != http.StatusTooManyRequests {
			t.Fatal(w.Code, w.Body)
		}
	}
	if passed != 3 || g.usedBy(t, "api", "192.0.2.7") != "3" {
		t.Errorf("%d of 1000 passed, want 3", passed)
	}
}

// failingStore is a store whose Apply fails with err.
type failingStore struct {
	*memory.Store
	err error
}

func (s failingStore) Apply(context.Context, []law.Op, []law.Outcome) error { return s.err }

// TestAStoreThatFailsLetsNothingThrough checks that the answer is 503, and does not tell end users why.
func TestAStoreThatFailsLetsNothingThrough(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{
		store.ErrUnavailable, store.ErrUnknownOutcome, store.ErrFull, store.ErrBusy, context.DeadlineExceeded,
		errors.New("secret"),
	} {
		g := newGateWithStore(t, failingStore{memory.New(nil), fmt.Errorf("secret: %w", failure)}, nil)
		w := g.send(request("GET", "limit=api&key=k&deny=403"))
		p := readProblem(t, w)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" ||
			!strings.HasSuffix(p.Type, "#temporary-reduced-capacity") || strings.Contains(w.Body.String(), "secret") ||
			w.Header().Get("RateLimit") != "" {
			t.Errorf("%v: got status %d, %v, %+v, want 503", failure, w.Code, w.Header(), p)
		}
	}
}

// TestUsageHasRefusalsOfForwardAuth checks that usage lists 2 refusals of 5 requests.
func TestUsageHasRefusalsOfForwardAuth(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	for range 5 {
		g.send(request("GET", "limit=api&key=alice"))
	}
	usage, err := g.service.Usage(t.Context(), &api.UsageQuery{Key: "alice"}, func(int) error { return nil })
	if err != nil || len(usage.Refusals) != 2 {
		t.Errorf("got %+v, %v, want 2 refusals", usage, err)
	}
}
