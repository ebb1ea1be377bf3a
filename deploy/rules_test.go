package deploy_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
)

// ruleReplacements returns pairs of old and new text for a proxy's configuration. They remove the query with the limit,
// since rules decide, and, for nginx, pass the header by which a response settles, as docs/rules.md says.
func ruleReplacements(cfg siteConfig) []string {
	if cfg.rules == "" {
		return nil
	}
	pairs := []string{
		"?limit=api&by=ip&deny=403", "?deny=403", "?limit=api&by=ip", "?", "http-request set-query limit=api&by=ip", "",
	}
	if strings.Contains(cfg.rules, "settle:") {
		pairs = append(pairs, `proxy_set_header Headgate-Settle "";`,
			"auth_request_set $settle $upstream_http_headgate_settle;\nproxy_set_header Headgate-Settle $settle;\n")
	}
	return pairs
}

// twoLimitRules charge a compound key with a cost of 5, and one key for all users.
const twoLimitRules = `  api-all: sliding-log 13/1h
rules:
- name: users
  method: GET
  path: /users/{user}/
  limits:
  - {limit: api, key: ["path:user", ip], cost: 5}
  - {limit: api-all, key: "text:all"}
`

// TestRulesDecide checks that four requests of a user use up the 20 of api, that each user has a key of its own, that
// all users share api-all, and that requests without a rule pass.
func TestRulesDecide(t *testing.T) {
	tier.Engines(t)
	eachProxy(t, func(t *testing.T, p *proxy) {
		s := newSite(t, p, siteConfig{rules: twoLimitRules})
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
			{http.MethodGet, "/users/dave/", 3, map[int]int{200: 1, 429: 2}}, // the last of 13 for all users
		} {
			got := map[int]int{}
			for range step.requests {
				a, err := s.send(step.method, step.path, "")
				if err != nil {
					t.Fatal(err)
				}
				got[a.status]++
				if a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") == "" {
					t.Errorf("%s %s: got 429 without Retry-After", step.method, step.path)
				}
			}
			if !maps.Equal(got, step.want) {
				t.Errorf("%s %s: got %v, want %v", step.method, step.path, got, step.want)
			}
		}
	})
}

// sizeRules charge the length of a body.
const sizeRules = `  api-bytes: sliding-log 20/1h
rules:
- name: uploads
  method: [POST, PUT]
  path: /files/
  limits:
  - {limit: api-bytes, key: ip, cost: size}
`

// TestRulesChargeTheBodySize checks that two bodies of ten bytes use up a limit of 20 bytes. Traefik cannot pass the
// length on, and the rule refuses requests without it.
func TestRulesChargeTheBodySize(t *testing.T) {
	tier.Engines(t)
	eachProxy(t, func(t *testing.T, p *proxy) {
		s := newSite(t, p, siteConfig{rules: sizeRules})
		want := map[int]int{200: 2, 429: 1}
		if p.folder == "traefik" {
			want = map[int]int{400: 3}
		}
		got := map[int]int{}
		for range 3 {
			a, err := s.send(http.MethodPut, "/files/x", "0123456789", "X-Forwarded-Content-Length: 0")
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

// userRules have a key that a request may state only once.
const userRules = `rules:
- name: users
  path: /users/
  limits:
  - {limit: api, key: "query:user"}
`

// TestInvalidRequestGets400 checks that a request that states its key twice gets Headgate's 400 and does not reach the
// application, even with a proxy that lets requests pass while Headgate is away.
func TestInvalidRequestGets400(t *testing.T) {
	tier.Engines(t)
	eachProxy(t, testInvalidRequest)
}

// TestInvalidRequestGets400Nginx runs the test with nginx alone, in every run of the tests.
func TestInvalidRequestGets400Nginx(t *testing.T) {
	t.Parallel()
	testInvalidRequest(t, &proxies[0])
}

func testInvalidRequest(t *testing.T, p *proxy) {
	t.Helper()
	for _, open := range []bool{false, true} {
		if open && !p.canOpen {
			continue
		}
		s := newSite(t, p, siteConfig{rules: userRules, open: open})
		for path, want := range map[string]int{"/users/?user=a": 200, "/users/?user=a&user=b": 400} {
			if a, err := s.send(http.MethodGet, path, ""); err != nil || a.status != want {
				t.Errorf("open %v: %s gets status %d, %v; want %d", open, path, a.status, err, want)
			}
		}
		if n := len(s.application.take()); n != 1 {
			t.Errorf("open %v: got %d requests at the application, want 1", open, n)
		}
	}
}

// settlingRules charge an estimate of 5. The body of the response has the actual cost.
const settlingRules = `rules:
- name: model
  path: /model
  limits:
  - {limit: api, key: ip, cost: 5, settle: "json:usage.total_tokens"}
`

// TestApplicationSettlesByReceipt checks that the application behind nginx gets Headgate's receipt in the header
// Headgate-Settle, not the header of an end user, and can post the receipt with its response to Headgate.
func TestApplicationSettlesByReceipt(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	s := newSite(t, &proxies[0], siteConfig{rules: settlingRules})
	limit, err := headgate.Named("api")
	if err != nil {
		t.Fatal(err)
	}
	checkRemaining := func(want int64) {
		t.Helper()
		d, err := s.limiter.Check(t.Context(), headgate.Charge{Limit: limit, Key: "127.0.0.1"})
		if err != nil || d.Remaining != want {
			t.Errorf("got %v remaining, %v; want %v", d.Remaining, err, want)
		}
	}
	a, err := s.send(http.MethodPost, "/model", "", "Headgate-Settle: forged")
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("got %+v, %v, want 200", a, err)
	}
	checkRemaining(15)
	receipts := s.application.take()[0].Values("Headgate-Settle")
	if len(receipts) != 1 || receipts[0] == "forged" || receipts[0] == "" {
		t.Fatalf("the application got %q, want one receipt", receipts)
	}
	for _, step := range []struct {
		name, token, receipt, body string
		status                     int
		remaining                  int64
	}{
		{"an unknown token", "no", receipts[0], `{"usage":{"total_tokens":1}}`, http.StatusUnauthorized, 15},
		{"a forged receipt", token, "forged", `{"usage":{"total_tokens":1}}`, http.StatusBadRequest, 15},
		{"a response without the cost", token, receipts[0], `{"usage":{}}`, http.StatusBadRequest, 15},
		{"a response with the cost", token, receipts[0], `{"usage":{"total_tokens":2}}`, http.StatusOK, 18},
		{"the same again", token, receipts[0], `{"usage":{"total_tokens":2}}`, http.StatusOK, 18},
	} {
		direct := site{url: "http://" + s.addr}
		a, err := direct.send(http.MethodPost, "/v1/auth/settle", step.body, "Headgate-Token: "+step.token,
			"Headgate-Settle: "+step.receipt, "Content-Type: application/json")
		if err != nil || a.status != step.status {
			t.Errorf("%s: got %+v, %v; want status %d", step.name, a, err, step.status)
		}
		checkRemaining(step.remaining)
	}
}
