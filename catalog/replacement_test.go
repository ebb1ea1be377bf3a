package catalog_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/postgres"
)

// TestReplacementsMatchDecisions checks that Replacements returns the plan or override by which a key is decided.
func TestReplacementsMatchDecisions(t *testing.T) {
	t.Parallel()
	pg, err := postgres.Open(t.Context(), migrated.Postgres(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pg.Close() })
	for name, s := range map[string]store.Store{"memory": memory.New(nil), "postgres": pg} {
		c := open(t, s)
		mustSet(t, c, define(t, "login", "fixed-window 1/1h"), define(t, "api", "fixed-window 2/1h"))
		end := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Microsecond)
		by := func(author string) catalog.By { return catalog.By{Author: author, Reason: "of the version"} }
		mustSucceed(t)(c.SetPlans(t.Context(), by("ann"), catalog.Plan{
			Name: "pro", Limits: []headgate.Limit{limit(t, "login", "fixed-window 10/1h")},
		}))
		mustSucceed(t)(c.Assign(t.Context(), by("ben"), catalog.Assignment{Plan: "pro", Key: "own", Reason: "paid"},
			catalog.Assignment{Plan: "pro", Key: "acme/", Prefix: true, Until: end}))
		mustSucceed(t)(c.Override(t.Context(), by("eve"),
			catalog.Override{Limit: limit(t, "login", "0"), Key: "mal", Until: end, Reason: "guesses"},
			catalog.Override{Limit: limit(t, "login", "0"), Key: "bad/", Prefix: true},
			catalog.Override{Limit: limit(t, "api", "0"), Key: "own"}))
		l := headgate.New(s, &headgate.Config{Names: c, Timeout: time.Minute})
		for key, want := range map[string]catalog.Replacement{
			"own":    {Applied: "plan pro", Reason: "paid", Author: "ben"},
			"acme/x": {Applied: "plan pro of acme/*", Until: end, Author: "ben"},
			"mal":    {Limit: "login", Applied: "override", Until: end, Reason: "guesses", Author: "eve"},
			"bad/x":  {Limit: "login", Applied: "override of bad/*", Author: "eve"},
			"other":  {},
		} {
			d := take(t, l, "login", key)
			if d.Applied != want.Applied {
				t.Fatalf("%s: %s: got %+v, want applied %q", name, key, d, want.Applied)
			}
			list, err := c.Replacements(t.Context(), key, true, "login")
			for i := range list { // a database adds its user
				list[i].Author, _, _ = strings.Cut(list[i].Author, " as ")
			}
			if key == "other" {
				if err != nil || len(list) != 0 {
					t.Errorf("%s: other: got %+v, %v; want none", name, list, err)
				}
				continue
			}
			if err != nil || !slices.Equal(list, []catalog.Replacement{want}) {
				t.Errorf("%s: %s: got %+v, %v; want %+v", name, key, list, err, want)
			}
			want.Author = ""
			if list, err := c.Replacements(t.Context(), key, false, "login"); err != nil || !slices.Contains(list, want) {
				t.Errorf("%s: %s without authors: got %+v, %v; want %+v", name, key, list, err, want)
			}
		}
	}
}
