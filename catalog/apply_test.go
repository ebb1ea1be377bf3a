package catalog_test

import (
	"context"
	"slices"
	"testing"

	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store/memory"
)

// applyFile applies a file that defines these limits.
func applyFile(c *catalog.Catalog, list ...catalog.Definition) (int64, error) {
	_, v, err := c.Apply(context.Background(), catalog.By{Author: "ci"},
		catalog.File{Path: "limits.yaml", Limits: list}, catalog.Once)
	return v, err
}

func TestApplyOnceKeepsTheNewerFile(t *testing.T) {
	c := open(t, memory.New(nil))
	mustSet(t, c, define(t, "byhand", "gcra 1/s"))
	older := catalog.File{Path: "old.yaml", Limits: []catalog.Definition{
		define(t, "login", "token-bucket 5/1m"), define(t, "api", "fixed-window 10/1s"),
	}}
	newer := catalog.File{Path: "new.yaml", Limits: []catalog.Definition{define(t, "login", "token-bucket 6/1m")}}
	const (
		afterOlder = "api = fixed-window 10/1s; byhand = gcra 1/s burst 1; login = token-bucket 5/1m burst 5"
		afterNewer = "api = fixed-window 10/1s (retired); byhand = gcra 1/s burst 1; login = token-bucket 6/1m burst 6"
	)
	shuffled := older
	shuffled.Limits = slices.Clone(older.Limits)
	slices.Reverse(shuffled.Limits)
	for i, step := range []struct {
		file    catalog.File
		how     catalog.Applying
		known   catalog.Known
		version int64
		want    string
	}{
		{older, catalog.Once, catalog.New, 2, afterOlder},
		{older, catalog.Once, catalog.Newest, 2, afterOlder},
		{shuffled, catalog.Once, catalog.Newest, 2, afterOlder},
		{newer, catalog.Once, catalog.New, 3, afterNewer},
		{older, catalog.Once, catalog.Older, 3, afterNewer}, // with Once an old file undoes nothing
		{newer, catalog.Once, catalog.Newest, 3, afterNewer},
		{older, catalog.Again, catalog.Older, 4, afterOlder},
		{older, catalog.Again, catalog.Newest, 4, afterOlder},
		{newer, catalog.Once, catalog.Older, 4, afterOlder},
	} {
		d, v, err := c.Apply(t.Context(), catalog.By{Author: "ci"}, step.file, step.how)
		if err != nil || d.Known != step.known || v != step.version || catalogText(c) != step.want {
			t.Errorf("step %d: known %v, version %d, %s, %v; want %v, %d, %s", i, d.Known, v, catalogText(c), err, step.known,
				step.version, step.want)
		}
	}
}

func TestApplyAgainKeepsChangesByHand(t *testing.T) {
	c := open(t, memory.New(nil))
	file := catalog.File{Path: "limits.yaml", Limits: []catalog.Definition{define(t, "login", "token-bucket 5/1m")}}
	apply := func(how catalog.Applying) catalog.Difference {
		t.Helper()
		d, _, err := c.Apply(t.Context(), catalog.By{}, file, how)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	apply(catalog.Once)
	changed := define(t, "login", "token-bucket 50/1m")
	changed.Origin = "file"
	mustSet(t, c, changed)
	d := apply(catalog.Again) // another server that has seen the same change
	if d.Known != catalog.Newest || len(d.Changes) != 1 || catalogText(c) != "login = token-bucket 50/1m burst 50" {
		t.Errorf("with Again: got known %v, %v, then %s; want the change by hand", d.Known, d.Changes, catalogText(c))
	}
	if got := catalog.Describe(d.Changes[0]); got != "~ login = token-bucket 5/1m burst 5   (was token-bucket 50/1m burst 50)" {
		t.Errorf("the difference reads %q", got)
	}
	apply(catalog.Anyway)
	if catalogText(c) != "login = token-bucket 5/1m burst 5" {
		t.Errorf("with Anyway: got %s, want the limit of the file", catalogText(c))
	}
}
