package forwardauth_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestRulesSeeTheOriginalRequest checks the request that X-Forwarded-* or X-Original-* describe; they may not differ.
func TestRulesSeeTheOriginalRequest(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	originals := []string{"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Host"}
	for _, tt := range []struct {
		headers                   []string
		method, host, path, query string // the original request; method empty: an error
		wantErr                   string
	}{
		{nil, "GET", "example.com", "/", "", ""},
		{[]string{"X-Forwarded-Method: POST", "X-Forwarded-Uri: /a%20b/?c=%20d"}, "POST", "example.com", "/a b/", "c=%20d", ""},
		{[]string{"X-Forwarded-Uri: https://other.example"}, "GET", "example.com", "/", "", ""},
		{[]string{"X-Forwarded-Uri: /a/../b"}, "", "", "", "", "is ambiguous"},
		{[]string{"X-Forwarded-Uri: /a/%2e%2e/b"}, "", "", "", "", "is ambiguous"},
		{[]string{"X-Forwarded-Uri: /a/."}, "", "", "", "", "is ambiguous"},
		{[]string{"X-Forwarded-Uri: /api/..%2fx"}, "", "", "", "", "is ambiguous"},
		{[]string{"X-Forwarded-Uri: /a%2Fb"}, "GET", "example.com", "/a" + rules.EncodedSlash + "b", "", ""},
		{[]string{`X-Forwarded-Uri: /a\b`}, "", "", "", "", "is ambiguous"},
		{[]string{"X-Forwarded-Uri: /a%5cb"}, "", "", "", "", "is ambiguous"},
		{[]string{"X-Forwarded-Uri: /a..b/.c/..."}, "GET", "example.com", "/a..b/.c/...", "", ""},
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
		original, err := g.Original(request("GET", "", tt.headers...))
		if tt.method == "" {
			if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("%q: %v; want %s", tt.headers, err, tt.wantErr)
			}
			continue
		}
		if err != nil || original.Method != tt.method || original.Host != tt.host || original.Path != tt.path ||
			original.Query != tt.query || original.Client.String() != "192.0.2.7" {
			t.Errorf("got %+v, %v, want %+v", original, err, tt)
		}
	}
	r := request("GET", "")
	r.Header.Add("X-Forwarded-Uri", "/other")
	if w := g.send(r); w.Code != http.StatusBadRequest {
		t.Errorf("a header twice: status %d, want 400", w.Code)
	}
	r = request("GET", "")
	r.RemoteAddr = "10.1.2.3:1"
	if w := g.send(r); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "not listed") {
		t.Errorf("a peer that is not listed: status %d, %s", w.Code, w.Body)
	}
}

// newGateWithRule returns a gate with a rule that charges the limit api for the header X-Key. members are further
// members of the rule, lines further lines of the config file.
func newGateWithRule(t *testing.T, s store.Store, members, lines string, c *forwardauth.Config) *gate {
	t.Helper()
	rule := "rules:\n- {name: r, limits: [{limit: api, key: 'header:X-Key'}]" + members + "}\n"
	return newGateWithRules(t, s, rule+lines, c)
}

// TestRulesAreApplied checks the answers for a key that has used up its limit, and for a new key.
func TestRulesAreApplied(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rule, lines         string
		query               string
		wantNew, wantUsedUp int    // status for the new key, and for the key that is used up
		charged             string // to the new key
		hasRateLimit        bool   // the answer has RateLimit
		wantLog             bool
	}{
		"no rule":           {", path: /other", "", "", 204, 204, "0", false, false},
		"enforce":           {"", "", "", 204, 429, "1", true, false},
		"enforce with deny": {"", "", "deny=401", 204, 401, "1", true, false},
		"shadow":            {", mode: shadow", "", "", 204, 204, "1", false, true},
		"advise":            {", mode: advise", "", "", 204, 204, "0", true, false},
		"advise with an id": {", mode: advise, id: 'header:X-Key'", "", "", 204, 204, "0", true, false},
		"allowed":           {", allow: [192.0.2.0/24]", "", "", 204, 204, "0", false, false},
		"blocked":           {", block: [192.0.2.0/24]", "", "", 403, 403, "0", false, false},
		"blocked with deny": {", block: [192.0.2.0/24]", "", "deny=401", 401, 401, "0", false, false},
		"blocked in shadow": {", block: [192.0.2.0/24], mode: shadow", "", "", 204, 204, "0", false, true},
		"blocked for all":   {"", "block: [192.0.2.7]\n", "", 403, 403, "0", false, false},
		"missing":           {", header: {X-Other: x}", "", "", 204, 204, "0", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			g := newGateWithRule(t, memory.New(nil), tt.rule, tt.lines, &forwardauth.Config{
				Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			for range 3 {
				g.send(request("GET", "limit=api&key=up"))
			}
			for key, want := range map[string]int{"fresh": tt.wantNew, "up": tt.wantUsedUp} {
				w := g.send(request("GET", tt.query, "X-Key: "+key))
				if w.Code != want || (w.Header().Get("RateLimit") != "") != tt.hasRateLimit ||
					(w.Header().Get("Retry-After") != "") != (key == "up" && tt.hasRateLimit && want != 204) {
					t.Errorf("%s: status %d, want %d; %v", key, w.Code, want, w.Header())
				}
			}
			if used := g.usedBy(t, "api", "fresh"); used != tt.charged {
				t.Errorf("%s is charged to the new key, want %s", used, tt.charged)
			}
			if got := log.String(); strings.Contains(got, "would be refused") != tt.wantLog {
				t.Errorf("got the log %s, want a refusal in it: %v", got, tt.wantLog)
			}
		})
	}
}

