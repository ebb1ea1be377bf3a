package httplimit_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

func TestSetHeader(t *testing.T) {
	t.Parallel()
	parse := headgate.MustParse
	for _, tt := range []struct {
		name          string
		d             headgate.Decision
		limits        []headgate.Limit
		policy, state string // RateLimit-Policy and RateLimit
		retryAfter    string
	}{
		{
			"a bucket",
			headgate.Decision{Allowed: true, LimitName: "api", Capacity: 10, Remaining: 4, ResetAfter: 3001 * time.Millisecond},
			[]headgate.Limit{parse("token-bucket 2/s burst 10")},
			`"api";q=10;w=5`, `"api";r=4;t=2`, "",
		},
		{
			"a bucket with nothing left",
			headgate.Decision{Allowed: true, LimitName: "api", Capacity: 10, NextAfter: 100 * time.Millisecond, ResetAfter: 5 * time.Second},
			[]headgate.Limit{parse("token-bucket 2/s burst 10")},
			`"api";q=10;w=5`, `"api";r=0;t=1`, "",
		},
		{
			"a slow bucket with nothing left",
			headgate.Decision{Allowed: true, LimitName: "api", Capacity: 2, NextAfter: 1800 * time.Second, ResetAfter: time.Hour},
			[]headgate.Limit{parse("token-bucket 2/1h")},
			`"api";q=2;w=3600`, `"api";r=0;t=1800`, "",
		},
		{
			"a bucket with nothing left and no NextAfter",
			headgate.Decision{Allowed: true, LimitName: "api", Capacity: 2, ResetAfter: time.Hour},
			[]headgate.Limit{parse("token-bucket 2/1h")},
			`"api";q=2;w=3600`, `"api";r=0;t=3600`, "",
		},
		{
			"a window",
			headgate.Decision{Allowed: true, LimitName: "api", Capacity: 100, Remaining: 99, ResetAfter: 59001 * time.Millisecond},
			[]headgate.Limit{parse("fixed-window 100/1m")},
			`"api";q=100;w=60`, `"api";r=99;t=60`, "",
		},
		{
			"a log",
			headgate.Decision{Allowed: true, LimitName: "login", Capacity: 5, Remaining: 1, ResetAfter: time.Second},
			[]headgate.Limit{parse("sliding-log 5/15m")},
			`"login";q=5;w=900`, `"login";r=1;t=1`, "",
		},
		{
			"a name",
			headgate.Decision{Allowed: true, LimitName: "api", Capacity: 100, Remaining: 99, ResetAfter: time.Minute},
			[]headgate.Limit{headgate.MustNamed("api")},
			`"api";q=100`, `"api";r=99;t=60`, "",
		},
		{
			"refused",
			headgate.Decision{LimitName: "api", Capacity: 10, Remaining: 3, RetryAfter: 1001 * time.Millisecond, ResetAfter: time.Hour},
			nil, `"api";q=10`, `"api";r=3;t=2`, "2",
		},
		{
			"refused for less than a second",
			headgate.Decision{LimitName: "api", Capacity: 10, RetryAfter: time.Microsecond},
			nil, `"api";q=10`, `"api";r=0;t=1`, "1",
		},
		{
			"refused for ever",
			headgate.Decision{LimitName: "api", Capacity: 10, RetryAfter: headgate.Never},
			nil, `"api";q=10`, `"api";r=0`, "",
		},
		{
			"two, of which one refuses",
			headgate.Decision{LimitName: "b", RetryAfter: 5 * time.Second, Each: []headgate.ChargeDecision{
				{Charge: 0, Allowed: true, LimitName: "a", Capacity: 2, Remaining: 1, ResetAfter: time.Second},
				{Charge: 1, LimitName: "b", Capacity: 3, RetryAfter: 5 * time.Second, ResetAfter: time.Hour},
			}},
			[]headgate.Limit{parse("fixed-window 2/1s"), parse("fixed-window 3/1h")},
			`"a";q=2;w=1, "b";q=3;w=3600`, `"a";r=1;t=1, "b";r=0;t=5`, "5",
		},
		{
			"a repeated refusal has one of two charges",
			headgate.Decision{
				LimitName: "b", RetryAfter: 5 * time.Second,
				Each: []headgate.ChargeDecision{{Charge: 1, LimitName: "b", Capacity: 3, RetryAfter: 5 * time.Second}},
			},
			[]headgate.Limit{parse("fixed-window 2/1s"), parse("fixed-window 3/1h")},
			`"b";q=3;w=3600`, `"b";r=0;t=5`, "5",
		},
		{
			"a capacity of 0",
			headgate.Decision{LimitName: "off", RetryAfter: headgate.Never},
			[]headgate.Limit{parse("0")},
			`"off";q=0`, `"off";r=0`, "",
		},
		{
			"unlimited beside another",
			headgate.Decision{Allowed: true, Each: []headgate.ChargeDecision{
				{Charge: 0, Allowed: true, LimitName: "all", Capacity: 9_007_199_254_740, Remaining: 9_007_199_254_739},
				{Charge: 1, Allowed: true, LimitName: "b", Capacity: 3, Remaining: 2, ResetAfter: time.Hour},
			}},
			[]headgate.Limit{parse("unlimited"), parse("fixed-window 3/1h")},
			`"b";q=3;w=3600`, `"b";r=2;t=3600`, "",
		},
		{
			"a name that cannot stand in a field",
			headgate.Decision{Allowed: true, LimitName: "a\"b\\\u00e9\n", Capacity: 1, Remaining: -1},
			nil, `"a\"b\\??";q=1`, `"a\"b\\??";r=0;t=1`, "",
		},
	} {
		h := http.Header{"Retry-After": {"old"}}
		httplimit.SetHeader(h, &tt.d, tt.limits...)
		httplimit.SetRetryAfter(h, &tt.d, 0)
		policy, state, retryAfter := h.Get("RateLimit-Policy"), h.Get("RateLimit"), h.Get("Retry-After")
		if policy != tt.policy || state != tt.state || retryAfter != tt.retryAfter {
			t.Errorf("%s: got\n%s\n%s\n%s\nwant\n%s\n%s\n%s", tt.name, policy, state, retryAfter, tt.policy, tt.state,
				tt.retryAfter)
		}
		for _, name := range []string{"RateLimit-Policy", "RateLimit"} {
			if _, err := httpsfv.UnmarshalList(h.Values(name)); err != nil {
				t.Errorf("%s: %s: %v", tt.name, name, err)
			}
		}
	}
}

