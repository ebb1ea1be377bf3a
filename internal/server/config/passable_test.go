package config_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rules"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

const limitsAndPlans = `limits:
  api: fixed-window 10/1h
  log: sliding-log 10/1h
  slots: concurrency 3 ttl 1m
plans:
  free: {api: fixed-window 3/1h}
`

// newLimiter returns a limiter over an empty store.
func newLimiter() *headgate.Limiter {
	return headgate.New(memory.New(nil), &headgate.Config{Timeout: time.Minute})
}

// TestImpossibleRules checks that Impossible finds rules and plans which no request can pass, in each mode.
func TestImpossibleRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit string   // the limit of the rule r
		want  []string // parts of the errors
	}{
		{"limit: slots", []string{"f:7:36: rules.r.slots: concurrency 3 ttl 1m is acquired and released; rules take"}},
		{"limit: api, cost: 500", []string{
			"rules.r.api: no request can ever pass: the cost is more than fixed-window 10/1h lets pass",
			"fixed-window 3/1h lets pass at once, with the plan free",
		}},
		{"limit: api, cost: 5", []string{"with the plan free"}},
		{"limit: api, cost: 3", nil},
		{"limit: log, cost: 11", []string{"f:7:47: rules.r.log: no request can ever pass"}},
		{"limit: log, cost: 10", nil},
		{"limit: log, keep: 9.5", []string{"the cost and what is kept free are more than sliding-log 10/1h"}},
		{"limit: log, keep: 9", nil},
		{"limit: log, keep: 10", []string{"each request is an error: keep: 10 leaves nothing to take"}},
		{"limit: log, cost: 0.0001", nil},                         // charged as 0.001
		{`limit: log, cost: "header:X-N", cost_missing: 11`, nil}, // a request may say 1
		{`limit: log, cost: "header:X-N"`, nil},
		{"limit: log, cost: size", nil},
	} {
		for _, mode := range []string{"enforce", "shadow", "advise"} {
			rule := "rules: [{path: /, limits: [{" + c.limit + ", key: ip}], name: r, mode: " + mode + "}]\n"
			f, err := config.Parse("f", []byte(limitsAndPlans+rule))
			if err != nil {
				t.Fatal(c.limit, err)
			}
			list := f.Impossible(newLimiter())
			for i, err := range list {
				if i >= len(c.want) || !strings.Contains(err.Error(), c.want[i]) {
					t.Errorf("%s, %s: %v", c.limit, mode, err)
				}
			}
			if len(list) != len(c.want) {
				t.Errorf("%s, %s: %v, want %d", c.limit, mode, list, len(c.want))
			}
		}
	}
	f, err := config.Parse("f", []byte("limits: {api: fixed-window 10/1h}\nplans: {p: {api: concurrency 3 ttl 1m}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if list := f.Impossible(newLimiter()); len(list) != 1 || !strings.Contains(list[0].Error(), "plans.p.api: concurrency 3 ttl 1m") {
		t.Errorf("a plan of another kind: got %v, want one error", list)
	}
}

