// Package deploy_test starts the configurations of this folder with the real proxies.
package deploy_test

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// eachProxy runs a test with each proxy.
func eachProxy(t *testing.T, test func(t *testing.T, p *proxy)) {
	t.Helper()
	eachProxyThat(t, func(*proxy) bool { return true }, test)
}

// eachProxyThat runs a test with each proxy that can do what the test is about.
func eachProxyThat(t *testing.T, can func(*proxy) bool, test func(t *testing.T, p *proxy)) {
	t.Helper()
	t.Parallel()
	for i := range proxies {
		if !can(&proxies[i]) {
			continue
		}
		t.Run(proxies[i].folder, func(t *testing.T) {
			t.Parallel()
			test(t, &proxies[i])
		})
	}
}

func canOpen(p *proxy) bool { return p.canOpen }

// sendMany sends n requests, eight at a time, and returns the answers by their status.
func sendMany(t *testing.T, s *site, n int, headers func(i int) []string) map[int][]answer {
	t.Helper()
	var mu sync.Mutex
	answers := map[int][]answer{}
	indices := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range indices {
				a, err := s.send(http.MethodGet, fmt.Sprintf("/page?n=%d", i), "", headers(i)...)
				if err != nil {
					t.Errorf("request %d: %v", i, err)
				}
				mu.Lock()
				answers[a.status] = append(answers[a.status], a)
				mu.Unlock()
			}
		})
	}
	for i := range n {
		indices <- i
	}
	close(indices)
	workers.Wait()
	return answers
}

func countStatuses(byStatus map[int][]answer) map[int]int {
	counts := map[int]int{}
	for status, answers := range byStatus {
		counts[status] = len(answers)
	}
	return counts
}

func noHeaders(int) []string { return nil }

// TestExactlyTheLimitPasses checks that 20 of 200 requests reach the application, and that the others get 429 with
// Retry-After.
func TestExactlyTheLimitPasses(t *testing.T) {
	tier.Engines(t)
	eachProxy(t, testExactlyTheLimitPasses)
}

// TestExactlyTheLimitPassesNginx runs the test with nginx alone, in every run of the tests.
func TestExactlyTheLimitPassesNginx(t *testing.T) {
	t.Parallel()
	testExactlyTheLimitPasses(t, &proxies[0])
}

func testExactlyTheLimitPasses(t *testing.T, p *proxy) {
	t.Helper()
	s := newSite(t, p, siteConfig{})
	answers := sendMany(t, s, 200, noHeaders)
	got, want := countStatuses(answers), map[int]int{200: limitPerClient, 429: 200 - limitPerClient}
	if !maps.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if n := len(s.application.take()); n != limitPerClient {
		t.Errorf("got %d requests at the application, want %d", n, limitPerClient)
	}
	for _, a := range answers[429] {
		wait, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil || wait < 3000 || wait > 3600 {
			t.Errorf("got Retry-After %q, want 3000 to 3600", a.header["Retry-After"])
		}
		if kind := a.header.Get("Content-Type"); kind != "application/problem+json" ||
			!strings.Contains(a.body, "#quota-exceeded") {
			t.Errorf("got %s: %s, want a problem of type quota-exceeded", kind, a.body)
		}
		if remaining(t, a.header) != 0 {
			t.Errorf("got RateLimit %q, want 0 remaining", a.header["Ratelimit"])
		}
	}
	remainings := map[int64]bool{}
	for _, a := range answers[200] {
		if p.tellsRemaining {
			remainings[remaining(t, a.header)] = true
		}
	}
	if p.tellsRemaining && len(remainings) != limitPerClient {
		t.Errorf("got the remaining amounts %v, want each once", remainings)
	}
}

// remaining returns the remaining amount in the header RateLimit. It fails the test and returns -1 if that is invalid.
func remaining(t *testing.T, h http.Header) int64 {
	t.Helper()
	policy, err := httpsfv.UnmarshalList(h["Ratelimit-Policy"])
	list, listErr := httpsfv.UnmarshalList(h["Ratelimit"])
	if err != nil || listErr != nil || len(list) != 1 || len(policy) != 1 {
		t.Errorf("RateLimit: %q, RateLimit-Policy: %q", h["Ratelimit"], h["Ratelimit-Policy"])
		return -1
	}
	item := list[0].(httpsfv.Item)
	r, _ := item.Params.Get("r")
	q, _ := policy[0].(httpsfv.Item).Params.Get("q")
	if n, ok := r.(int64); ok && item.Value == "api" && q == int64(limitPerClient) {
		return n
	}
	t.Errorf("RateLimit: %q, RateLimit-Policy: %q", h["Ratelimit"], h["Ratelimit-Policy"])
	return -1
}

