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
		catalog.File{Path: "limits.yaml", Limits: list}, catalog.ApplyOnce)
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
		file     catalog.File
		mode     catalog.ApplyMode
		standing catalog.Standing
		version  int64
		want     string
	}{
		{older, catalog.ApplyOnce, catalog.FileNew, 2, afterOlder},
		{older, catalog.ApplyOnce, catalog.FileNewest, 2, afterOlder},
		{shuffled, catalog.ApplyOnce, catalog.FileNewest, 2, afterOlder},
		{newer, catalog.ApplyOnce, catalog.FileNew, 3, afterNewer},
		{older, catalog.ApplyOnce, catalog.FileOlder, 3, afterNewer}, // with ApplyOnce an old file undoes nothing
		{newer, catalog.ApplyOnce, catalog.FileNewest, 3, afterNewer},
		{older, catalog.ApplyAgain, catalog.FileOlder, 4, afterOlder},
		{older, catalog.ApplyAgain, catalog.FileNewest, 4, afterOlder},
		{newer, catalog.ApplyOnce, catalog.FileOlder, 4, afterOlder},
	} {
		d, v, err := c.Apply(t.Context(), catalog.By{Author: "ci"}, step.file, step.mode)
		if err != nil || d.Standing != step.standing || v != step.version || catalogText(c) != step.want {
			t.Errorf("step %d: standing %v, version %d, %s, %v; want %v, %d, %s", i, d.Standing, v, catalogText(c), err,
				step.standing, step.version, step.want)
		}
	}
}

func TestApplyAgainKeepsChangesByHand(t *testing.T) {
	c := open(t, memory.New(nil))
	file := catalog.File{Path: "limits.yaml", Limits: []catalog.Definition{define(t, "login", "token-bucket 5/1m")}}
	apply := func(mode catalog.ApplyMode) catalog.Difference {
		t.Helper()
		d, _, err := c.Apply(t.Context(), catalog.By{}, file, mode)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	apply(catalog.ApplyOnce)
	changed := define(t, "login", "token-bucket 50/1m")
	changed.Origin = "file"
	mustSet(t, c, changed)
	d := apply(catalog.ApplyAgain) // as a second server does whose file was changed alike
	text := catalogText(c)
	if d.Standing != catalog.FileNewest || len(d.Changes) != 1 || text != "login = token-bucket 50/1m burst 50" {
		t.Errorf("with ApplyAgain: got standing %v, %v, then %s; want the change by hand", d.Standing, d.Changes, text)
	}
	if got := catalog.Describe(d.Changes[0]); got != "~ login = token-bucket 5/1m burst 5   (was token-bucket 50/1m burst 50)" {
		t.Errorf("the difference reads %q", got)
	}
	apply(catalog.ApplyAnyway)
	if catalogText(c) != "login = token-bucket 5/1m burst 5" {
		t.Errorf("with ApplyAnyway: got %s, want the limit of the file", catalogText(c))
	}
}
