package rules

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestDuplicateFieldsEvadeNoKey checks that a field with several values is an error, or charges each different one.
func TestDuplicateFieldsEvadeNoKey(t *testing.T) {
	t.Parallel()
	r := mustNew(t,
		define("key", "/key", func(d *Definition) {
			d.Limits[0].Key = texts("header:X-Key")
			d.ID = text("header:Idempotency-Key")
		}),
		define("query", "/query", func(d *Definition) { d.Limits[0].Key = texts("query:k") }),
		define("cookie", "/cookie", func(d *Definition) { d.Limits[0].Key = texts("text:c", "cookie:sid") }),
		define("cookies", "/cookies", func(d *Definition) { d.Limits[0].Key = texts("cookie:sid", "cookie:b") }),
		define("cost", "/cost", func(d *Definition) { d.Limits[0].Cost = text("cookie:n") }),
		define("gold", "/plan", func(d *Definition) { d.Headers = []Condition{{Name: text("X-Plan"), Value: text("gold")}} }),
		define("free", "/plan", nil),
	)
	lines := func(name string, values ...string) http.Header { return http.Header{name: values} }
	for _, c := range []struct {
		path, query string
		header      http.Header
		want        string // the keys; "!FIELD": an error of the field
	}{
		{path: "/key", header: lines("X-Key", "a"), want: "a"},
		{path: "/key", header: lines("X-Key", "a", "b"), want: "!header:X-Key"},
		{path: "/key", header: lines("X-Key", "a", "a"), want: "!header:X-Key"},
		{path: "/key", header: http.Header{"X-Key": {"a"}, "Idempotency-Key": {"1", "2"}}, want: "!header:Idempotency-Key"},
		{path: "/query", query: "k=a&l=b", want: "a"},
		{path: "/query", query: "k=a&k=b", want: "!query:k"},
		{path: "/query", query: "k=a&k=a", want: "!query:k"},
		{path: "/query", query: "k=a&%6b=b", want: "!query:k"},
		{path: "/query", query: "k=%zz&k=b", want: "!query:k"},
		{path: "/query", query: "k&k=b", want: "!query:k"},
		{path: "/query", query: "k=", want: "!query:k"},
		{path: "/cookie", header: lines("Cookie", "sid=a; t=1"), want: "c|a"},
		{path: "/cookie", header: lines("Cookie", "sid=a; sid=b"), want: "c|a c|b"},
		{path: "/cookie", header: lines("Cookie", "sid=a; sid=a", "sid=a"), want: "c|a"},
		{path: "/cookie", header: lines("Cookie", "sid=a", "sid=b", "sid=c; sid=d"), want: "c|a c|b c|c c|d"},
		{path: "/cookie", header: lines("Cookie", "sid=a; sid=b; sid=c; sid=d; sid=e"), want: "!cookie:sid"},
		{path: "/cookies", header: lines("Cookie", "sid=a; sid=b; b=1; b=2"), want: "a|1 a|2 b|1 b|2"},
		{path: "/cookies", header: lines("Cookie", "sid=a; sid=b; b=1; b=2; b=3"), want: "!cookie:b"},
		{path: "/cost", header: lines("Cookie", "n=2; n=3"), want: "!cookie:n"},
		{path: "/cost", header: lines("Cookie", "n=2; n=2"), want: "192.0.2.1"},
		{path: "/plan", header: lines("X-Plan", "gold", "gold"), want: "192.0.2.1"},
		{path: "/plan", header: lines("X-Plan", "free", "other"), want: "192.0.2.1"},
		{path: "/plan", header: lines("X-Plan", "free", "gold"), want: "!header:X-Plan"},
		{path: "/key", header: http.Header{"X-Plan": {"free", "gold"}, "X-Key": {"a"}}, want: "a"}, // only the rules for /plan need X-Plan
	} {
		q := getRequest(c.path)
		q.Query, q.Header = c.query, c.header
		m, err := r.Match(q)
		got := ""
		for i, charge := range m.Charges {
			got += " "[:min(i, 1)] + charge.Key // a blank before all but the first
		}
		if e, isInvalid := errors.AsType[*headgate.InvalidError](err); isInvalid {
			got = "!" + e.Field
		}
		if got != c.want {
			t.Errorf("%s?%s %v: %q, want %q: %v", c.path, c.query, c.header, got, c.want, err)
		}
	}
}