// TestAnEndUserCannotChooseWhatIsCharged sends 1,000 requests with one Idempotency-Key and other headers that could
// make Headgate charge another key, limit or request.
func TestAnEndUserCannotChooseWhatIsCharged(t *testing.T) {
	tier.Engines(t)
	eachProxy(t, func(t *testing.T, p *proxy) {
		s := newSite(t, p, siteConfig{})
		got := countStatuses(sendMany(t, s, 1000, func(i int) []string {
			return []string{
				"Idempotency-Key: one", "Authorization: Bearer x", "Origin: https://evil.example", "Cookie: a=b",
				"Sec-Fetch-Site: cross-site", "Headgate-Token: theirs",
				fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i%250),
				fmt.Sprintf("X-Forwarded-For: 198.51.100.%d", i%250), fmt.Sprintf("X-Real-IP: 192.0.2.%d", i%250),
				fmt.Sprintf("Forwarded: for=192.0.2.%d", i%250), "X-Original-Uri: /other", "X-Original-Method: TRACE",
				"X-Forwarded-Uri: /other?limit=none&key=x", "X-Forwarded-Method: TRACE", "X-Forwarded-Host: other",
			}
		}))
		if want := map[int]int{200: limitPerClient, 429: 1000 - limitPerClient}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		checks := s.checks.take()
		if len(checks) != 1000 {
			t.Errorf("Headgate got %d requests, want 1000", len(checks))
		}
		for _, h := range checks {
			host := s.url[len("http://"):]
			if p.folder == "nginx" { // nginx passes on the name by which it has chosen its server, without the port
				host, _, _ = strings.Cut(host, ":")
			}
			for name, want := range map[string]string{
				"Authorization": "", "Cookie": "", "Idempotency-Key": "", "Headgate-Token": token, "X-Original-Uri": "",
				"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Method": "GET", "X-Forwarded-Host": host,
			} {
				if got := strings.Join(h[name], "|"); got != want {
					t.Fatalf("Headgate gets %s: %q, want %q", name, got, want)
				}
			}
			if uri := h["X-Forwarded-Uri"]; len(uri) != 1 || !strings.HasPrefix(uri[0], "/page?n=") {
				t.Fatalf("Headgate gets X-Forwarded-Uri: %q", uri)
			}
		}
		for _, h := range s.application.take() {
			if h.Get("Authorization") != "Bearer x" || h.Get("Idempotency-Key") != "one" || h.Get("Cookie") != "a=b" {
				t.Errorf("the application gets %v", h)
			}
			if got := h["Headgate-Token"]; len(got) > 0 {
				t.Errorf("the application gets the token %q", got)
			}
		}
	})
}

// TestRequestsReachTheApplicationUnchanged sends requests with all methods and with bodies. The answers of the
// application pass unchanged too, even with an error status. Beyond the limit any method gets 429.
func TestRequestsReachTheApplicationUnchanged(t *testing.T) {
	tier.Engines(t)
	eachProxy(t, func(t *testing.T, p *proxy) {
		s := newSite(t, p, siteConfig{})
		longBody := strings.Repeat("0123456789", 5_000)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			body := ""
			if method[0] == 'P' {
				body = longBody
			}
			a, err := s.send(method, "/a%20b?c=d", body)
			if err != nil || a.status != http.StatusOK || a.body != body {
				t.Errorf("%s: got status %d, a body of %d bytes, %v, want 200 and the body of the request", method, a.status, len(a.body), err)
			}
			checks := s.checks.take()
			if len(checks) != 1 || checks[0].Get("X-Forwarded-Method") != method ||
				checks[0].Get("X-Forwarded-Uri") != "/a%20b?c=d" {
				t.Errorf("%s: Headgate got %v, want one request", method, checks)
			}
		}
		for path, want := range map[string]int{"/forbidden": 403, "/broken": 500} {
			if a, err := s.send("GET", path, ""); err != nil || a.status != want {
				t.Errorf("%s: got status %d, %v, want %d", path, a.status, err, want)
			}
		}
		s.reset(t)
		sendMany(t, s, limitPerClient, noHeaders)
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			body := ""
			if method == "POST" { // a short body, since the answer may come before a long one is sent
				body = "body"
			}
			if a, err := s.send(method, "/", body); err != nil || a.status != http.StatusTooManyRequests {
				t.Errorf("%s beyond the limit: got status %d, %v, want 429", method, a.status, err)
			}
		}
	})
}

// TestProxiesRefuseWhileHeadgateIsAway checks the status while Headgate is stopped, and while it is silent.
func TestProxiesRefuseWhileHeadgateIsAway(t *testing.T) {
	tier.Engines(t)
	eachProxy(t, func(t *testing.T, p *proxy) {
		s := newSite(t, p, siteConfig{shortTimeouts: true})
		check := func(when string) {
			t.Helper()
			for _, body := range []string{"", "body"} {
				method := http.MethodGet
				if body != "" {
					method = http.MethodPost
				}
				a, err := s.send(method, "/", body)
				if err != nil || a.status != p.awayStatus || p.awayStatus == 503 && a.header.Get("Retry-After") != "1" {
					t.Errorf("%s: %s gets status %d, %v, %v, want %d", when, method, a.status, a.header, err, p.awayStatus)
				}
			}
			if n := len(s.application.take()); n > 0 {
				t.Errorf("%s: got %d requests at the application, want 0", when, n)
			}
		}
		s.stop()
		check("stopped")
		if !p.waitsLong {
			checks := s.listenSilently(t)
			check("silent")
			await.Until(t, "two requests to Headgate", func() bool { return checks.Load() >= 2 })
			if n := checks.Load(); n != 2 { // a retry could charge twice
				t.Errorf("a silent Headgate got %d checks of 2 requests, want 2", n)
			}
		}
	})
}

