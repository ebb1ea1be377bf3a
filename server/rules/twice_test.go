package rules

import (
	"errors"
	"net/http"
	"net/netip"
	"testing"

	"github.com/headgate/headgate"
)

// TestWhatIsThereTwiceGetsRoundNoKey has requests of which an application may see the first value or the last.
func TestWhatIsThereTwiceGetsRoundNoKey(t *testing.T) {
	t.Parallel()
	r := mustNew(t,
		named("key", "/key", func(d *Definition) {
			d.Limits[0].Key = texts("header:X-Key")
			d.ID = text("header:Idempotency-Key")
		}),
		named("query", "/query", func(d *Definition) { d.Limits[0].Key = texts("query:k") }),
		named("cookie", "/cookie", func(d *Definition) { d.Limits[0].Key = texts("text:c", "cookie:sid") }),
		named("cookies", "/cookies", func(d *Definition) { d.Limits[0].Key = texts("cookie:sid", "cookie:b") }),
		named("cost", "/cost", func(d *Definition) { d.Limits[0].Cost = text("cookie:n") }),
		named("gold", "/plan", func(d *Definition) { d.Headers = []Condition{{Name: text("X-Plan"), Value: text("gold")}} }),
		named("free", "/plan", nil),
	)
	lines := func(name string, values ...string) http.Header { return http.Header{name: values} }
	for _, c := range []struct {
		path, query string
		header      http.Header
		want        string // the keys; "!NAME": an error about that
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
		{path: "/key", header: http.Header{"X-Plan": {"free", "gold"}, "X-Key": {"a"}}, want: "a"}, // compared for /plan alone
	} {
		q := get(c.path)
		q.Query, q.Header = c.query, c.header
		m, err := r.Match(q)
		got := ""
		for i, charge := range m.Charges {
			got += " "[:min(i, 1)] + charge.Key
		}
		if e, is := errors.AsType[*headgate.InvalidError](err); is {
			got = "!" + e.Field
		}
		if got != c.want {
			t.Errorf("%s?%s %v: %q, want %q: %v", c.path, c.query, c.header, got, c.want, err)
		}
	}
}

// TestAnEmbeddedAddressIsBlockedAndNeverAllowed has IPv4 clients that come by NAT64 and Teredo.
func TestAnEmbeddedAddressIsBlockedAndNeverAllowed(t *testing.T) {
	t.Parallel()
	r, err := New(&Definitions{
		Rules: []Definition{named("r", "/", nil)},
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
		q := get("/")
		q.Client = netip.MustParseAddr(client)
		if m, err := r.Match(q); err != nil || m.Listed != want {
			t.Errorf("%s: %q, want %q, %v", client, m.Listed, want, err)
		}
	}
}
