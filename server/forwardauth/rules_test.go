package forwardauth_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/auth"
	"github.com/headgate/headgate/server/forwardauth"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// rules are a function.
type rules func(*forwardauth.Request) (forwardauth.Match, error)

func (f rules) Match(r *forwardauth.Request) (forwardauth.Match, error) { return f(r) }

// charge is to the limit api.
func charge(t *testing.T, key string) []headgate.Charge {
	t.Helper()
	l, err := headgate.Named("api")
	if err != nil {
		t.Fatal(err)
	}
	return []headgate.Charge{{Limit: l, Key: key}}
}

// TestRulesSeeTheOriginalRequest by either family of headers, and by no mixture of them.
func TestRulesSeeTheOriginalRequest(t *testing.T) {
	t.Parallel()
	var seen *forwardauth.Request
	g := newGate(t, &forwardauth.Config{Rules: rules(func(r *forwardauth.Request) (forwardauth.Match, error) {
		seen = r
		return forwardauth.Match{}, nil
	})})
	originals := []string{"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Host"}
	for _, tt := range []struct {
		headers                   []string
		method, host, path, query string // method empty: an error that
		says                      string
	}{
		{nil, "GET", "example.com", "/", "", ""},
		{[]string{"X-Forwarded-Method: POST", "X-Forwarded-Uri: /a%20b/?c=%20d"}, "POST", "example.com", "/a b/", "c=%20d", ""},
		{[]string{"X-Forwarded-Uri: //a/./b/../c//"}, "GET", "example.com", "/a/c/", "", ""},
		{[]string{"X-Forwarded-Uri: /a/%2e%2e/b"}, "GET", "example.com", "/b", "", ""},
		{[]string{"X-Forwarded-Uri: https://other.example/a?b"}, "GET", "example.com", "/a", "b", ""},
		{[]string{"X-Forwarded-Uri: *", "X-Forwarded-Method: OPTIONS"}, "OPTIONS", "example.com", "*", "", ""},
		{
			append(originals, "X-Original-Uri: /x", "X-Original-Method: PUT", "X-Original-Host: o:1"),
			"PUT", "o:1", "/x", "", "",
		},
		{[]string{"X-Original-Uri: /"}, "GET", "example.com", "/", "", ""}, // they agree
		{[]string{"X-Original-Uri: /x"}, "", "", "", "", "X-Original-Uri: says something else"},
		{[]string{"X-Original-Method: PUT"}, "", "", "", "", "X-Original-Method: says something else"},
		{[]string{"X-Original-Host: x"}, "", "", "", "", "X-Original-Host: says something else"},
		{[]string{"X-Forwarded-Method"}, "", "", "", "", "X-Forwarded-Method: is missing"},
		{[]string{"X-Forwarded-Host"}, "", "", "", "", "X-Forwarded-Host: is missing"},
		{[]string{"X-Forwarded-Uri", "Headgate-Token: x"}, "", "", "", "", "X-Forwarded-Uri: is missing"},
		{[]string{"X-Forwarded-Uri: a"}, "", "", "", "", `X-Forwarded-Uri: "a" is not the path`},
		{[]string{"X-Forwarded-Uri: /%zz"}, "", "", "", "", "is not the path"},
		{[]string{"X-Forwarded-Uri: mailto:x"}, "", "", "", "", "is not the path"},
		{[]string{"X-Forwarded-For"}, "", "", "", "", "X-Forwarded-For: is missing"},
	} {
		seen = nil
		w := g.ask(request("GET", "deny=403", tt.headers...))
		if tt.method == "" {
			p := problem(t, w)
			if w.Code != http.StatusBadRequest || !strings.Contains(p.Detail, tt.says) || seen != nil {
				t.Errorf("%q: status %d, %s; want %s", tt.headers, w.Code, p.Detail, tt.says)
			}
			continue
		}
		if w.Code != http.StatusNoContent || seen == nil || seen.Method != tt.method || seen.Host != tt.host ||
			seen.Path != tt.path || seen.Query != tt.query || seen.Client.String() != "192.0.2.7" {
			t.Errorf("%q: status %d, %+v", tt.headers, w.Code, seen)
		}
	}
	r := request("GET", "")
	r.Header.Add("X-Forwarded-Uri", "/other")
	if w := g.ask(r); w.Code != http.StatusBadRequest {
		t.Errorf("two of one header: status %d", w.Code)
	}
	r = request("GET", "")
	r.RemoteAddr = "10.1.2.3:1"
	if w := g.ask(r); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "not listed") {
		t.Errorf("a peer that is not listed: status %d, %s", w.Code, w.Body)
	}
}

