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
	behind := httplimit.ByProxiedIP(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::ffff:172.16.0.0/108"))
	header, cookie := httplimit.ByHeader("Api-Key"), httplimit.ByCookie("user")
	first := httplimit.FirstOf(header, httplimit.ByIP)
	both := httplimit.JoinKeys(header, cookie)
	for i, tt := range []struct {
		by     httplimit.KeyFunc
		remote string
		lines  string
		want   string // "400" and "500" are answers
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
		{behind, "192.0.2.7:1", "X-Forwarded-For: 203.0.113.9", "192.0.2.7"}, // it is no proxy
		{behind, "10.0.0.1:1", "X-Forwarded-For: 203.0.113.9", "203.0.113.9"},
		{behind, "172.16.3.4:1", "X-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.9.9.9", "203.0.113.9"},
		{behind, "10.0.0.1:1", "X-Forwarded-For: 6.6.6.6\nX-Forwarded-For: 2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{behind, "10.0.0.1:1", "X-Forwarded-For: 203.0.113.9, nonsense", "400"},
		{behind, "10.0.0.1:1", "X-Forwarded-For: " + strings.Repeat("10.0.0.2,", 1000), "400"},
		{behind, "10.0.0.1:1", "", "10.0.0.1"},
		{behind, "@", "X-Forwarded-For: 203.0.113.9", "500"},
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
		{first, "192.0.2.7:1", "Api-Key: 192.0.2.8", "0|192.0.2.8"},
		{first, "192.0.2.7:1", "", "1|192.0.2.7"},
		{first, "192.0.2.7:1", "Api-Key: a\nApi-Key: b", "400"}, // not the address: the handler may take one of them
		{httplimit.Optional(header), "", "Api-Key: a\nApi-Key: b", "400"},
		{first, "@", "", "500"},
		{httplimit.FirstOf(), "", "", "400"},
		{httplimit.FirstOf(header, cookie), "", "", "400"},
		{both, "", "Api-Key: a|b\nCookie: user=c", `a\|b|c`},
		{both, "", "Api-Key: a\nCookie: user=b|c", `a|b\|c`},
		{both, "", "Api-Key: a", "400"},
		{httplimit.ByConst("all"), "", "", "all"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tt.remote
		for name, values := range fields(tt.lines) {
			r.Header[name] = values
		}
		l := &spy{HandlerLimiter: memoryLimiter()}
		h := must(t, l, httplimit.HandlerConfig{
			OnError: func(*http.Request, error) {},
			Charges: []httplimit.Charge{{Limit: headgate.MustParse("fixed-window 1/1h from-first"), Key: tt.by}},
		})(answers(204))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := ""
		switch {
		case w.Code == 400, w.Code == 500:
			got = map[int]string{400: "400", 500: "500"}[w.Code]
			if len(l.asked) > 0 || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/problem+json") {
				t.Errorf("%d: asked %v; %v", i, l.asked, w.Header())
			}
		case len(l.asked) == 1:
			got = l.asked[0].Key
		}
		if got != tt.want {
			t.Errorf("%d: key %.200q, want %q", i, got, tt.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("the zero Prefix is taken")
		}
	}()
	httplimit.ByProxiedIP(netip.Prefix{})
}

// spy notes what is taken.
type spy struct {
	httplimit.HandlerLimiter
	asked []headgate.Charge
}

func (s *spy) Take(ctx context.Context, charges ...headgate.Charge) (headgate.Decision, error) {
	s.asked = append(s.asked, charges...)
	return s.HandlerLimiter.Take(ctx, charges...)
}

func TestPathValues(t *testing.T) {
	t.Parallel()
	l := &spy{HandlerLimiter: memoryLimiter()}
	limit := headgate.MustParse("fixed-window 1/1h from-first")
	mux := http.NewServeMux()
	mux.Handle("POST /users/{id}", httplimit.Handler(l, limit, httplimit.ByPathValue("id"))(answers(204)))
	mux.Handle("POST /files/{path...}", httplimit.Handler(l, limit, httplimit.ByPathValue("path"))(answers(204)))
	for path, want := range map[string]int{"/users/a%2Fb": 204, "/files/": 400} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if len(l.asked) != 1 || l.asked[0].Key != "a/b" {
		t.Errorf("asked %v", l.asked)
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
		by   httplimit.CostFunc
		from request
		want string // "400" and "413" are answers
	}{
		{header, request{}, "0"}, // not said: 1
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
		var in io.Reader = strings.NewReader(tt.from.body)
		if tt.from.chunked {
			in = io.MultiReader(in) // hides its length
		}
		r := httptest.NewRequest(http.MethodPost, "/", in)
		if tt.from.body == "" && !tt.from.chunked {
			r = httptest.NewRequest(http.MethodPost, "/", nil)
		}
		for name, values := range fields(tt.from.lines) {
			r.Header[name] = values
		}
		l, read := &spy{HandlerLimiter: memoryLimiter()}, ""
		h := must(t, l, httplimit.HandlerConfig{Charges: []httplimit.Charge{{
			Limit: headgate.MustParse("fixed-window 1000/1h from-first"), Key: httplimit.ByIP, Cost: tt.by,
		}}})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			if read = string(text); err != nil || r.Body.Close() != nil {
				t.Errorf("%d: %v", i, err)
			}
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := map[int]string{400: "400", 413: "413"}[w.Code]
		if w.Code == 200 {
			got = l.asked[0].Cost.String()
			if read != tt.from.body {
				t.Errorf("%d: the handler reads %q", i, read)
			}
		}
		if got != tt.want {
			t.Errorf("%d: %s, want %s (%d %s)", i, got, tt.want, w.Code, w.Body)
		}
	}
}

// FuzzRequest: whatever a client sends is charged to a key that a store takes, or is answered with 400 or
// 413 and not charged.
func FuzzRequest(f *testing.F) {
	f.Add("192.0.2.1:1", "203.0.113.9", "key", "2.5", `{"rows":[1,2]}`)
	f.Add("10.0.0.1:1", "203.0.113.9, 10.0.0.2", "a|b", "", `{"rows":[]}`)
	f.Add("10.0.0.1:1", "x", "\x00", "-1", `{"rows":[1],"ROWS":[]}`)
	behind := httplimit.ByProxiedIP(netip.MustParsePrefix("10.0.0.0/8"))
	limit := headgate.MustParse("fixed-window 1000/1h from-first")
	header := httplimit.ByHeader("Key")
	f.Fuzz(func(t *testing.T, remote, forwarded, key, cost, body string) {
		l := &spy{HandlerLimiter: memoryLimiter()}
		fault := false
		wrap, err := httplimit.NewHandler(l, httplimit.HandlerConfig{
			OnError: func(*http.Request, error) { fault = true },
			Charges: []httplimit.Charge{
				{
					Limit: limit, Key: httplimit.FirstOf(httplimit.JoinKeys(header, behind), behind),
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
		wrap(answers(204)).ServeHTTP(w, r)
		for _, c := range l.asked {
			if err := law.ValidKey(c.Key); err != nil {
				t.Errorf("key %q: %v", c.Key, err)
			}
		}
		switch _, noAddress := netip.ParseAddrPort(remote); w.Code {
		case 204, 429:
			if len(l.asked) != 2 {
				t.Errorf("asked %v", l.asked)
			}
		case 400, 413:
			if fault {
				t.Error("an error of the client's is told as the server's")
			}
		case 500:
			if noAddress == nil {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

var errBody = errors.New("body")

// TestABodyThatBreaksOff: the client's fault, and nothing is charged.
func TestABodyThatBreaksOff(t *testing.T) {
	t.Parallel()
	l := &spy{HandlerLimiter: memoryLimiter()}
	h := must(t, l, httplimit.HandlerConfig{Charges: []httplimit.Charge{{
		Limit: headgate.MustParse("fixed-window 1000/1h from-first"), Key: httplimit.ByIP, Cost: httplimit.CostByJSONArray("", 100),
	}}})(answers(204))
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("[1,"), brokenReader{}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 400 || len(l.asked) > 0 {
		t.Errorf("%d %s; asked %v", w.Code, w.Body, l.asked)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBody }
