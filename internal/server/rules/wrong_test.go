package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestErrorsNameTheirField checks the errors about the fields of a definition.
func TestErrorsNameTheirField(t *testing.T) {
	t.Parallel()
	limit := func(change func(*Charge)) func(*Definition) { return func(d *Definition) { change(&d.Limits[0]) } }
	for want, change := range map[string]func(*Definition){
		"rules: a rule has no name":                       func(d *Definition) { d.Name.Value = "" },
		"rules: ":                                         func(d *Definition) { d.Name.Value = "Not A Name" },
		"method: \"get\" can never match":                 func(d *Definition) { d.Methods = texts("get") },
		"method: \"GET POST\" can never":                  func(d *Definition) { d.Methods = texts("GET POST") },
		"host: \"example.org:80\" can never":              func(d *Definition) { d.Hosts = texts("example.org:80") },
		"host: \"a.*.org\" has a star":                    func(d *Definition) { d.Hosts = texts("a.*.org") },
		"host: \"https://a\" can never":                   func(d *Definition) { d.Hosts = texts("https://a") },
		"path: \"users\" does not begin":                  func(d *Definition) { d.Path = text("users") },
		"path: \"/a//b\" can never match":                 func(d *Definition) { d.Path = text("/a//b") },
		"path: \"/a/../b\" can never match":               func(d *Definition) { d.Path = text("/a/../b") },
		"path: \"/a?b=c\" can never match":                func(d *Definition) { d.Path = text("/a?b=c") },
		"path: \"/a%20b\" can never match":                func(d *Definition) { d.Path = text("/a%20b") },
		"path: \"/{id}/{id}\" has two":                    func(d *Definition) { d.Path = text("/{id}/{id}") },
		"path: \"/{a...}/b\" has":                         func(d *Definition) { d.Path = text("/{a...}/b") },
		"path: \"/a{id}\" has a brace":                    func(d *Definition) { d.Path = text("/a{id}") },
		"path: \"/{}\" has a wildcard":                    func(d *Definition) { d.Path = text("/{}") },
		"header: the header Host is written host":         func(d *Definition) { d.Headers = []Condition{{text("host"), text("a")}} },
		"header: the header Headgate-Token has the":       func(d *Definition) { d.Headers = []Condition{{text("headgate-token"), text("a")}} },
		"header: \"a b\" cannot":                          func(d *Definition) { d.Headers = []Condition{{text("a b"), text("a")}} },
		"header.X: \" a\" can never match":                func(d *Definition) { d.Headers = []Condition{{text("x"), text(" a")}} },
		"allow: \"10.0.0.0/33\" is neither":               func(d *Definition) { d.Allow = texts("10.0.0.0/33") },
		"block: \"10.0.0.1/8\" has bits":                  func(d *Definition) { d.Block = texts("10.0.0.1/8") },
		"block: \"example.org\" is neither":               func(d *Definition) { d.Block = texts("example.org") },
		"block: \"::ffff:10.0.0.0/104\" is an IPv4":       func(d *Definition) { d.Block = texts("::ffff:10.0.0.0/104") },
		"mode: \"off\" is not known":                      func(d *Definition) { d.Mode = text("off") },
		"missing: \"allow\" is not known":                 func(d *Definition) { d.Missing = text("allow") },
		"limits: are 65, more than 64":                    func(d *Definition) { d.Limits = make([]Charge, 65) },
		"limits: are 10000, more than 64":                 func(d *Definition) { d.Limits = make([]Charge, 10_000) },
		"limits: a limit has no name":                     limit(func(c *Charge) { c.Limit.Value = "" }),
		"limits: there is no limit \"nope\"":              limit(func(c *Charge) { c.Limit.Value = "nope" }),
		"limits.api.key: is missing":                      limit(func(c *Charge) { c.Key = nil }),
		"key: has more than 64 parts":                     limit(func(c *Charge) { c.Key = make([]Text, 65) }),
		"key: \"ipv4\" is not known":                      limit(func(c *Charge) { c.Key = texts("ipv4") }),
		"key: \"32\": the length of a network is from 33": limit(func(c *Charge) { c.Key = texts("ip/32") }),
		"key: \"ip:x\" has a name":                        limit(func(c *Charge) { c.Key = texts("ip:x") }),
		"key: the header Headgate-Token has the":          limit(func(c *Charge) { c.Key = texts("header:headgate-token") }),
		"key: \"header\" has no name":                     limit(func(c *Charge) { c.Key = texts("header") }),
		"key: \"header:\" has an empty name":              limit(func(c *Charge) { c.Key = texts("header:") }),
		"key: the path of the rule has no":                limit(func(c *Charge) { c.Key = texts("path:name") }),
		"key: \"a b\" cannot be the name of a":            limit(func(c *Charge) { c.Key = texts("cookie:a b") }),
		"cost: cost: \"-1\" is negative":                  limit(func(c *Charge) { c.Cost = text("-1") }),
		"cost: \"text:1\" cannot be a cost":               limit(func(c *Charge) { c.Cost = text("text:1") }),
		"cost_missing: goes only with":                    limit(func(c *Charge) { c.CostMissing = text("1") }),
		"keep: ":                                          limit(func(c *Charge) { c.Keep = text("200%") }),
		"settle: \"X-Cost\" is not known":                 limit(func(c *Charge) { c.Settle = text("X-Cost") }),
		"settle: the header Authorization has no cost":    limit(func(c *Charge) { c.Settle = text("header:authorization") }),
		"settle: \"json:a..b\" has an empty":              limit(func(c *Charge) { c.Settle = text("json:a..b") }),
		"id: \"ip\" is not header:NAME":                   func(d *Definition) { d.ID = text("ip") },
		"id_life: ":                                       func(d *Definition) { d.ID, d.IDLife = text("header:X"), text("soon") },
	} {
		d := define("r", "/users/{id}", change)
		limitExists := func(name string) bool { return name == "api" }
		_, err := New(&Definitions{Rules: []Definition{d}, LimitExists: limitExists})
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// withPlan returns a change that lets a rule match only requests whose header X-Plan has the value, or begins with it
// if it ends with a star.
func withPlan(value string) func(*Definition) {
	return func(d *Definition) { d.Headers = []Condition{{text("X-Plan"), text(value)}} }
}

// TestARuleThatCanNeverMatchIsAnError checks that New refuses a list in which earlier rules match every request that a
// rule would match.
func TestARuleThatCanNeverMatchIsAnError(t *testing.T) {
	t.Parallel()
	methods := func(m ...string) func(*Definition) { return func(d *Definition) { d.Methods = texts(m...) } }
	hosts := func(h ...string) func(*Definition) { return func(d *Definition) { d.Hosts = texts(h...) } }
	for i, c := range []struct {
		rules       []Definition
		unreachable bool
	}{
		{[]Definition{define("a", "/", nil), define("b", "/users", nil)}, true},
		{[]Definition{define("a", "/users", nil), define("b", "/", nil)}, false},
		{[]Definition{define("a", "", nil), define("b", "", nil)}, true},
		{[]Definition{define("a", "/", nil), define("b", "", nil)}, false}, // b matches OPTIONS * too, which has no path
		{[]Definition{define("a", "/{x}", nil), define("b", "/users", nil)}, true},
		{[]Definition{define("a", "/{x}", nil), define("b", "/users/", nil)}, false},
		{[]Definition{define("a", "/users/", nil), define("b", "/users", nil)}, true},
		{[]Definition{define("a", "/", methods("GET")), define("b", "/", methods("HEAD"))}, true},
		{[]Definition{define("a", "/", methods("HEAD")), define("b", "/", methods("GET"))}, false},
		{[]Definition{define("a", "/", methods("GET")), define("b", "/", nil)}, false},
		{[]Definition{
			define("a", "/", methods("GET")), define("b", "/", methods("PUT")),
			define("c", "/x", methods("PUT", "GET")),
		}, true},
		{[]Definition{define("a", "/", hosts("*.example.org")), define("b", "/", hosts("*.a.example.org"))}, true},
		{[]Definition{define("a", "/", hosts("*.example.org")), define("b", "/", hosts("example.org"))}, false},
		{[]Definition{define("a", "/", hosts("*.example.org")), define("b", "/", hosts("A.example.org"))}, true},
		{[]Definition{define("a", "/", withPlan("f*")), define("b", "/", withPlan("free"))}, true},
		{[]Definition{define("a", "/", withPlan("free")), define("b", "/", withPlan("f*"))}, false},
		{[]Definition{define("a", "/", withPlan("free")), define("b", "/", nil)}, false},
	} {
		_, err := New(&Definitions{Rules: c.rules})
		if got := err != nil && strings.Contains(err.Error(), "can never match"); got != c.unreachable || err != nil && !got {
			t.Errorf("%d: got %v, want a rule that can never match: %t", i, err, c.unreachable)
		}
	}
}

// TestOverlappingRulesAreWarnedAbout has pairs of rules whose paths overlap. There must be a warning unless their
// conditions on headers exclude each other.
func TestOverlappingRulesAreWarnedAbout(t *testing.T) {
	t.Parallel()
	r := mustNew(t, define("a", "/users/{id}", nil), define("b", "/{what}/me", nil), define("c", "/other", nil))
	if w := r.Warnings(); len(w) != 1 || !strings.Contains(w[0], "f:b: rules.b: some paths match rule a at f:a too") {
		t.Errorf("got %q, want a warning about b", w)
	}
	for values, want := range map[[2]string]bool{
		{"free", "paid"}: false, {"free", "free"}: true, {"f*", "free"}: true, {"free", "f*"}: true,
		{"f*", "fr*"}: true, {"f*", "p*"}: false, {"f*", "paid"}: false,
	} {
		r := mustNew(t, define("a", "/users/{id}", withPlan(values[0])), define("b", "/{what}/me", withPlan(values[1])))
		if w := r.Warnings(); (len(w) > 0) != want {
			t.Errorf("headers %q: got %q, want a warning: %v", values, w, want)
		}
	}
	if w := (*Rules)(nil).Warnings(); w != nil {
		t.Errorf("no rules: got %q, want no warnings", w)
	}
}

func TestRulesNeedDistinctNamesAndAreAtMostMaxRules(t *testing.T) {
	t.Parallel()
	same := []Definition{define("a", "/a", nil), define("a", "/b", nil)}
	if _, err := New(&Definitions{Rules: same}); err == nil || !strings.Contains(err.Error(), "of that name at f:a") {
		t.Errorf("two rules of a name: got %v, want an error", err)
	}
	var definitions []Definition
	for i := range MaxRules + 1 {
		definitions = append(definitions, define(fmt.Sprintf("r%d", i), fmt.Sprintf("/%d", i), nil))
	}
	if _, err := New(&Definitions{Rules: definitions}); err == nil || !strings.Contains(err.Error(), "more than 1000") {
		t.Errorf("%d rules: got %v, want an error", MaxRules+1, err)
	}
}
