package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// texts returns values that all have the same place in a file.
func texts(values ...string) (list []Text) {
	for _, v := range values {
		list = append(list, Text{v, "f:1:1"})
	}
	return list
}

func text(value string) Text { return Text{value, "f:1:1"} }

// define returns the definition of a rule that charges the limit api.
func define(name, path string, change func(*Definition)) Definition {
	d := Definition{
		At: "f:" + name, Name: text(name), Path: text(path),
		Limits: []Charge{{At: "f:2:2", Limit: text("api"), Key: texts("ip")}},
	}
	if change != nil {
		change(&d)
	}
	return d
}

func mustNew(t testing.TB, rules ...Definition) *Rules {
	t.Helper()
	r, err := New(&Definitions{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func getRequest(path string) *Request {
	return &Request{
		Method: "GET", Host: "example.org", Path: path, Header: http.Header{}, Client: netip.MustParseAddr("192.0.2.1"),
	}
}

func TestTheFirstRuleThatMatchesDecides(t *testing.T) {
	t.Parallel()
	r := mustNew(
		t, define("exact", "/users/me", nil), define("post", "/users/{id}", func(d *Definition) { d.Methods = texts("POST") }),
		define("user", "/users/{id}", nil),
		define("posts", "/users/{id}/posts/{rest...}", nil), define("users", "/users/", nil),
		define("root", "/{$}", nil), define("special", "/files/", func(d *Definition) {
			d.Hosts = texts("*.files.example.org", "static.example.org")
		}),
		define("key", "", func(d *Definition) {
			d.Headers = []Condition{{text("x-api-key"), text("live_*")}, {text("Accept"), text("*")}}
		}),
	)
	for _, c := range []struct{ request, want string }{
		{"GET example.org /users/me", "exact"},
		{"GET example.org /users/me/", "exact"},
		{"GET example.org //users/./me", "exact"},
		{"GET example.org /x/../users/me", "exact"},
		{"POST example.org /users/me", "exact"},
		{"POST example.org /users/you", "post"},
		{"post example.org /users/you", "post"},
		{"GET example.org /users/you", "user"},
		{"GET example.org /users/you/posts", "posts"},
		{"GET example.org /users/you/posts/1/2", "posts"},
		{"GET example.org /users/you/likes", "users"},
		{"GET example.org /users", "users"},
		{"GET example.org /Users", "users"},
		{"GET example.org /users/ME.", "exact"},
		{"GET example.org /usersx", ""},
		{"GET example.org /", "root"},
		{"GET a.b.FILES.example.org:8080 /files/x", "special"},
		{"GET static.example.org. /files/x", "special"},
		{"GET files.example.org /files/x", ""},
		{"GET xfiles.example.org /files/x", ""},
		{"GET example.org /key X-Api-Key:live_1 Accept:x", "key"},
		{"GET example.org /key X-Api-Key:live_1", ""},
		{"GET example.org /key X-Api-Key:test_1 Accept:x", ""},
		{"OPTIONS example.org *", ""},
	} {
		words := strings.Fields(c.request)
		q := getRequest(words[2])
		q.Method, q.Host = words[0], words[1]
		for _, word := range words[3:] {
			if name, value, ok := strings.Cut(word, ":"); ok {
				q.Header.Set(name, value)
			}
		}
		m, err := r.Match(q)
		if err != nil || m.Rule != c.want {
			t.Errorf("%s: %q, %v; want %q", c.request, m.Rule, err, c.want)
		}
		e := r.Explain(q)
		for _, v := range e.Verdicts {
			if v.Why == "" || v.Rule == c.want && !v.Matches {
				t.Errorf("%s: got the verdict %+v, want a reason, and that %s matches", c.request, v, c.want)
			}
		}
	}
}

// TestMatchReturnsTheFirstRuleThatMatches compares Match with a loop over the conditions of each rule.
func TestMatchReturnsTheFirstRuleThatMatches(t *testing.T) {
	t.Parallel()
	parts := []string{"a", "b", "{x}", "{y...}"}
	var defs []Definition
	for i := range 64 {
		path := "/" + parts[i%3] + "/" + parts[i/3%3] + "/" + parts[i/9%4]
		d := define(fmt.Sprintf("r%d", i), path, func(d *Definition) { d.Methods = texts([]string{"GET", "PUT", "POST"}[i%3]) })
		if _, err := New(&Definitions{Rules: append(defs[:len(defs):len(defs)], d)}); err == nil {
			defs = append(defs, d)
		}
	}
	r := mustNew(t, defs...)
	if r.Len() < 20 {
		t.Fatalf("%d rules, want at least 20", r.Len())
	}
	for _, method := range []string{"GET", "PUT", "POST"} {
		for i := range 81 {
			letters := "abc"
			q := getRequest(fmt.Sprintf("/%c/%c/%c/%c", letters[i%3], letters[i/3%3], letters[i/9%3], letters[i/27]))
			if i%2 == 0 {
				q.Path = q.Path[:6]
			}
			q.Method = method
			want := ""
			nq := normalize(q)
			for _, candidate := range r.list {
				if candidate.mismatch(&nq) == "" {
					want = candidate.name
					break
				}
			}
			if m, err := r.Match(q); err != nil || m.Rule != want {
				t.Errorf("%s %s: %q, %v; want %q", method, q.Path, m.Rule, err, want)
			}
		}
	}
}

func TestKeysAndCosts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		key, missing, cost, costMissing string
		change                          func(*Request)
		want, wantCost                  string // the key; "-": nothing is charged, "!FIELD": an error of the field
	}{
		{key: "ip", want: "192.0.2.1"},
		{key: "ip", change: func(q *Request) { q.Client = netip.MustParseAddr("2001:db8::1:2:3:4") }, want: "2001:db8::/64"},
		{key: "ip/48 text:a", change: func(q *Request) { q.Client = netip.MustParseAddr("2001:db8:1:2::9") }, want: "2001:db8:1::/48|a"},
		{key: "ip/128", change: func(q *Request) { q.Client = netip.MustParseAddr("2001:db8:1:2::9") }, want: "2001:db8:1:2::9"},
		{key: "ip/48", want: "192.0.2.1"},
		{key: "ip/48", missing: "empty", change: func(q *Request) { q.Client = netip.Addr{} }, want: "!client"},
		{key: "ip", change: func(q *Request) { q.Header.Set("X-Forwarded-For", "198.51.100.7") }, want: "192.0.2.1"},
		{key: "ip", missing: "empty", change: func(q *Request) { q.Client = netip.Addr{} }, want: "!client"},
		{key: "method host", want: "GET|example.org"},
		{key: "path:id query:q", change: func(q *Request) { q.Query = "p=1&q=a%7Cb&r=2" }, want: `7|a\|b`},
		{key: "header:X-Key", change: func(q *Request) { q.Header["X-Key"] = []string{"a, b"} }, want: "a, b"},
		{key: "header:X-Key", want: "!header:X-Key"},
		{key: "header:X-Key", missing: "skip", want: "-"},
		{key: "header:X-Key ip", missing: "empty", want: "|192.0.2.1"},
		{key: "cookie:sid", change: func(q *Request) { q.Header.Set("Cookie", "a=b; sid=s1") }, want: "s1"},
		{key: "cookie:sid", want: "!cookie:sid"},
		{key: "text:all", want: "all"},
		{key: "text:all", cost: "2.5", want: "all", wantCost: "2.5"},
		{key: "text:all", cost: "header:X-Cost", change: func(q *Request) { q.Header.Set("X-Cost", "7") }, want: "all", wantCost: "7"},
		{key: "text:all", cost: "header:X-Cost", want: "!header:X-Cost"},
		{key: "text:all", cost: "header:X-Cost", costMissing: "3", want: "all", wantCost: "3"},
		{key: "text:all", cost: "header:X-Cost", change: func(q *Request) { q.Header.Set("X-Cost", "-7") }, want: "!header:X-Cost"},
		{key: "text:all", cost: "header:X-Cost", change: func(q *Request) { q.Header.Set("X-Cost", long) }, want: "!header:X-Cost"},
		{key: "text:all", cost: "size", want: "-"},
		{key: "text:all", cost: "size", change: func(q *Request) { q.Header.Set("X-Forwarded-Content-Length", "0") }, want: "-"},
		{
			key: "text:all", cost: "size", change: func(q *Request) { q.Header.Set("X-Forwarded-Content-Length", "12") },
			want: "all", wantCost: "12",
		},
		{
			key: "text:all", cost: "size", change: func(q *Request) { q.Method = "PUT" }, // of unknown length
			want: "!header:X-Forwarded-Content-Length",
		},
	} {
		r := mustNew(t, define("r", "/users/{id}", func(d *Definition) {
			d.Missing = text(c.missing)
			l := &d.Limits[0]
			l.Key, l.Cost, l.CostMissing = texts(strings.Fields(c.key)...), text(c.cost), text(c.costMissing)
		}))
		q := getRequest("/users/7")
		if c.change != nil {
			c.change(q)
		}
		m, err := r.Match(q)
		if field, ok := strings.CutPrefix(c.want, "!"); ok {
			e, isInvalid := errors.AsType[*headgate.InvalidError](err)
			if !isInvalid || e.Field != field || len(m.Charges) > 0 || len(err.Error()) > 500 {
				t.Errorf("%+v: %v, %v", c, m, err)
			}
			continue
		}
		if c.want == "-" {
			if err != nil || len(m.Charges) > 0 || m.Rule != "r" {
				t.Errorf("%+v: %v, %v", c, m, err)
			}
			continue
		}
		if err != nil || len(m.Charges) != 1 || m.Charges[0].Key != c.want {
			t.Errorf("%+v: %v, %v", c, m, err)
			continue
		}
		if got := m.Charges[0].Cost; c.wantCost != "" && got != headgate.MustCost(c.wantCost) {
			t.Errorf("%+v: got the cost %s", c, got)
		}
	}
}

// TestOversizedHeadersMakeValidKeys checks that long and non-UTF-8 headers make different, valid keys and ids.
func TestOversizedHeadersMakeValidKeys(t *testing.T) {
	t.Parallel()
	r := mustNew(t, define("r", "/", func(d *Definition) {
		d.Limits[0].Key, d.ID = texts("header:X-Key", "ip"), text("header:Idempotency-Key")
	}))
	seen := map[string]bool{}
	long := strings.Repeat("x", 1<<20)
	for _, value := range []string{long, long + "y", "\xff\x00", "sha256:1"} {
		q := getRequest("/")
		q.Header["X-Key"], q.Header["Idempotency-Key"] = []string{value}, []string{value}
		m, err := r.Match(q)
		if err != nil {
			t.Fatal(err)
		}
		if key := m.Charges[0].Key; law.ValidKey(key) != nil || seen[key] || len(m.ID) > law.MaxID || seen[m.ID] {
			t.Errorf("got the key %q and the id %q, want valid, new ones", key, m.ID)
		}
		seen[m.Charges[0].Key], seen[m.ID] = true, true
	}
}

func TestIDsOfClientsDiffer(t *testing.T) {
	t.Parallel()
	r := mustNew(t, define("r", "/", func(d *Definition) {
		d.ID, d.IDLife, d.IDReplays = text("header:Idempotency-Key"), text("10m"), true
	}))
	idOf := func(client, id string) string {
		q := getRequest("/")
		q.Client = netip.MustParseAddr(client)
		q.Header.Set("Idempotency-Key", id)
		m, err := r.Match(q)
		if err != nil || !m.Replays && m.ID != "" {
			t.Fatal(m, err)
		}
		return m.ID
	}
	id := idOf("192.0.2.1", "1")
	if id != idOf("192.0.2.1", "1") || id == idOf("192.0.2.2", "1") || id == idOf("192.0.2.1", "2") {
		t.Error("ids of different clients or headers are the same, or those of one are not")
	}
	if id := idOf("192.0.2.1", ""); id != "" {
		t.Errorf("without the header: got the id %q, want none", id)
	}
}

func TestTheLongestPrefixOfAListCounts(t *testing.T) {
	t.Parallel()
	r, err := New(&Definitions{
		Allow: texts("10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "203.0.113.1"),
		Block: texts("10.1.0.0/16", "192.0.2.0/24", "2001:db8:1::/48", "203.0.113.1"),
		Rules: []Definition{
			define("listed", "/a/", func(d *Definition) {
				d.Allow, d.Block, d.Mode = texts("198.51.100.1"), texts("198.51.100.0/24"), text("shadow")
			}),
			define("r", "/", nil),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		client, path string
		want         Listed
		rule         string
	}{
		{"10.2.0.1", "/", Allowed, ""},
		{"10.1.0.1", "/", Blocked, ""},
		{"::ffff:10.1.0.1", "/", Blocked, ""},
		{"192.0.2.7", "/", Allowed, ""},
		{"192.0.2.8", "/", Blocked, ""},
		{"2001:db8::1", "/", Allowed, ""},
		{"2001:db8:1::1%eth0", "/", Blocked, ""},
		{"203.0.113.1", "/", Blocked, ""},
		{"203.0.113.2", "/", NotListed, "r"},
		{"198.51.100.1", "/", NotListed, "r"},
		{"198.51.100.1", "/a/x", Allowed, "listed"},
		{"198.51.100.2", "/a/x", Blocked, "listed"},
	} {
		q := getRequest(c.path)
		q.Client = netip.MustParseAddr(c.client)
		m, err := r.Match(q)
		if err != nil || m.Listed != c.want || m.Rule != c.rule || (m.Listed == NotListed) != (len(m.Charges) == 1) {
			t.Errorf("%s %s: got %+v, %v, want %s by rule %q", c.client, c.path, m, err, c.want, c.rule)
		}
		if e := r.Explain(q); !strings.Contains(e.Why, c.want.String()) {
			t.Errorf("%s: got %q, want %s in it", c.client, e.Why, c.want)
		}
	}
}

func TestSettlementsAreOfChargesThatAreMade(t *testing.T) {
	t.Parallel()
	r := mustNew(t, define("r", "/", func(d *Definition) {
		d.Missing = text("skip")
		d.Limits = []Charge{
			{Limit: text("a"), Key: texts("header:X-Missing"), Settle: text("header:X-Cost")},
			{
				Limit: text("b"), Key: texts("ip"), Cost: text("1000"), Settle: text("json:usage.total_tokens"),
				Keep: text("10%"),
			},
		}
	}))
	m, err := r.Match(getRequest("/"))
	if err != nil || len(m.Charges) != 1 || len(m.Settle) != 1 || m.Settle[0] != (Settle{0, "", "usage.total_tokens"}) {
		t.Errorf("got %+v, %v, want a charge of b with its settlement", m, err)
	}
	if m.Charges[0].Keep != headgate.MustHeadroom("10%") {
		t.Errorf("keep: got %s, want 10%%", m.Charges[0].Keep)
	}
}

func TestNoRulesMatchNothing(t *testing.T) {
	t.Parallel()
	var noRules *Rules
	if m, err := noRules.Match(getRequest("/")); err != nil || m.Rule != "" || noRules.Len() != 0 {
		t.Errorf("got %+v, %v, want no rule", m, err)
	}
	if e := noRules.Explain(getRequest("/")); e.Why != "there are no rules" {
		t.Errorf("got %q, want that there are no rules", e.Why)
	}
}

// BenchmarkMatch measures a request that only the last of 500 rules matches.
func BenchmarkMatch(b *testing.B) {
	var defs []Definition
	for i := range 500 {
		defs = append(defs, define(fmt.Sprintf("r%d", i), fmt.Sprintf("/api/v1/things%d/{id}", i), nil))
	}
	r := mustNew(b, defs...)
	q := getRequest("/api/v1/things499/7")
	b.ReportAllocs()
	for b.Loop() {
		if m, err := r.Match(q); err != nil || m.Rule != "r499" {
			b.Fatal(m, err)
		}
	}
}
