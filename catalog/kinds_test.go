package catalog_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store/memory"
)

var quiet = &catalog.Config{Logger: slog.New(slog.DiscardHandler)}

// TestReplacementsAreAcquiredAsTheirLimitIs: no edit leaves a limit that is taken with a plan or an override that
// is acquired, or vice versa.
func TestReplacementsAreAcquiredAsTheirLimitIs(t *testing.T) {
	jobs, taken := "concurrency 10 ttl 30s", "token-bucket 10/s"
	arrange := func(t *testing.T, c *catalog.Catalog, o *catalog.Override, plan string) {
		t.Helper()
		set(t, c, limit(t, "jobs", jobs), limit(t, "other", jobs))
		if o != nil {
			o.Limit = named(t, "jobs", "concurrency 20 ttl 30s")
			mustSucceed(t)(c.Override(t.Context(), admin, *o))
		}
		mustSucceed(t)(c.Override(t.Context(), admin, catalog.Override{Limit: named(t, "other", jobs), Key: "bob"}))
		if plan != "" {
			mustSucceed(t)(c.SetPlans(t.Context(), admin, catalog.Plan{
				Name: plan, Limits: []headgate.Limit{named(t, "jobs", "concurrency 30 ttl 30s")},
			}))
		}
	}
	file := func(t *testing.T, plans ...catalog.Plan) catalog.File {
		return catalog.File{Limits: []catalog.Definition{limit(t, "jobs", taken)}, Plans: plans}
	}
	edits := map[string]func(t *testing.T, c *catalog.Catalog) error{
		"set": func(t *testing.T, c *catalog.Catalog) error {
			_, err := c.Set(t.Context(), admin, limit(t, "jobs", taken))
			return err
		},
		"apply": func(t *testing.T, c *catalog.Catalog) error {
			_, _, err := c.Apply(t.Context(), admin, file(t), catalog.Anyway)
			if _, said := c.Compare(t.Context(), file(t)); (said == nil) != (err == nil) {
				t.Errorf("compare says %v, apply %v", said, err)
			}
			return err
		},
		"remove and set": func(t *testing.T, c *catalog.Catalog) error {
			mustSucceed(t)(c.Remove(t.Context(), admin, "jobs"))
			_, err := c.Set(t.Context(), admin, limit(t, "jobs", taken))
			return err
		},
	}
	for name, tt := range map[string]struct {
		override *catalog.Override
		plan     string
		want     string // a part of the error; empty: the edit is allowed
	}{
		"nothing":          {},
		"override":         {override: &catalog.Override{Key: "bob"}, want: `the override of "bob", concurrency 20 ttl 30s, is acq`},
		"the empty key":    {override: &catalog.Override{}, want: `the override of "", concurrency 20 ttl 30s, is acquired`},
		"prefix":           {override: &catalog.Override{Key: "a/", Prefix: true}, want: `the override of "a/"*, concurrency 20`},
		"plan":             {plan: "pro", want: `plan "pro", concurrency 30 ttl 30s, is acquired`},
		"an override over": {override: &catalog.Override{Key: "bob", Until: time.Now()}},
	} {
		for kind, edit := range edits {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, err := catalog.Read(t.Context(), memory.New(nil), quiet)
					if err != nil {
						t.Fatal(err)
					}
					o := tt.override
					if o != nil && !o.Until.IsZero() {
						o.Until = time.Now().Add(time.Second)
					}
					arrange(t, c, o, tt.plan)
					time.Sleep(time.Hour)
					err = edit(t, c)
					if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, headgate.ErrInvalid) ||
						!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "jobs")) {
						t.Errorf("%v, want %q", err, tt.want)
					}
					if now, ok := c.Lookup("jobs"); kind != "remove and set" &&
						(!ok || now.Concurrency() != (tt.want != "")) {
						t.Errorf("the limit is %s after %v", now, err)
					}
					c.Close()
				})
			})
		}
	}
}

// TestAFileChangesALimitWithItsPlans changes a limit and the plan in its place from taken to acquired.
func TestAFileChangesALimitWithItsPlans(t *testing.T) {
	c := open(t, memory.New(nil))
	for _, notation := range []string{"concurrency 10 ttl 30s", "token-bucket 10/s", "concurrency 5 ttl 1m"} {
		f := catalog.File{
			Path: notation, Limits: []catalog.Definition{limit(t, "jobs", notation)},
			Plans: []catalog.Plan{{Name: "pro", Limits: []headgate.Limit{named(t, "jobs", notation)}}},
		}
		if _, _, err := c.Apply(t.Context(), admin, f, catalog.Once); err != nil {
			t.Errorf("%s: %v", notation, err)
		}
	}
	f := catalog.File{Path: "without plans", Limits: []catalog.Definition{limit(t, "jobs", "token-bucket 10/s")}}
	if _, _, err := c.Apply(t.Context(), admin, f, catalog.Once); !errors.Is(err, headgate.ErrInvalid) ||
		!strings.Contains(err.Error(), `plan "pro"`) {
		t.Errorf("a plan that is retired is in force: %v", err)
	}
}
