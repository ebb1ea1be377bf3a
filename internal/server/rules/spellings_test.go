package rules

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
)

// interpretations returns the paths that servers may take a target for. A server may do some of the steps here, in any
// order, and decodes once.
func interpretations(target string) map[string]bool {
	type state struct {
		path    string
		decoded bool
	}
	raw, _, _ := strings.Cut(target, "?")
	if _, rest, ok := strings.Cut(raw, "://"); ok {
		i := strings.IndexByte(rest, '/')
		raw = rest[max(i, 0):]
	}
	queue := []state{{raw, false}}
	seen := map[state]bool{queue[0]: true}
	for len(queue) > 0 {
		current := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		add := func(p string, decoded bool) {
			if next := (state{p, decoded}); !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
		end := "#"
		if current.decoded {
			end = "\x00"
		}
		prefix, _, _ := strings.Cut(current.path, end)
		add(prefix, current.decoded)
		add(strings.ToLower(current.path), current.decoded)
		add(strings.TrimRight(current.path, ". "), current.decoded)
		add(strings.ReplaceAll(current.path, `\`, "/"), current.decoded)
		add(strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(current.path), current.decoded)
		add(dropDotParameters(current.path), current.decoded)
		add(strings.ReplaceAll(current.path, "//", "/"), current.decoded)
		if strings.HasPrefix(current.path, "/") {
			add(path.Clean(current.path), current.decoded)
		}
		if dots := dotDecoder.Replace(current.path); dots != current.path { // the URL standard takes %2e for a dot
			add(dots, current.decoded)
		}
		if strings.HasPrefix(current.path, "//") { // some servers take the first part for a host
			if i := strings.IndexByte(current.path[2:], '/'); i >= 0 {
				add(current.path[2+i:], current.decoded)
			}
		}
		if !current.decoded {
			if p, err := url.PathUnescape(current.path); err == nil {
				add(p, true)
			}
		}
	}
	paths := map[string]bool{}
	for s := range seen {
		paths["/"+strings.Trim(s.path, "/")] = true
	}
	return paths
}

var dotDecoder = strings.NewReplacer("%2e", ".", "%2E", ".")

// dropDotParameters removes the parameters of the segments . and .., such as ..;x.
func dropDotParameters(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if name, _, ok := strings.Cut(s, ";"); ok && (name == "." || name == "..") {
			segments[i] = name
		}
	}
	return strings.Join(segments, "/")
}

// TestSpellingsThatServersServe checks that a target that a recorded server serves as /login is charged by the rule for
// /login, or is an error.
func TestSpellingsThatServersServe(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("testdata/spellings.tsv")
	if err != nil {
		t.Fatal(err)
	}
	r := rulesFor(t, "/login")
	lines := strings.Split(strings.TrimSpace(string(table)), "\n")
	names := strings.Split(lines[0], "\t")
	for _, line := range lines[1:] {
		cells := strings.Split(line, "\t")
		ruleName := ruleFor(t, r, cells[0])
		for i, answer := range cells[1:] {
			if answer != "login" {
				continue
			}
			if ruleName == "rest" {
				t.Errorf("%s serves %s as /login, but the rule for /login does not decide", names[i+1], cells[0])
			}
			if !interpretations(cells[0])["/login"] {
				t.Errorf("%s serves %s as /login, which interpretations lacks", names[i+1], cells[0])
			}
		}
	}
	for _, legal := range []string{
		"/login", "/login/", "//login", "/%6cogin", "/login?x", "/login%23x", "/login;x", "/login%20", "/login%c3%a9",
	} {
		if ruleFor(t, r, legal) == "refused" {
			t.Errorf("%s is refused", legal)
		}
	}
}

// TestRandomSpellings checks that no spelling of a path evades the rule for the path if a server might take it for the
// path, and that no unambiguous spelling is an error.
func TestRandomSpellings(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(tier.Seed(), 1))
	bases := []string{
		"/login", "/api/users", "/api/users/list", "/a", "/a/b/c/d", "/logout", "/v1/chat/completions", "/wp-login.php",
		"/search", "/x.y/z", "/signup", "/password/reset", "/oauth/token", "/files/upload", "/admin", "/admin/users",
		"/graphql", "/cart/checkout", "/-/health", "/~user",
	}
	counts := map[string]int{}
	for range tier.Pick(10_000, 100_000, 1_000_000) {
		base := bases[rng.IntN(len(bases))]
		target := base
		for range 1 + rng.IntN(4) {
			target = respell(rng, target)
		}
		ruleName := ruleFor(t, rulesFor(t, base), target)
		mayMatch := interpretations(target)[base]
		counts[fmt.Sprint(ruleName, " ", mayMatch)]++
		if mayMatch && ruleName == "rest" {
			t.Errorf("%q might be served as %s, but the rule for that does not decide", target, base)
		}
		if ruleName == "refused" && !isAmbiguous(target) {
			t.Errorf("%q is refused, and nothing in it is ambiguous", target)
		}
	}
	for _, kind := range []string{"rule true", "refused true", "rest false"} {
		if counts[kind] < 100 {
			t.Errorf("got %v, want at least 100 of %s", counts, kind)
		}
	}
}

// isAmbiguous reports whether a target has parts that servers interpret differently.
func isAmbiguous(target string) bool {
	raw, _, _ := strings.Cut(target, "?")
	p, err := url.PathUnescape(raw)
	if err != nil || strings.HasPrefix(raw, "//") || strings.Contains(target, "#") || strings.Contains(p, `\`) ||
		strings.ContainsFunc(p, isControl) || strings.Contains(strings.ToLower(raw), "%2f") {
		return true
	}
	return slices.ContainsFunc(strings.Split(p, "/"), func(s string) bool {
		name, _, _ := strings.Cut(s, ";")
		return name == "." || name == ".."
	})
}

// respell changes a target in a way that some server reverts.
func respell(rng *rand.Rand, target string) string {
	at := rng.IntN(len(target))
	slash := strings.IndexByte(target[at:], '/')
	if slash < 0 {
		at, slash = 0, 0
	}
	slash += at
	escaped := fmt.Sprintf([]string{"%%%02x", "%%%02X"}[rng.IntN(2)], target[at])
	insert := func(what string) string { return target[:slash] + what + target[slash:] }
	switch rng.IntN(18) {
	case 16:
		return "//h" + target
	case 0, 1, 2:
		if target[at] != '%' && target[at] != '/' && !strings.ContainsRune("?#", rune(target[at])) {
			return target[:at] + escaped + target[at+1:]
		}
		return target
	case 3:
		return insert("/")
	case 4:
		return insert("/.")
	case 5:
		return insert("/%2e")
	case 6:
		return insert("/x/..")
	case 7:
		return insert("/x/.%2E")
	case 8:
		return insert("/x/..;p")
	case 9:
		return target[:slash] + []string{"%2f", "%2F", `\`, "%5c"}[rng.IntN(4)] + target[slash+1:]
	case 10:
		return target + "/"
	case 11:
		return target + []string{"#", "#x", "%23", "%00", "%20"}[rng.IntN(5)]
	case 12:
		return target + []string{";x", "%3bx", ";x=1"}[rng.IntN(3)]
	case 13:
		return target + "?x=/../y"
	case 15:
		return target[:at] + strings.ToUpper(target[at:at+1]) + target[at+1:]
	case 14:
		return insert([]string{"%09", "%0a", "%00"}[rng.IntN(3)])
	default:
		return target + []string{".", "%2e", "/.", "/..", "/x/.."}[rng.IntN(5)]
	}
}

// rulesFor returns a rule for a path, named rule, and one for all other paths, named rest.
func rulesFor(t *testing.T, base string) *Rules {
	t.Helper()
	baseRule, otherRule := pathRule(t, base, false, "text:one"), pathRule(t, "/", false, "text:rest")
	baseRule.Name.Value, otherRule.Name.Value = "rule", "rest"
	r, err := New(&Definitions{Rules: []Definition{baseRule, otherRule}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ruleFor returns the name of the rule of rulesFor that matches a target, or "refused".
func ruleFor(t *testing.T, r *Rules, target string) string {
	t.Helper()
	keys, err := keysOf(t, r, target, nil)
	if err != nil {
		return "refused"
	}
	rule, _, _ := strings.Cut(keys, ":")
	return rule
}

// keysOf returns the keys that rules charge for a request, as rule:key with blanks between them.
func keysOf(t *testing.T, r *Rules, uri string, h http.Header) (string, error) {
	t.Helper()
	target, err := ParseTarget("uri", uri)
	if err != nil {
		return "", err
	}
	m, err := r.Match(&Request{
		Method: "GET", Path: target.Path, Query: target.Query, Header: h, Client: netip.MustParseAddr("192.0.2.1"),
	})
	var list []string
	for _, c := range m.Charges {
		list = append(list, fmt.Sprint(m.Rule, ":", c.Key))
	}
	return strings.Join(list, " "), err
}

// pathRule returns a rule that charges the limit api for a path. keys are the parts of the key.
func pathRule(t *testing.T, path string, encodedSlash bool, keys ...string) Definition {
	t.Helper()
	d := Definition{Path: Text{Value: path}, EncodedSlash: encodedSlash}
	d.Name.Value = strings.NewReplacer("/", "", "{", "", "}", "", "...", "").Replace("r" + path)
	c := Charge{Limit: Text{Value: "api"}}
	for _, key := range keys {
		c.Key = append(c.Key, Text{Value: key})
	}
	d.Limits = []Charge{c}
	return d
}

// TestEncodedSlashes checks that an encoded slash is part of a segment if the rule allows it, or an error.
func TestEncodedSlashes(t *testing.T) {
	t.Parallel()
	r, err := New(&Definitions{Rules: []Definition{
		pathRule(t, "/projects/secret/admin", false, "text:admin"), pathRule(t, "/projects/{id}", true, "path:id"),
		pathRule(t, "/files/{rest...}", true, "path:rest"), pathRule(t, "/", false, "ip"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for uri, want := range map[string]string{
		"/projects/a":              "rprojectsid:a",
		"/projects/a%2Fb":          "rprojectsid:a/b",
		"/projects/a%2fb/":         "rprojectsid:a/b",
		"/projects/@s%2fp":         "rprojectsid:@s/p",
		"/projects/a/b":            "r:192.0.2.1",
		"/files/a%2Fb/c":           "rfilesrest:a/b/c",
		"/projects/%252f":          "rprojectsid:%2f",
		"/projects/secret%2Fadmin": "decoded it is a path of rule rprojectssecretadmin",
		"/projects%2Fa":            "has an encoded slash",
		"/other%2Fa":               "a rule with encoded_slash: true allows it",
		"/projects/a%2F..%2Fb":     "is ambiguous",
		"/projects/%2e%2e%2fadmin": "is ambiguous",
	} {
		got, err := keysOf(t, r, uri, nil)
		if errors.Is(err, headgate.ErrInvalid) && strings.Contains(err.Error(), want) {
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", uri, got, err, want)
		}
	}
	if _, err := (*Rules)(nil).Match(&Request{Path: "/a" + EncodedSlash + "b"}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("without rules: %v", err)
	}
}

// TestSpellingsOfAKey checks that lower and trim make one key of several spellings.
func TestSpellingsOfAKey(t *testing.T) {
	t.Parallel()
	r, err := New(&Definitions{Rules: []Definition{
		pathRule(t, "/login", false, "trim lower query:email"), pathRule(t, "/", false, "lower cookie:user"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for uri, want := range map[string]string{
		"/login?email=" + url.QueryEscape(" Ann@Example.org\t"): "rlogin:ann@example.org",
		"/login?email=ann@example.org":                          "rlogin:ann@example.org",
		"/login?email=%20":                                      "is missing",
		"/":                                                     "r:bob",
	} {
		got, err := keysOf(t, r, uri, http.Header{"Cookie": {"user=BOB; user=bob"}})
		if err != nil && strings.Contains(err.Error(), want) {
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", uri, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"lower": "not known", "lower lower ip": "twice", "upper ip": "not known", "trim": "not known",
	} {
		if _, err := parseSource(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if s, err := parseSource("trim lower header:x-user"); err != nil || s.String() != "lower trim header:X-User" {
		t.Errorf("%v, %v", s, err)
	}
	d := pathRule(t, "/", false, "ip")
	d.Limits[0].Cost.Value = "lower header:X-Cost"
	_, err = New(&Definitions{Rules: []Definition{d}})
	if err == nil || !strings.Contains(err.Error(), "parts of a key") {
		t.Errorf("a cost with lower: %v", err)
	}
}
