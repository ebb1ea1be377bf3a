package service_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newExplainService(t *testing.T, text string) *service.Service {
	t.Helper()
	c, err := config.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return service.New(headgate.New(memory.New(&memory.Config{Names: true}), &headgate.Config{Names: c}), c, nil)
}

// explainRules is a config file with a rule in each mode, and one that only blocks.
const explainRules = `limits: {api: sliding-log 1/1h}
rules:
  - {name: enforced, path: /a, limits: [{limit: api, key: ip, settle: "header:X-Cost", keep: 0.5}], id: "header:X-Id"}
  - {name: shadow, path: /b, mode: shadow, block: 203.0.113.9, limits: [{limit: api, key: ip, cost: 2}]}
  - {name: advise, path: /c, mode: advise, limits: [{limit: api, key: "header:X-User"}]}
  - {name: block, path: /d, block: 0.0.0.0/0}
`

func TestExplain(t *testing.T) {
	t.Parallel()
	s := newExplainService(t, explainRules)
	for _, c := range []struct {
		uri, client     string
		allowed         bool
		rule, mode, why string
		charges         int
		problem         string
	}{
		{"/a?b=c", "192.0.2.1", false, "enforced", "enforce", "first that matches", 1, ""}, // a cost of 1 leaves no headroom of 0.5
		{"/b", "192.0.2.1", true, "shadow", "shadow", "first that matches", 1, ""},
		{"/b", "203.0.113.9", true, "shadow", "shadow", "its list block has 203.0.113.9", 0, ""},
		{"/c", "192.0.2.1", true, "advise", "advise", "first that matches", 0, "header:X-User"},
		{"/a", "", false, "enforced", "enforce", "first that matches", 0, "client"},
		{"https://example.org/d", "192.0.2.1", false, "block", "enforce", "its list block", 0, ""},
		{"/e", "192.0.2.1", true, "", "", "no rule matches", 0, ""},
	} {
		r := &api.Explain{Method: "GET", URI: c.uri, Client: c.client, Headers: []string{"X-Id: 1"}}
		for range 2 { // twice, since an explanation charges nothing
			e, err := s.Explain(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			problem := ""
			if e.Problem != nil {
				problem = e.Problem.Field
			}
			if e.Allowed != c.allowed || e.Rule != c.rule || e.Mode != c.mode || !strings.Contains(e.Why, c.why) ||
				len(e.Charges) != c.charges || problem != c.problem || len(e.Rules) != 4 ||
				(e.Decision == nil) != (c.charges == 0) {
				t.Errorf("got %+v, want %+v", e, c)
			}
			if c.rule == "enforced" && c.charges == 1 && (e.Charges[0].Settle != "header:X-Cost" ||
				e.Charges[0].Keep != "0.5" || e.Charges[0].Cost != "1" || !e.Once || e.At != "f.yaml:3:5") {
				t.Errorf("got %+v, want the charge, the id and the place of the rule", e)
			}
		}
	}
}

func TestExplainRefusesForbiddenAndInvalidRequests(t *testing.T) {
	t.Parallel()
	s := newExplainService(t, explainRules)
	ctx := auth.WithCaller(t.Context(), &auth.Caller{Name: "x", Role: auth.RoleRead, Limits: []string{"other"}})
	r := &api.Explain{Method: "GET", URI: "/a", Client: "192.0.2.1"}
	if got, err := s.Explain(ctx, r); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("got %+v, %v, want ErrForbidden", got, err)
	}
	for _, invalid := range []api.Explain{
		{URI: "/"},
		{Method: "GET"},
		{Method: "GET", URI: "a"},
		{Method: "GET", URI: "mailto:a"},
		{Method: "GET", URI: "/", Headers: []string{"a"}},
		{Method: "GET", URI: "/", Headers: []string{": a"}},
		{Method: "GET", URI: "/", Client: "localhost"},
	} {
		if got, err := s.Explain(t.Context(), &invalid); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%+v: got %+v, %v, want ErrInvalid", invalid, got, err)
		}
	}
}