// TestInvalidRequestsAreLogged checks the lines about 400s: nginx turns them into 500, so its user sees no reason.
func TestInvalidRequestsAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g := newGateWithRule(t, memory.New(nil), "", "", &forwardauth.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if w := g.send(request("GET", "")); w.Code != http.StatusBadRequest {
		t.Errorf("got status %d, want 400", w.Code)
	}
	const want = `msg="refused with 400, and not charged" class="wrong r" rule=r method=GET error="header:X-Key: is missing`
	if got := log.String(); !strings.Contains(got, want) {
		t.Errorf("got the log %s, want %s", got, want)
	}
	// Invalid charges are logged too, such as a key that is charged twice under an id.
	g = newGateWithRules(t, memory.New(nil), "rules:\n- {name: twice, id: 'header:X-Id', limits: [{limit: api, key: ip}, "+
		"{limit: api, key: ip}]}\n", &forwardauth.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if w := g.send(request("GET", "", "X-Id: one")); w.Code != http.StatusBadRequest ||
		!strings.Contains(log.String(), `class="wrong twice"`) {
		t.Errorf("got status %d and the log %s, want 400 of the rule twice", w.Code, log.String())
	}
}

// TestAnIDIsUsedOnce checks that an id, which an end user may choose, makes further requests free only if allowed.
func TestAnIDIsUsedOnce(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string][]int{
		", id: 'header:X-Id'":                   {204, 409, 403},
		", id: 'header:X-Id', id_replays: true": {204, 204, 204},
	} {
		g := newGateWithRule(t, memory.New(nil), rule, "", nil)
		for i, query := range []string{"", "", "deny=403"} {
			if w := g.send(request("GET", query, "X-Key: k", "X-Id: one")); w.Code != want[i] {
				t.Errorf("%s, %d: status %d, want %d; %s", rule, i, w.Code, want[i], w.Body)
			}
		}
		if used := g.usedBy(t, "api", "k"); used != "1" {
			t.Errorf("%s: %s is used, want 1", rule, used)
		}
	}
}

// TestErrorsOfRules checks that an error refuses the request if the rule is enforced, and not in other modes.
func TestErrorsOfRules(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][2]int{"enforce": {503, 400}, "shadow": {204, 204}, "advise": {204, 204}} {
		g := newGateWithRule(t, failingStore{memory.New(nil), store.ErrUnavailable}, ", mode: "+mode, "", nil)
		if w := g.send(request("GET", "", "X-Key: k")); w.Code != want[0] {
			t.Errorf("%s: the store is away: status %d, want %d", mode, w.Code, want[0])
		}
		if w := g.send(request("GET", "")); w.Code != want[1] {
			t.Errorf("%s: a header is missing: status %d, want %d", mode, w.Code, want[1])
		}
		r := request("GET", "", "X-Key: k")
		r.Header.Set("X-Forwarded-Uri", "/a/../b")
		if w := g.send(r); w.Code != want[1] {
			t.Errorf("%s: an ambiguous path: status %d, want %d", mode, w.Code, want[1])
		}
	}
}

// TestCallersAreApart checks that a rule charges only limits that its caller may touch, under ids of the caller.
func TestCallersAreApart(t *testing.T) {
	t.Parallel()
	g := newGateWithRule(t, memory.New(nil), ", id: 'header:X-Id'", "", nil)
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
		r := request("GET", "", "X-Key: k", "X-Id: one")
		if w := g.send(r.WithContext(auth.WithCaller(r.Context(), tt.caller))); w.Code != tt.want {
			t.Errorf("%d: status %d, want %d; %s", i, w.Code, tt.want, w.Body)
		}
	}
	if used := g.usedBy(t, "api", "k"); used != "3" {
		t.Errorf("%s is used, want 3 by three callers", used)
	}
}