// TestAnEmbeddedAddressIsBlockedAndNeverAllowed checks IPv4 addresses that are embedded by NAT64 and Teredo.
func TestAnEmbeddedAddressIsBlockedAndNeverAllowed(t *testing.T) {
	t.Parallel()
	r, err := New(&Definitions{
		Rules: []Definition{define("r", "/", nil)},
		Block: texts("203.0.113.0/24", "198.51.100.0/24"),
		Allow: texts("192.0.2.0/24", "198.51.100.9", "64:ff9b::c000:208"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for client, want := range map[string]Listed{
		"203.0.113.7": Blocked, "64:ff9b::203.0.113.7": Blocked, "2001:0:4136:e378:8000:63bf:34ff:8ef8": Blocked,
		"192.0.2.7": Allowed, "64:ff9b::192.0.2.7": NotListed, "64:ff9b::192.0.2.8": Allowed,
		"198.51.100.9": Allowed, "64:ff9b::198.51.100.9": NotListed,
	} {
		q := getRequest("/")
		q.Client = netip.MustParseAddr(client)
		if m, err := r.Match(q); err != nil || m.Listed != want {
			t.Errorf("%s: %q, want %q, %v", client, m.Listed, want, err)
		}
	}
}

// TestNoSpellingEvadesARule checks paths that some servers take for a path of another rule.
func TestNoSpellingEvadesARule(t *testing.T) {
	t.Parallel()
	withMode := func(mode string) func(*Definition) {
		return func(d *Definition) { d.Mode = text(mode) }
	}
	enforced := mustNew(t,
		define("static", "/static/", nil), define("login", "/login", nil),
		define("shadow", "/shadow", withMode("shadow")),
		define("project", "/projects/{id}", func(d *Definition) { d.EncodedSlash = true }),
		define("delete", "/projects/{id}/delete", nil), define("rest", "/", nil),
	)
	shadowed := mustNew(t, define("login", "/login", withMode("shadow")), define("a", "/a/", withMode("advise")))
	for _, c := range []struct {
		rules *Rules
		uri   string
		want  string // the rule that decides; "!TEXT": an error with it
	}{
		{enforced, "/static/login", "static"},
		{enforced, "//static/login", "!a path of rule login"},
		{enforced, "//h/static/a", "!a path of rule static"},
		{enforced, "//static/a", "static"},
		{enforced, "//h/shadow", "rest"},
		{enforced, "//h/other", "rest"},
		{enforced, "/projects/g%2fp", "project"},
		{enforced, "/projects/x%2fdelete", "!decoded it is a path of rule delete"},
		{enforced, "/projects%2Fx/delete", "!has an encoded slash"},
		{enforced, "/shadow%2fa", "!has an encoded slash"},
		{shadowed, "/a/b%2fc", "a"},
		{shadowed, "/b%2fc", ""},
		{shadowed, "//h/login", ""},
	} {
		target, err := ParseTarget("uri", c.uri)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.rules.Match(getRequest(target.Path))
		text, isError := strings.CutPrefix(c.want, "!")
		switch {
		case isError && (!errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), text)):
			t.Errorf("%s: rule %q, %v; want an error with %q", c.uri, m.Rule, err, text)
		case !isError && (err != nil || m.Rule != c.want || m.Problem != nil):
			t.Errorf("%s: rule %q, %v, %v; want rule %q", c.uri, m.Rule, m.Problem, err, c.want)
		}
	}
}

// TestSpellingsOfOneValueAreOneKey checks cookies, queries and paths: spellings of a value make one key or an error.
func TestSpellingsOfOneValueAreOneKey(t *testing.T) {
	t.Parallel()
	r := mustNew(t,
		define("cookie", "/cookie", func(d *Definition) { d.Limits[0].Key = texts("cookie:s") }),
		define("query", "/query", func(d *Definition) { d.Limits[0].Key = texts("query:user") }),
		define("path", "/p/{u}", func(d *Definition) { d.Limits[0].Key = texts("path:u") }),
		define("rest", "/r/{rest...}", func(d *Definition) { d.Limits[0].Key = texts("path:rest") }),
	)
	for _, c := range []struct{ path, query, cookie, want string }{
		{path: "/cookie", cookie: "s=abcX", want: "abcX"},
		{path: "/cookie", cookie: "s= abcX", want: "abcX"},
		{path: "/cookie", cookie: "s =\t abcX ; t=1", want: "abcX"},
		{path: "/cookie", cookie: `s="abcX"`, want: "abcX"},
		{path: "/cookie", cookie: "s=%61bcX; s=a%62cX", want: "abcX"},
		{path: "/cookie", cookie: "%73=abcX", want: "abcX"},
		{path: "/cookie", cookie: "s=%ff", want: "%ff"},
		{path: "/cookie", cookie: "s=\u00e9", want: "\u00e9"},
		{path: "/cookie", cookie: "s=a b,c", want: "a b,c"},
		{path: "/cookie", cookie: `s="\141bcX"; s=r1`, want: "!cookie:s"},
		{path: "/cookie", cookie: `s=a"b`, want: "!cookie:s"},
		{path: "/cookie", cookie: "S=abcX", want: "!cookie:s"},
		{path: "/query", query: "user=a&x.user=b&users=c", want: "a"},
		{path: "/query", query: "user=a&USER=b", want: "!query:user"},
		{path: "/query", query: "user=a&user[]=b", want: "!query:user"},
		{path: "/query", query: "user=a&user%5Bx%5D=b", want: "!query:user"},
		{path: "/p/alice", want: "alice"},
		{path: "/p/alice;x=1", want: "alice"},
		{path: "/p/alice;", want: "alice"},
		{path: "/r/a;x=1/b;y/c", want: "a/b/c"},
	} {
		q := getRequest(c.path)
		q.Query = c.query
		if c.cookie != "" {
			q.Header.Set("Cookie", c.cookie)
		}
		m, err := r.Match(q)
		got := ""
		for _, charge := range m.Charges {
			got += charge.Key
		}
		if e, isInvalid := errors.AsType[*headgate.InvalidError](err); isInvalid {
			got = "!" + e.Field
		}
		if got != c.want {
			t.Errorf("%s?%s %s: %q, want %q: %v", c.path, c.query, c.cookie, got, c.want, err)
		}
	}
}