// FuzzFields checks that a parser of RFC 9651 reads the fields of any name and any figures.
func FuzzFields(f *testing.F) {
	f.Add("api", int64(10), int64(1), int64(time.Second), true)
	f.Add("\"\\\x00\u00e9", int64(-1), int64(1<<62), int64(-5), false)
	f.Fuzz(func(t *testing.T, name string, capacity, remaining, wait int64, allowed bool) {
		d := headgate.Decision{
			Allowed: allowed, LimitName: name, Capacity: capacity, Remaining: remaining,
			RetryAfter: time.Duration(wait), ResetAfter: time.Duration(wait),
		}
		h := http.Header{}
		httplimit.SetHeader(h, &d)
		for _, field := range []string{"RateLimit-Policy", "RateLimit"} {
			list, err := httpsfv.UnmarshalList(h.Values(field))
			if want := capacity < 9_007_199_254_740; /* that of Unlimited */ err != nil || len(list) == 1 != want {
				t.Errorf("%s: %q: %v", field, h.Values(field), err)
			}
		}
	})
}

func TestWriteRefusalAndWriteUnavailable(t *testing.T) {
	t.Parallel()
	d := headgate.Decision{LimitName: "b", RetryAfter: time.Second, Each: []headgate.ChargeDecision{
		{LimitName: "b"}, {LimitName: "a", Allowed: true}, {LimitName: "c"}, {LimitName: "b"},
	}}
	w := httptest.NewRecorder()
	httplimit.WriteRefusal(w, &d, http.StatusTooManyRequests)
	var p httplimit.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if w.Code != 429 || p.Status != 429 || p.Type != httplimit.QuotaExceeded || !slices.Equal(p.ViolatedPolicies, []string{"b", "c"}) ||
		!strings.Contains(p.Detail, "in 1 s") || w.Header().Get("Content-Type") != "application/problem+json" ||
		w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("WriteRefusal: got %d %v %s", w.Code, w.Header(), w.Body)
	}
	w = httptest.NewRecorder()
	httplimit.SetHeader(w.Header(), &d)
	httplimit.WriteUnavailable(w)
	if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Header().Get("RateLimit") != "" ||
		!strings.Contains(w.Body.String(), "temporary-reduced-capacity") {
		t.Errorf("WriteUnavailable: got %d %v %s", w.Code, w.Header(), w.Body)
	}
}

func TestSetLegacyHeader(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 1000)
	for style, want := range map[httplimit.Style]string{
		httplimit.NoLegacy: "", httplimit.LegacySeconds: "3", httplimit.LegacyEpoch: "1800000004",
	} {
		h := http.Header{}
		d := headgate.Decision{Capacity: 5, Remaining: 2, RetryAfter: 2500 * time.Millisecond, At: at}
		httplimit.SetLegacyHeader(h, &d, style)
		if got := h.Get("X-RateLimit-Reset"); got != want || want != "" && (h.Get("X-RateLimit-Limit") != "5" ||
			h.Get("X-RateLimit-Remaining") != "2") {
			t.Errorf("style %d: got %v, want reset %q", style, h, want)
		}
	}
}

// TestUnlimitedHasNoFields checks that SetHeader and SetLegacyHeader remove the fields for an unlimited limit.
func TestUnlimitedHasNoFields(t *testing.T) {
	t.Parallel()
	unlimited := headgate.MustParse("unlimited")
	p := unlimited.Params()
	h := http.Header{"Ratelimit": {"old"}, "X-Ratelimit-Reset": {"old"}}
	d := headgate.Decision{Allowed: true, LimitName: "all", Capacity: p.Capacity / p.Unit, Remaining: 9_007_199_254_739}
	httplimit.SetHeader(h, &d, unlimited)
	httplimit.SetLegacyHeader(h, &d, httplimit.LegacySeconds)
	if len(h) != 0 {
		t.Errorf("got %v, want no fields", h)
	}
}

func TestLegacyResetIsMissingIfNeverPassing(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	httplimit.SetLegacyHeader(h, &headgate.Decision{Capacity: 5, RetryAfter: headgate.Never}, httplimit.LegacyEpoch)
	if h.Get("X-RateLimit-Limit") != "5" || h.Get("X-RateLimit-Reset") != "" {
		t.Errorf("got %v, want a limit of 5 without a reset", h)
	}
}