// TestWhatRulesSayIsDone of a key that was used up before, and of a new one.
func TestWhatRulesSayIsDone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		match     forwardauth.Match
		query     string
		fresh, up int // the status of a new key, and of one that is used up
		charged   string
		left      bool // RateLimit is sent
		logged    string
	}{
		"no rule":           {forwardauth.Match{}, "", 204, 204, "0", false, ""},
		"enforce":           {forwardauth.Match{Rule: "r"}, "", 204, 429, "1", true, ""},
		"enforce with deny": {forwardauth.Match{Rule: "r"}, "deny=401", 204, 401, "1", true, ""},
		"shadow":            {forwardauth.Match{Rule: "r", Mode: forwardauth.Shadow}, "", 204, 204, "1", false, "would be refused"},
		"advise":            {forwardauth.Match{Rule: "r", Mode: forwardauth.Advise}, "", 204, 204, "0", true, ""},
		"advise with an id": {forwardauth.Match{Rule: "r", Mode: forwardauth.Advise, ID: "i"}, "", 204, 204, "0", true, ""},
		"allowed":           {forwardauth.Match{Rule: "r", Listed: forwardauth.Allowed}, "", 204, 204, "0", false, ""},
		"blocked":           {forwardauth.Match{Rule: "r", Listed: forwardauth.Blocked}, "", 403, 403, "0", false, ""},
		"blocked with deny": {forwardauth.Match{Rule: "r", Listed: forwardauth.Blocked}, "deny=401", 401, 401, "0", false, ""},
		"blocked in shadow": {forwardauth.Match{Rule: "r", Listed: forwardauth.Blocked, Mode: forwardauth.Shadow}, "", 204, 204, "0", false, "would be refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := tt.match
			var log bytes.Buffer
			g := newGate(t, &forwardauth.Config{
				Rules: rules(func(*forwardauth.Request) (forwardauth.Match, error) { return m, nil }),
				Log:   slog.New(slog.NewTextHandler(&log, nil)),
			})
			for range 3 {
				g.ask(request("GET", "limit=api&key=up"))
			}
			for key, want := range map[string]int{"fresh": tt.fresh, "up": tt.up} {
				if m.Rule != "" {
					m.Charges = charge(t, key)
				}
				w := g.ask(request("GET", tt.query))
				if w.Code != want || (w.Header().Get("RateLimit") != "") != tt.left ||
					(w.Header().Get("Retry-After") != "") != (key == "up" && (want == 429 || tt.left && want != 204)) {
					t.Errorf("%s: status %d, want %d; %v", key, w.Code, want, w.Header())
				}
			}
			if used := g.used(t, "api", "fresh"); used != tt.charged {
				t.Errorf("%s is charged, want %s", used, tt.charged)
			}
			if got := log.String(); strings.Contains(got, "would be refused") != (tt.logged != "") {
				t.Errorf("logged: %s", got)
			}
		})
	}
}

// TestAnIDIsUsedOnce: an end user may choose it, so it must not make further requests free.
func TestAnIDIsUsedOnce(t *testing.T) {
	t.Parallel()
	m := forwardauth.Match{Rule: "r", ID: "k|one"}
	g := newGate(t, &forwardauth.Config{
		Rules: rules(func(*forwardauth.Request) (forwardauth.Match, error) { return m, nil }),
	})
	m.Charges = charge(t, "k")
	for i, want := range []int{204, 409, 403, 204} {
		query := ""
		switch i {
		case 2:
			query = "deny=403"
		case 3:
			m.Replays = true
		}
		if w := g.ask(request("GET", query)); w.Code != want {
			t.Errorf("%d: status %d, want %d; %s", i, w.Code, want, w.Body)
		}
	}
	if used := g.used(t, "api", "k"); used != "1" {
		t.Errorf("%s is used", used)
	}
}

// TestErrorsOfRules refuse, and those of a rule that is not enforced do not.
func TestErrorsOfRules(t *testing.T) {
	t.Parallel()
	m, wrong := forwardauth.Match{Rule: "r", Charges: charge(t, "k")}, error(nil)
	g := newGateOn(t, broken{memory.New(nil), store.ErrUnavailable}, &forwardauth.Config{
		Rules: rules(func(*forwardauth.Request) (forwardauth.Match, error) { return m, wrong }),
	})
	for mode, want := range map[forwardauth.Mode]int{
		forwardauth.Enforce: 503, forwardauth.Shadow: 204, forwardauth.Advise: 204,
	} {
		m.Mode = mode
		if w := g.ask(request("GET", "")); w.Code != want {
			t.Errorf("mode %d: status %d, want %d", mode, w.Code, want)
		}
	}
	wrong = headgate.Invalid("X-Cost", "is not a number")
	if w := g.ask(request("GET", "")); w.Code != http.StatusBadRequest || problem(t, w).Field != "X-Cost" {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
}

// TestCallersAreApart: what a token may touch holds for rules too, and its ids are its own.
func TestCallersAreApart(t *testing.T) {
	t.Parallel()
	m := forwardauth.Match{Rule: "r", ID: "one", Charges: charge(t, "k")}
	g := newGate(t, &forwardauth.Config{
		Rules: rules(func(*forwardauth.Request) (forwardauth.Match, error) { return m, nil }),
	})
	for i, tt := range []struct {
		caller *auth.Caller
		want   int
	}{
		{&auth.Caller{Name: "a", Role: auth.RoleTake}, 204},
		{&auth.Caller{Name: "a", Role: auth.RoleTake}, 409},
		{&auth.Caller{Name: "b", Role: auth.RoleTake, Limits: []string{"api*"}}, 204},
		{&auth.Caller{Name: "c", Role: auth.RoleTake, Limits: []string{"other"}}, 403},
		{nil, 204},
	} {
		r := request("GET", "")
		if w := g.ask(r.WithContext(auth.With(r.Context(), tt.caller))); w.Code != tt.want {
			t.Errorf("%d: status %d, want %d; %s", i, w.Code, tt.want, w.Body)
		}
	}
	if used := g.used(t, "api", "k"); used != "3" {
		t.Errorf("%s is used", used)
	}
}
