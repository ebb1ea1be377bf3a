package config_test

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rules"
)

const rulesFile = `limits:
  login: sliding-log 5/15m
  api: token-bucket 100/s
allow: 10.0.0.0/8
block: [203.0.113.0/24]
rules:
  - name: login
    method: [POST, PUT]
    host: example.org
    path: /login/{user}
    header: {X-Plan: "fr*"}
    mode: shadow
    missing: empty
    id: header:Idempotency-Key
    id_life: 10m
    id_replays: true
    limits:
      - {limit: login, key: [ip, "path:user"], cost: 2}
      - limit: api
        key: header:X-Api-Key
        cost: header:X-Cost
        cost_missing: 3
        keep: 10%
        settle: json:usage.total_tokens
  - name: rest
    limits: []
`

func TestRulesOfAFile(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("f.yaml", []byte(rulesFile))
	if err != nil {
		t.Fatal(err)
	}
	q := &rules.Request{
		Method: "POST", Host: "example.org", Path: "/login/alice", Client: netip.MustParseAddr("192.0.2.1"),
		Header: http.Header{"X-Plan": {"free"}, "Idempotency-Key": {"1"}},
	}
	m, err := c.Rules.Match(q)
	if err != nil || m.Rule != "login" || m.Mode != rules.Shadow || len(m.Charges) != 2 || m.ID == "" || !m.Replays {
		t.Fatalf("%+v, %v", m, err)
	}
	if a, b := m.Charges[0], m.Charges[1]; a.Limit.Name() != "login" || a.Key != "192.0.2.1|alice" ||
		a.Cost != headgate.Units(2) || b.Key != "" || b.Cost != headgate.Units(3) || b.Keep.String() != "10%" {
		t.Errorf("got %+v, want 2 of login for the address and the user, 3 of api for no key", m.Charges)
	}
	for client, want := range map[string]rules.Listed{"10.1.1.1": rules.Allowed, "203.0.113.9": rules.Blocked} {
		q.Client = netip.MustParseAddr(client)
		if m, err := c.Rules.Match(q); err != nil || m.Listed != want {
			t.Errorf("%s: got %+v, %v, want %v", client, m, err, want)
		}
	}
}

func TestWrongRulesOfAFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ old, replacement, want string }{
		{"mode: shadow", "mode: off", `f.yaml:12:11: rules.login.mode: "off" is not known`},
		{"mode: shadow", "mood: shadow", "f.yaml:12:5: rules.login.mood: the key is not known here; known are allow, block"},
		{"mode: shadow", "mode:", "f.yaml:12:10: rules.login.mode: must be text"},
		{"mode: shadow", `mode: ""`, "f.yaml:12:11: rules.login.mode: is empty"},
		{"mode: shadow", "mode: shadow\n    mode: shadow", "f.yaml:13:5: rules.login.mode: is said twice"},
		{"id_replays: true", "id_replays: 1", "f.yaml:16:17: rules.login.id_replays: must be true or false"},
		{"{limit: login,", "{limit: logon,", `f.yaml:18:17: rules.login.limits: there is no limit "logon" in the file`},
		{"cost: 2}", "cast: 2}", "f.yaml:18:48: rules.login.limits[0].cast: the key is not known here"},
		{"10.0.0.0/8", "10.0.0.0/33", `f.yaml:4:8: allow: "10.0.0.0/33" is neither`},
		{"[203.0.113.0/24]", "[203.0.113.0/24, x]", `f.yaml:5:25: block: "x" is neither`},
		{"[203.0.113.0/24]", "[]", "f.yaml:5:8: block: is empty"},
		{"- name: rest", "- name: login", "f.yaml:25:11: rules.login: there is a rule of that name at f.yaml:7:5"},
		{"    limits: []", "    path: /", "f.yaml:25:5: rules.rest: has no limits"},
		{
			"- name: rest", "- {name: all, limits: []}\n  - name: rest",
			"f.yaml:26:5: rules.rest: can never match: rule all at f.yaml:25:5",
		},
		{"{X-Plan: \"fr*\"}", "[X-Plan]", "f.yaml:11:13: rules.login.header: must be a mapping"},
	} {
		_, err := config.Parse("f.yaml", []byte(strings.Replace(rulesFile, c.old, c.replacement, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.replacement, err, c.want)
		}
	}
}

func TestRulesOfSeveralFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := write("a.yaml", "rules:\n  - {name: a, path: /a, limits: [{limit: api, key: ip}]}\n")
	b := write("b.yaml", "limits: {api: 5/1m}\nrules:\n  - {name: b, limits: []}\n")
	if c, err := config.Read(a, b); err != nil || c.Rules.Len() != 2 {
		t.Errorf("got %v, %v, want 2 rules", c, err)
	}
	if _, err := config.Read(b, a); err == nil || !strings.Contains(err.Error(), "a.yaml:2:5: rules.a: can never match") {
		t.Errorf("in the other order: got %v, want that rule a can never match", err)
	}
	if c, err := config.Read(a); err != nil || c.Rules.Len() != 1 { // the catalog has its limit
		t.Errorf("without limits: got %v, %v, want 1 rule", c, err)
	}
}

// FuzzRules checks that files with rules are errors, or that Match and Explain agree about a request.
func FuzzRules(f *testing.F) {
	f.Add(rulesFile, "/login/alice")
	f.Add("rules: [{name: a, path: '/{x}/{y...}', limits: [{limit: l, key: 'path:y'}]}]", "/a//../b/")
	f.Add("rules: [{name: a, header: {'*': '*'}, limits: []}]", "*")
	f.Add("block: ['::/0', 1.2.3.4]\nrules: &a [*a]", "/")
	f.Fuzz(func(t *testing.T, text, path string) {
		c, err := config.Parse("f.yaml", []byte(text))
		if err != nil {
			return
		}
		q := &rules.Request{
			Method: "GET", Host: path, Path: path, Query: path, Client: netip.MustParseAddr("192.0.2.1"),
			Header: http.Header{"X-Api-Key": {path}, "Cookie": {path}},
		}
		m, err := c.Rules.Match(q)
		e := c.Rules.Explain(q)
		if (e.Err == nil) != (err == nil) || e.Match.Rule != m.Rule {
			t.Errorf("Match: %+v, Explain: %+v, want the same rule", m, e)
		}
		for _, v := range e.Verdicts {
			if m.Listed == rules.NotListed && m.Rule == "" && v.Matches {
				t.Errorf("rule %s matches, and nothing was decided", v.Rule)
			}
		}
	})
}
