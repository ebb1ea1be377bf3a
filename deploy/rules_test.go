package deploy_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
)

// byRules returns pairs of texts: the query that says what is charged, and what remains of it where rules do; and where
// nginx passes the header on by which a response settles a charge, as docs/rules.md says.
func byRules(set setting) []string {
	if set.rules == "" {
		return nil
	}
	pairs := []string{
		"?limit=api&by=ip&deny=403", "?deny=403", "?limit=api&by=ip", "?", "http-request set-query limit=api&by=ip", "",
	}
	if strings.Contains(set.rules, "settle:") {
		pairs = append(pairs, `proxy_set_header Headgate-Settle "";`,
			"auth_request_set $settle $upstream_http_headgate_settle;\nproxy_set_header Headgate-Settle $settle;\n")
	}
	return pairs
}

// twoLimits charges a compound key more than 1 for a request, and one key of all users beside it.
const twoLimits = `  api-all: sliding-log 13/1h
rules:
- name: users
  method: GET
  path: /users/{user}/
  limits:
  - {limit: api, key: ["path:user", ip], cost: 5}
  - {limit: api-all, key: "text:all"}
`

// TestRulesDecide: four requests of a user use up the 20 of api, each user has a key of its own, all users
// share api-all, and what is charged nothing passes.
func TestRulesDecide(t *testing.T) {
	tier.Engines(t)
	each(t, func(t *testing.T, p *proxy) {
		s := newSite(t, p, setting{rules: twoLimits})
		for _, step := range []struct {
			method, path string
			requests     int
			want         map[int]int
		}{
			{http.MethodGet, "/users/alice/", 6, map[int]int{200: 4, 429: 2}},
			{http.MethodGet, "/users/bob/x", 5, map[int]int{200: 4, 429: 1}},
			{http.MethodPost, "/users/alice/", 3, map[int]int{200: 3}},
			{http.MethodGet, "/other", 3, map[int]int{200: 3}},
			{http.MethodGet, "//users//carol/?limit=api&key=x", 5, map[int]int{200: 4, 429: 1}},
			{http.MethodGet, "/users/dave/", 3, map[int]int{200: 1, 429: 2}}, // of 13 for all
		} {
			got := map[int]int{}
			for range step.requests {
				a, err := s.ask(step.method, step.path, "")
				if err != nil {
					t.Fatal(err)
				}
				got[a.status]++
				if a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") == "" {
					t.Errorf("%s %s: no Retry-After", step.method, step.path)
				}
			}
			if !maps.Equal(got, step.want) {
				t.Errorf("%s %s: got %v, want %v", step.method, step.path, got, step.want)
			}
		}
	})
}

// bySize charges the length of a body.
const bySize = `  api-bytes: sliding-log 20/1h
rules:
- name: uploads
  method: [POST, PUT]
  path: /files/
  limits:
  - {limit: api-bytes, key: ip, cost: size}
`

// TestASizeIsCharged: two bodies of ten bytes use up a limit of 20 bytes. Traefik cannot say the length, and the rule
// refuses what does not say it.
func TestASizeIsCharged(t *testing.T) {
	tier.Engines(t)
	each(t, func(t *testing.T, p *proxy) {
		s := newSite(t, p, setting{rules: bySize})
		want := map[int]int{200: 2, 429: 1}
		if p.folder == "traefik" {
			want = map[int]int{400: 3}
		}
		got := map[int]int{}
		for range 3 {
			a, err := s.ask(http.MethodPut, "/files/x", "0123456789", "X-Forwarded-Content-Length: 0")
			if err != nil {
				t.Fatal(err)
			}
			got[a.status]++
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// byUser has a key that a request may state once.
const byUser = `rules:
- name: users
  path: /users/
  limits:
  - {limit: api, key: "query:user"}
`

// TestAWrongRequestIsToldSo: a request that states its key twice gets Headgate's 400 and goes no further. It is not
// said that Headgate is away, and what lets requests pass while it is does not let this one pass.
func TestAWrongRequestIsToldSo(t *testing.T) {
	tier.Engines(t)
	each(t, wrongRequest)
}

// TestAWrongRequestIsToldSoNginx is of the one proxy that every run of the tests has.
func TestAWrongRequestIsToldSoNginx(t *testing.T) {
	t.Parallel()
	wrongRequest(t, &proxies[0])
}

func wrongRequest(t *testing.T, p *proxy) {
	t.Helper()
	for _, open := range []bool{false, true} {
		if open && !p.opens {
			continue
		}
		s := newSite(t, p, setting{rules: byUser, open: open})
		for path, want := range map[string]int{"/users/?user=a": 200, "/users/?user=a&user=b": 400} {
			if a, err := s.ask(http.MethodGet, path, ""); err != nil || a.status != want {
				t.Errorf("open %v: %s gets status %d, %v; want %d", open, path, a.status, err, want)
			}
		}
		if n := len(s.application.take()); n != 1 {
			t.Errorf("open %v: %d requests reached the application", open, n)
		}
	}
}

// settled charges an estimate of 5, and the body of the response has the cost.
const settled = `rules:
- name: model
  path: /model
  limits:
  - {limit: api, key: ip, cost: 5, settle: "json:usage.total_tokens"}
`

// TestAnApplicationSettles: the application behind nginx gets what Headgate says about settling, and
// nothing that an end user says; it sends that back with the response over a connection of its own.
func TestAnApplicationSettles(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s := newSite(t, &proxies[0], setting{rules: settled})
	limit, err := headgate.Named("api")
	if err != nil {
		t.Fatal(err)
	}
	left := func(want int64) {
		t.Helper()
		d, err := s.limiter.Check(t.Context(), headgate.Charge{Limit: limit, Key: "127.0.0.1"})
		if err != nil || d.Remaining != want {
			t.Errorf("%v are left, %v; want %v", d.Remaining, err, want)
		}
	}
	a, err := s.ask(http.MethodPost, "/model", "", "Headgate-Settle: forged")
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("%+v, %v", a, err)
	}
	left(15)
	got := s.application.take()[0].Values("Headgate-Settle")
	if len(got) != 1 || got[0] == "forged" || got[0] == "" {
		t.Fatalf("the application got %q", got)
	}
	for _, step := range []struct {
		name, token, receipt, body string
		status                     int
		left                       int64
	}{
		{"an unknown token", "no", got[0], `{"usage":{"total_tokens":1}}`, http.StatusUnauthorized, 15},
		{"what is no receipt", token, "forged", `{"usage":{"total_tokens":1}}`, http.StatusBadRequest, 15},
		{"a response without the cost", token, got[0], `{"usage":{}}`, http.StatusBadRequest, 15},
		{"a response with the cost", token, got[0], `{"usage":{"total_tokens":2}}`, http.StatusOK, 18},
		{"the same again", token, got[0], `{"usage":{"total_tokens":2}}`, http.StatusOK, 18},
	} {
		direct := site{url: "http://" + s.addr}
		a, err := direct.ask(http.MethodPost, "/v1/auth/settle", step.body, "Headgate-Token: "+step.token,
			"Headgate-Settle: "+step.receipt, "Content-Type: application/json")
		if err != nil || a.status != step.status {
			t.Errorf("%s: %+v, %v; want status %d", step.name, a, err, step.status)
		}
		left(step.left)
	}
}