// TestImpossibleRulesThatChargeAKeyTwice checks that Impossible finds rules whose charges of one key can never pass
// together, and rules with an id or a settlement that charge a key twice.
func TestImpossibleRulesThatChargeAKeyTwice(t *testing.T) {
	t.Parallel()
	const twice = "it charges one key of a limit twice"
	for _, c := range []struct{ text, want string }{
		{"rules: [{name: r, path: /, limits: [{limit: log, key: ip, cost: 6}, {limit: log, key: ip, cost: 5}]}]", "no request can ever pass: what it charges to one key is more than log"},
		{"rules: [{name: r, path: /, limits: [{limit: log, key: ip, cost: 5}, {limit: log, key: ip, cost: 5}]}]", ""},
		{"rules: [{name: r, path: /, limits: [{limit: log, key: ip, cost: 6}, {limit: log, key: method, cost: 6}]}]", ""},
		{"rules: [{name: r, path: /, limits: [{limit: log, key: ip, cost: 10}, {limit: log, key: ip, cost: size}]}]", "no request can ever pass"},
		{"rules: [{name: r, path: /, limits: [{limit: log, key: ip, cost: 9}, {limit: log, key: ip, cost: size}]}]", ""}, // a size of 1 fits
		{`rules: [{name: r, path: /, id: "header:X-Id", limits: [{limit: log, key: ip}, {limit: log, key: ip}]}]`, twice},
		{`rules: [{name: r, path: /, limits: [{limit: log, key: ip, settle: "header:X-Used"}, {limit: log, key: ip}]}]`, twice},
		{`rules: [{name: r, path: /, limits: [{limit: log, key: ip, settle: "header:X-Used"}, {limit: log, key: method}]}]`, ""},
		// A plan of 0 refuses everything on purpose.
		{"  off: {log: 0}\nrules: [{name: r, path: /, limits: [{limit: log, key: ip, keep: 10%}]}]", ""},
	} {
		f, err := config.Parse("f", []byte(limitsAndPlans+c.text+"\n"))
		if err != nil {
			t.Fatal(c.text, err)
		}
		list := f.Impossible(newLimiter())
		if c.want == "" && len(list) > 0 || c.want != "" && (len(list) != 1 || !strings.Contains(list[0].Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.text, list, c.want)
		}
	}
	f, err := config.Parse("f", []byte(limitsAndPlans+
		"rules: [{name: q, path: /q, limits: [{limit: log, key: ip, cost: 11}]}, "+
		"{name: r, path: /, limits: [{limit: log, key: ip, cost: 6}, {limit: log, key: ip, cost: 5}]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if list := f.Impossible(newLimiter()); len(list) != 2 || !strings.Contains(list[1].Error(), "rules.r") {
		t.Errorf("two rules that no request can pass: got %v, want an error of each", list)
	}
	f, err = config.Parse("f", []byte("plans: {pro: {nope: 5/1m}}\n"))
	if err != nil || len(f.Warnings()) != 1 || !strings.Contains(f.Warnings()[0], "plans.pro.nope: no limit of that name") {
		t.Errorf("a plan of an unknown limit: got %v, %v, want one warning", f.Warnings(), err)
	}
}

// TestImpossibleFindsNothingExactlyIfFirstRequestsPass checks, for random rules, that Impossible finds nothing exactly
// if a first request passes, by the limit and by the plan.
func TestImpossibleFindsNothingExactlyIfFirstRequestsPass(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(tier.Seed(), 0))
	pick := func(options ...string) string { return options[rng.IntN(len(options))] }
	limit := func() string {
		return pick("fixed-window ", "sliding-log ", "sliding-window ", "token-bucket ", "gcra ") +
			pick("1", "3", "10", "1000000") + pick("/1s", "/1h", "/1day UTC")
	}
	possible, impossible := 0, 0
	for range tier.Pick(1000, 10_000, 10_000) {
		notation := limit()
		// Only fixed windows have calendars.
		if strings.Contains(notation, "day") && !strings.HasPrefix(notation, "fixed-window") {
			continue
		}
		plan := limit()
		if strings.Contains(plan, "day") && !strings.HasPrefix(plan, "fixed-window") {
			continue
		}
		rule := "limit: api, key: ip" + pick("", ", cost: "+pick("1", "0.5", "2", "11", "0.0000001", "999999999")) +
			pick("", ", keep: "+pick("0.5", "1", "9.5", "10%", "100%"))
		text := fmt.Sprintf("limits: {api: %s}\nplans: {p: {api: %s}}\nrules: [{name: r, path: /, limits: [{%s}]}]\n",
			notation, plan, rule)
		f, err := config.Parse("f", []byte(text))
		if errors.Is(err, headgate.ErrInvalid) {
			impossible++
			continue
		}
		if err != nil {
			t.Fatal(text, err)
		}
		passes := true
		m, err := f.Rules.Match(&rules.Request{
			Method: "GET", Path: "/", Header: http.Header{}, Client: netip.MustParseAddr("192.0.2.1"),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []headgate.Limit{f.Limits[0].Limit, f.Plans[0].Limits[0]} {
			m.Charges[0].Limit = l
			d, err := newLimiter().Take(t.Context(), m.Charges...)
			passes = passes && err == nil && d.Allowed
		}
		if list := f.Impossible(newLimiter()); (len(list) == 0) != passes {
			t.Fatalf("%s%v, and first requests pass: %v", text, list, passes)
		}
		if passes {
			possible++
		} else {
			impossible++
		}
	}
	if possible < 100 || impossible < 100 {
		t.Errorf("%d files are possible, %d are not", possible, impossible)
	}
}

// TestWarningsOfCostsThatAreTooFine checks the warnings about costs that are rounded up.
func TestWarningsOfCostsThatAreTooFine(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("f.yaml", []byte("limits: {api: fixed-window 5/1h}\nrules:\n"+
		"  - {name: fine, path: /a, limits: [{limit: api, key: ip, cost: 0.0001}]}\n"+
		"  - {name: plain, path: /b, limits: [{limit: api, key: ip, cost: 0.25}]}\n"+
		"  - {name: said, path: /c, limits: [{limit: api, key: ip, cost: 'header:X-Cost', cost_missing: 0.0009}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"f.yaml:3:65: rules.fine.api: a cost of 0.0001 is finer than fixed-window 5/1h counts: 0.001 is charged",
		"f.yaml:5:65: rules.said.api: a cost of 0.0009 is finer than fixed-window 5/1h counts: 0.001 is charged",
	}
	if got := c.Warnings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
