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

// silentConfig discards the lines of the log.
var silentConfig = &catalog.Config{Logger: slog.New(slog.DiscardHandler)}

// TestEditsThatMixTakenAndAcquiredAreInvalid makes limit jobs one that is taken: by Set, Apply, or Remove and Set. That
// is invalid while a plan or an override in its place is acquired.
func TestEditsThatMixTakenAndAcquiredAreInvalid(t *testing.T) {
	const acquiredLimit, takenLimit = "concurrency 10 ttl 30s", "token-bucket 10/s"
	setUp := func(t *testing.T, c *catalog.Catalog, o *catalog.Override, planName string) {
		t.Helper()
		mustSet(t, c, define(t, "jobs", acquiredLimit), define(t, "other", acquiredLimit))
		if o != nil {
			o.Limit = limit(t, "jobs", "concurrency 20 ttl 30s")
			mustSucceed(t)(c.Override(t.Context(), admin, *o))
		}
		other := catalog.Override{Limit: limit(t, "other", acquiredLimit), Key: "bob"}
		mustSucceed(t)(c.Override(t.Context(), admin, other))
		if planName != "" {
			mustSucceed(t)(c.SetPlans(t.Context(), admin, catalog.Plan{
				Name: planName, Limits: []headgate.Limit{limit(t, "jobs", "concurrency 30 ttl 30s")},
			}))
		}
	}
	file := func(t *testing.T) catalog.File {
		return catalog.File{Limits: []catalog.Definition{define(t, "jobs", takenLimit)}}
	}
	edits := map[string]func(t *testing.T, c *catalog.Catalog) error{
		"set": func(t *testing.T, c *catalog.Catalog) error {
			_, err := c.Set(t.Context(), admin, define(t, "jobs", takenLimit))
			return err
		},
		"apply": func(t *testing.T, c *catalog.Catalog) error {
			_, _, err := c.Apply(t.Context(), admin, file(t), catalog.ApplyAnyway)
			if _, compareErr := c.Compare(t.Context(), file(t)); (compareErr == nil) != (err == nil) {
				t.Errorf("Compare returns %v, Apply %v; want both to fail, or neither", compareErr, err)
			}
			return err
		},
		"remove and set": func(t *testing.T, c *catalog.Catalog) error {
			mustSucceed(t)(c.Remove(t.Context(), admin, "jobs"))
			_, err := c.Set(t.Context(), admin, define(t, "jobs", takenLimit))
			return err
		},
	}
	for name, tt := range map[string]struct {
		override *catalog.Override // nil: none
		ends     bool              // the override ends before the edit
		planName string            // empty: no plan
		wantErr  string            // a part of the error; empty: the edit succeeds
	}{
		"no replacement":    {},
		"override":          {override: &catalog.Override{Key: "bob"}, wantErr: `the override of "bob", concurrency 20 ttl 30s, is acq`},
		"the empty key":     {override: &catalog.Override{}, wantErr: `the override of "", concurrency 20 ttl 30s, is acquired`},
		"prefix":            {override: &catalog.Override{Key: "a/", Prefix: true}, wantErr: `the override of "a/"*, concurrency 20`},
		"plan":              {planName: "pro", wantErr: `plan "pro", concurrency 30 ttl 30s, is acquired`},
		"an ended override": {override: &catalog.Override{Key: "bob"}, ends: true},
	} {
		for editName, edit := range edits {
			t.Run(name+", "+editName, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, err := catalog.Read(t.Context(), memory.New(nil), silentConfig)
					if err != nil {
						t.Fatal(err)
					}
					o := tt.override
					if tt.ends {
						o.Until = time.Now().Add(time.Second)
					}
					setUp(t, c, o, tt.planName)
					time.Sleep(time.Hour) // more than maxSkew beyond the end of the override
					err = edit(t, c)
					if tt.wantErr == "" && err != nil || tt.wantErr != "" && (!errors.Is(err, headgate.ErrInvalid) ||
						!strings.Contains(err.Error(), tt.wantErr) || !strings.Contains(err.Error(), "jobs")) {
						t.Errorf("got %v, want %q", err, tt.wantErr)
					}
					if current, ok := c.Lookup("jobs"); editName != "remove and set" &&
						(!ok || current.Concurrency() != (tt.wantErr != "")) {
						t.Errorf("got limit %s after %v", current, err)
					}
					c.Close()
				})
			})
		}
	}
}

// TestApplyChangesALimitWithItsPlan checks that a file may change both, but not the limit and merely retire the plan.
func TestApplyChangesALimitWithItsPlan(t *testing.T) {
	c := open(t, memory.New(nil))
	for _, notation := range []string{"concurrency 10 ttl 30s", "token-bucket 10/s", "concurrency 5 ttl 1m"} {
		f := catalog.File{
			Path: notation, Limits: []catalog.Definition{define(t, "jobs", notation)},
			Plans: []catalog.Plan{{Name: "pro", Limits: []headgate.Limit{limit(t, "jobs", notation)}}},
		}
		if _, _, err := c.Apply(t.Context(), admin, f, catalog.ApplyOnce); err != nil {
			t.Errorf("%s: %v", notation, err)
		}
	}
	f := catalog.File{Path: "without plans", Limits: []catalog.Definition{define(t, "jobs", "token-bucket 10/s")}}
	if _, _, err := c.Apply(t.Context(), admin, f, catalog.ApplyOnce); !errors.Is(err, headgate.ErrInvalid) ||
		!strings.Contains(err.Error(), `plan "pro"`) {
		t.Errorf("a file without the plan: got %v, want %v", err, headgate.ErrInvalid)
	}
}