// TestOpenProxiesWhileHeadgateIsAway makes the changes that a configuration describes. Then requests pass while
// Headgate is away, and limits hold while it answers.
func TestOpenProxiesWhileHeadgateIsAway(t *testing.T) {
	tier.Engines(t)
	eachProxyThat(t, canOpen, func(t *testing.T, p *proxy) {
		s := newSite(t, p, siteConfig{open: true, shortTimeouts: true})
		// On a busy machine Headgate may miss the time limit, and more requests pass.
		await.Until(t, "a request that is refused", func() bool {
			got := countStatuses(sendMany(t, s, 100, noHeaders))
			if got[200]+got[429] != 100 {
				t.Fatalf("got %v, want only 200 and 429", got)
			}
			return got[429] > 0
		})
		check := func(when string) {
			t.Helper()
			s.application.take()
			for method, body := range map[string]string{"GET": "", "POST": "body"} {
				if a, err := s.send(method, "/", body); err != nil || a.status != http.StatusOK || a.body != body {
					t.Errorf("%s: %s gets status %d, %q, %v, want 200", when, method, a.status, a.body, err)
				}
			}
			if got := s.application.take(); len(got) != 2 {
				t.Errorf("%s: %d requests reached the application: %v", when, len(got), got)
			}
		}
		s.stop()
		check("stopped")
		s.listenSilently(t)
		check("silent")
	})
}

// TestLargeHeadersDoNotBypassTheLimit checks that a proxy refuses headers that are too large for Headgate.
func TestLargeHeadersDoNotBypassTheLimit(t *testing.T) {
	tier.Engines(t)
	eachProxy(t, func(t *testing.T, p *proxy) { testLargeHeaders(t, p, siteConfig{}) })
}

// TestLargeHeadersDoNotBypassAnOpenProxy checks that headers that are too large do not make Headgate count as away.
func TestLargeHeadersDoNotBypassAnOpenProxy(t *testing.T) {
	tier.Engines(t)
	eachProxyThat(t, canOpen, func(t *testing.T, p *proxy) { testLargeHeaders(t, p, siteConfig{open: true}) })
}

func testLargeHeaders(t *testing.T, p *proxy, cfg siteConfig) {
	t.Helper()
	s := newSite(t, p, cfg)
	sendMany(t, s, limitPerClient, noHeaders)
	s.application.take()
	var longHeaders, manyHeaders []string
	for i := range 4 {
		longHeaders = append(longHeaders, fmt.Sprintf("X-Long-%d: %s", i, strings.Repeat("x", 7_500)))
	}
	for i := range 120 {
		manyHeaders = append(manyHeaders, fmt.Sprintf("X-Many-%d: x", i))
	}
	for name, headers := range map[string][]string{"long": longHeaders, "many": manyHeaders} {
		for range 5 {
			a, err := s.send(http.MethodGet, "/", "", headers...)
			if err != nil && p.folder == "haproxy" { // haproxy may close the connection before it has all headers
				continue
			}
			if err != nil || a.status < 400 {
				t.Errorf("%s headers: got status %d, %v, want 400 or more", name, a.status, err)
			}
			if want := map[string]int{"traefik": 429}[p.folder]; want != 0 && a.status != want { // it passes none on
				t.Errorf("%s headers: got status %d, want %d", name, a.status, want)
			}
		}
	}
	if n := len(s.application.take()); n > 0 {
		t.Errorf("got %d requests at the application, want 0", n)
	}
}

// TestOverAUnixSocket checks the limit over a Unix socket, whose permissions take the place of a token.
func TestOverAUnixSocket(t *testing.T) {
	tier.Engines(t)
	eachProxyThat(t, func(p *proxy) bool { return p.unixPrefix != "" }, func(t *testing.T, p *proxy) {
		s := newSite(t, p, siteConfig{unix: true})
		got := countStatuses(sendMany(t, s, 50, noHeaders))
		if want := map[int]int{200: limitPerClient, 429: 50 - limitPerClient}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// TestUnknownTokenLetsNothingThrough checks that no request passes, and that no answer asks the end user for a token.
func TestUnknownTokenLetsNothingThrough(t *testing.T) {
	tier.Engines(t)
	eachProxy(t, func(t *testing.T, p *proxy) {
		s := newSite(t, p, siteConfig{token: auth.NewToken()})
		for _, header := range []string{"X: y", "Authorization: Bearer " + token, "Headgate-Token: " + token} {
			a, err := s.send(http.MethodGet, "/", "", header)
			if err != nil || a.status != p.wrongTokenStatus || len(a.header["Www-Authenticate"]) > 0 {
				t.Errorf("%.20s: got status %d, %v, %v, want %d", header, a.status, a.header, err, p.wrongTokenStatus)
			}
		}
		if n := len(s.application.take()); n > 0 {
			t.Errorf("got %d requests at the application, want 0", n)
		}
	})
}
