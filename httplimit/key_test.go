package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/law"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	proxied := httplimit.ByProxiedIP(
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::ffff:172.16.0.0/108"))
	header, cookie := httplimit.ByHeader("Api-Key"), httplimit.ByCookie("user")
	headerOrIP := httplimit.FirstOf(header, httplimit.ByIP)
	headerAndCookie := httplimit.JoinKeys(header, cookie)
	for i, tt := range []struct {
		by     httplimit.KeyFunc
		remote string
		lines  string
		want   string // "400" and "500" are statuses
	}{
		{httplimit.ByIP, "192.0.2.7:1", "X-Forwarded-For: 203.0.113.9", "192.0.2.7"},
		{httplimit.ByIP, "[2001:db8:1:2:3::4]:1", "", "2001:db8:1:2::/64"},
		{httplimit.ByIP, "[::ffff:192.0.2.7]:1", "", "192.0.2.7"},
		{httplimit.ByIP, "[64:ff9b::c000:207]:1", "", "192.0.2.7"},
		{httplimit.ByNetwork(56), "[2001:db8:1:2ff:3::4]:1", "", "2001:db8:1:200::/56"},
		{httplimit.ByNetwork(56), "192.0.2.7:1", "", "192.0.2.7"},
		{
			httplimit.ByNetwork(128, netip.MustParsePrefix("10.0.0.0/8")), "10.0.0.1:1", "X-Forwarded-For: 2001:db8:1:2:3::4",
			"2001:db8:1:2:3::4",
		},
		{httplimit.ByIP, "@", "", "500"},
		{httplimit.ByIP, "", "X-Forwarded-For: 203.0.113.9", "500"},
		{proxied, "192.0.2.7:1", "X-Forwarded-For: 203.0.113.9", "192.0.2.7"}, // from no proxy
		{proxied, "10.0.0.1:1", "X-Forwarded-For: 203.0.113.9", "203.0.113.9"},
		{proxied, "172.16.3.4:1", "X-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.9.9.9", "203.0.113.9"},
		{proxied, "10.0.0.1:1", "X-Forwarded-For: 6.6.6.6\nX-Forwarded-For: 2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{proxied, "10.0.0.1:1", "X-Forwarded-For: 203.0.113.9, nonsense", "400"},
		{proxied, "10.0.0.1:1", "X-Forwarded-For: " + strings.Repeat("10.0.0.2,", 1000), "400"},
		{proxied, "10.0.0.1:1", "", "10.0.0.1"},
		{proxied, "@", "X-Forwarded-For: 203.0.113.9", "500"},
		{httplimit.ByProxiedIP(), "10.0.0.1:1", "X-Forwarded-For: 203.0.113.9", "10.0.0.1"},
		{header, "", "Api-Key: a", "a"},
		{header, "", "", "400"},
		{header, "", "Api-Key:", "400"},
		{header, "", "Api-Key: a\nApi-Key: b", "400"},
		{header, "", "Api-Key: \xff", "sha256:qBAK5qoZQNC2Y7sxzUZhQuu9vVGHExuS2TgYmHgy64k"},
		{header, "", "Api-Key: " + strings.Repeat("x", 600), "sha256:UTCzPmuH-_UxbtkEnpiSTrEQgAvLqq2AUPZC-6bfN8k"},
		{cookie, "", "Cookie: a=b; user=eve", "eve"},
		{cookie, "", "Cookie: a=b", "400"},
		{cookie, "", "Cookie: user=eve; user=bob", "400"},
		{cookie, "", "Cookie: user=eve; user=eve\nCookie: user=eve", "eve"},
		{httplimit.Optional(header), "", "", "1|"},
		{httplimit.Optional(header), "", "Api-Key: a", "0|a"},
		{headerOrIP, "192.0.2.7:1", "Api-Key: 192.0.2.8", "0|192.0.2.8"},
		{headerOrIP, "192.0.2.7:1", "", "1|192.0.2.7"},
		{headerOrIP, "192.0.2.7:1", "Api-Key: a\nApi-Key: b", "400"}, // not the address, as the handler may use one of the values
		{httplimit.Optional(header), "", "Api-Key: a\nApi-Key: b", "400"},
		{headerOrIP, "@", "", "500"},
		{httplimit.FirstOf(), "", "", "400"},
		{httplimit.FirstOf(header, cookie), "", "", "400"},
		{headerAndCookie, "", "Api-Key: a|b\nCookie: user=c", `a\|b|c`},
		{headerAndCookie, "", "Api-Key: a\nCookie: user=b|c", `a|b\|c`},
		{headerAndCookie, "", "Api-Key: a", "400"},
		{httplimit.ByConst("all"), "", "", "all"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tt.remote
		for name, values := range headerOf(tt.lines) {
			r.Header[name] = values
		}
		l := &recordingLimiter{HandlerLimiter: memoryLimiter()}
		h := mustHandler(t, l, httplimit.HandlerConfig{
			OnError: func(*http.Request, error) {},
			Charges: []httplimit.Charge{{Limit: headgate.MustParse("fixed-window 1/1h from-first"), Key: tt.by}},
		})(respondWith(204))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := ""
		switch {
		case w.Code == 400, w.Code == 500:
			got = map[int]string{400: "400", 500: "500"}[w.Code]
			if len(l.charges) > 0 || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/problem+json") {
				t.Errorf("row %d: got charges %v, %v; want none and a problem", i, l.charges, w.Header())
			}
		case len(l.charges) == 1:
			got = l.charges[0].Key
		}
		if got != tt.want {
			t.Errorf("row %d: got key %.200q, want %q", i, got, tt.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("ByProxiedIP with the zero Prefix did not panic")
		}
	}()
	httplimit.ByProxiedIP(netip.Prefix{})
}

// recordingLimiter records the charges of Take.
type recordingLimiter struct {
	httplimit.HandlerLimiter
	charges []headgate.Charge
}

func (l *recordingLimiter) Take(ctx context.Context, charges ...headgate.Charge) (headgate.Decision, error) {
	l.charges = append(l.charges, charges...)
	return l.HandlerLimiter.Take(ctx, charges...)
}

func TestPathValues(t *testing.T) {
	t.Parallel()
	l := &recordingLimiter{HandlerLimiter: memoryLimiter()}
	limit := headgate.MustParse("fixed-window 1/1h from-first")
	mux := http.NewServeMux()
	mux.Handle("POST /users/{id}", httplimit.Handler(l, limit, httplimit.ByPathValue("id"))(respondWith(204)))
	mux.Handle("POST /files/{path...}", httplimit.Handler(l, limit, httplimit.ByPathValue("path"))(respondWith(204)))
	for path, want := range map[string]int{"/users/a%2Fb": 204, "/files/": 400} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
	if len(l.charges) != 1 || l.charges[0].Key != "a/b" {
		t.Errorf("got charges %v, want one of key a/b", l.charges)
	}
}

func TestCosts(t *testing.T) {
	t.Parallel()
	header, length := httplimit.CostByHeader("Cost"), httplimit.CostByLength(10)
	rows := httplimit.CostByJSONArray("batch.rows", 40)
	type request struct {
		lines   string
		body    string
		chunked bool
	}
	for i, tt := range []struct {
		by      httplimit.CostFunc
		request request
		want    string // "400" and "413" are statuses
	}{
		{header, request{}, "0"}, // no header: the zero Cost, which is 1
		{header, request{lines: "Cost: 2.5"}, "2.5"},
		{header, request{lines: "Cost: -1"}, "400"},
		{header, request{lines: "Cost: 0"}, "400"},
		{header, request{lines: "Cost: NaN"}, "400"},
		{header, request{lines: "Cost: 0.0"}, "400"},
		{header, request{lines: "Cost: -0"}, "400"},
		{header, request{lines: "Cost: 0.0000000001"}, "0.000000001"},
		{header, request{lines: "Cost: 2.5e1"}, "25"},
		{header, request{lines: "Cost:"}, "400"},
		{header, request{lines: "Cost: 1\nCost: 2"}, "400"},
		{header, request{lines: "Cost: " + strings.Repeat("9", 100_000)}, "400"},
		{length, request{}, "1"},
		{length, request{body: "0123456789"}, "10"},
		{length, request{body: "0123456789x"}, "413"},
		{length, request{chunked: true}, "1"},
		{length, request{body: "0123456789", chunked: true}, "10"},
		{length, request{body: "0123456789x", chunked: true}, "413"},
		{rows, request{body: `{"batch":{"a":1,"rows":[1,{},[3,4]]}}`}, "3"},
		{rows, request{body: `{"batch":{"rows":[]}}`, chunked: true}, "1"},
		{rows, request{body: `{"batch":{"rows":[1],"Rows":[1,2]}}`}, "400"},
		{rows, request{body: `{"batch":{"rows":[1]},"batch":{}}`}, "400"},
		{rows, request{body: `{"batch":{"rows":1}}`}, "400"},
		{rows, request{body: `{"batch":{"rows":[1,2`}, "400"},
		{rows, request{body: `[]`}, "400"},
		{rows, request{}, "400"},
		{rows, request{body: `{"batch":{"rows":[` + strings.Repeat("1,", 20) + `1]}}`}, "413"},
		{rows, request{body: `{"batch":{"rows":[` + strings.Repeat("1,", 20) + `1]}}`, chunked: true}, "413"},
		{httplimit.CostByJSONArray("", 40), request{body: `[1,2]`}, "2"},
	} {
		var body io.Reader = strings.NewReader(tt.request.body)
		if tt.request.chunked {
			body = io.MultiReader(body) // hides the length
		}
		r := httptest.NewRequest(http.MethodPost, "/", body)
		if tt.request.body == "" && !tt.request.chunked {
			r = httptest.NewRequest(http.MethodPost, "/", nil)
		}
		for name, values := range headerOf(tt.request.lines) {
			r.Header[name] = values
		}
		l, handlerBody := &recordingLimiter{HandlerLimiter: memoryLimiter()}, ""
		h := mustHandler(t, l, httplimit.HandlerConfig{Charges: []httplimit.Charge{{
			Limit: headgate.MustParse("fixed-window 1000/1h from-first"), Key: httplimit.ByIP, Cost: tt.by,
		}}})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			if handlerBody = string(text); err != nil || r.Body.Close() != nil {
				t.Errorf("row %d: the handler cannot read the body: %v", i, err)
			}
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := map[int]string{400: "400", 413: "413"}[w.Code]
		if w.Code == 200 {
			got = l.charges[0].Cost.String()
			if handlerBody != tt.request.body {
				t.Errorf("row %d: the handler reads %q, want %q", i, handlerBody, tt.request.body)
			}
		}
		if got != tt.want {
			t.Errorf("row %d: got %s, want %s (%d %s)", i, got, tt.want, w.Code, w.Body)
		}
	}
}

// FuzzRequest checks that every request is charged to two valid keys, or is answered with 400 or 413 without a call of
// OnError, or with 500 if its remote address is malformed.
func FuzzRequest(f *testing.F) {
	f.Add("192.0.2.1:1", "203.0.113.9", "key", "2.5", `{"rows":[1,2]}`)
	f.Add("10.0.0.1:1", "203.0.113.9, 10.0.0.2", "a|b", "", `{"rows":[]}`)
	f.Add("10.0.0.1:1", "x", "\x00", "-1", `{"rows":[1],"ROWS":[]}`)
	proxied := httplimit.ByProxiedIP(netip.MustParsePrefix("10.0.0.0/8"))
	limit := headgate.MustParse("fixed-window 1000/1h from-first")
	header := httplimit.ByHeader("Key")
	f.Fuzz(func(t *testing.T, remote, forwarded, key, cost, body string) {
		l := &recordingLimiter{HandlerLimiter: memoryLimiter()}
		hasServerError := false
		wrap, err := httplimit.NewHandler(l, httplimit.HandlerConfig{
			OnError: func(*http.Request, error) { hasServerError = true },
			Charges: []httplimit.Charge{
				{
					Limit: limit, Key: httplimit.FirstOf(httplimit.JoinKeys(header, proxied), proxied),
					Cost: httplimit.CostByHeader("Cost"),
				},
				{Limit: limit, Key: httplimit.ByCookie("c"), Cost: func(*http.Request) (headgate.Cost, error) {
					return headgate.Units(0), nil
				}},
				{Limit: limit, Key: httplimit.ByConst("rows"), Cost: httplimit.CostByJSONArray("rows", 100)},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.RemoteAddr = remote
		r.Header["X-Forwarded-For"], r.Header["Key"] = []string{forwarded}, []string{key}
		if cost != "" {
			r.Header["Cost"] = []string{cost}
		}
		w := httptest.NewRecorder()
		wrap(respondWith(204)).ServeHTTP(w, r)
		for _, c := range l.charges {
			if err := law.ValidKey(c.Key); err != nil {
				t.Errorf("key %q: %v", c.Key, err)
			}
		}
		switch _, addrErr := netip.ParseAddrPort(remote); w.Code {
		case 204, 429:
			if len(l.charges) != 2 {
				t.Errorf("got charges %v, want two", l.charges)
			}
		case 400, 413:
			if hasServerError {
				t.Error("OnError was called with an error of the client's")
			}
		case 500:
			if addrErr == nil {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// TestATruncatedBodyIsAnsweredWith400 checks that a truncated body is answered with 400, and charges nothing.
func TestATruncatedBodyIsAnsweredWith400(t *testing.T) {
	t.Parallel()
	l := &recordingLimiter{HandlerLimiter: memoryLimiter()}
	h := mustHandler(t, l, httplimit.HandlerConfig{Charges: []httplimit.Charge{{
		Limit: headgate.MustParse("fixed-window 1000/1h from-first"), Key: httplimit.ByIP, Cost: httplimit.CostByJSONArray("", 100),
	}}})(respondWith(204))
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("[1,"), failingReader{}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 400 || len(l.charges) > 0 {
		t.Errorf("got %d %s, charges %v; want 400, none", w.Code, w.Body, l.charges)
	}
}

// failingReader fails each read.
type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("body") }
