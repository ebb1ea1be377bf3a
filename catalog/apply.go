package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// File is the limits and plans that a file, or several together, define.
type File struct {
	Path   string // for people
	Limits []Definition
	Plans  []Plan
	// Revision says which of two files is newer, whenever they are applied: the one with the greater number. 0: it does
	// not say, and the one that is applied last is.
	Revision int64
	// Order is the Difference.Order of the file when it was applied last, if the caller has seen that; else 0. By it a
	// file is known that was in force before the store lost it.
	Order int64
}

// hash is that of what a file means: not of its comments, nor of its order.
func (f *File) hash() (string, error) {
	items := make([]store.Item, len(f.Limits))
	for i, d := range f.Limits {
		items[i] = d.item()
		items[i].Origin, items[i].Retired = fromFile, false
	}
	for _, p := range f.Plans {
		p.Origin, p.Retired = fromFile, false
		items = append(items, p.items()...)
	}
	slices.SortFunc(items, func(a, b store.Item) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	text, err := json.Marshal(items)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// The origins of limits that are not defined one by one: a file, and the zones of check_velocity and buckets
// of request_token, which the functions in SQL keep.
const (
	fromFile   = "file"
	fromZone   = "zone"
	fromBucket = "bucket"
)

// follows reports whether an item follows a table of SQL, and changes with it alone.
func follows(i *store.Item) bool { return i.Origin == fromZone || i.Origin == fromBucket }

// Difference is what applying a file would change.
type Difference struct {
	Changes []Change
	Plans   []store.Change // of limits of plans; Describe says what they are
	Known   Known          // whether these limits and plans were applied before
	Order   int64          // of the file among those that were applied, or as it will be: the newest has the greatest
	file    store.Item
}

// Lines is one line for people about each change.
func (d *Difference) Lines() []string {
	var lines []string
	for _, c := range d.Changes {
		lines = append(lines, c.String())
	}
	for _, c := range d.Plans {
		lines = append(lines, Describe(c))
	}
	return lines
}

// Empty reports whether there is nothing to change.
func (d *Difference) Empty() bool { return len(d.Changes)+len(d.Plans) == 0 }

// Known says whether a file was applied before.
type Known int

// A file is New, or the Newest that was applied, or Older than that. It is Lost if the catalogue does not know it any
// more, nor one that was applied after it: the store was emptied, or put back to an earlier state.
const (
	New Known = iota
	Newest
	Older
	Lost
)

// Applying says what becomes of a file that was applied before. One that is New, or Lost, is always applied.
type Applying int

const (
	// Once leaves the catalogue as it is, so that a server that starts with an old file does not undo what a newer one
	// of another server says.
	Once Applying = iota
	// Again applies a file also if another one was applied since: somebody has changed it back. The newest file stays
	// as it is, with the changes that were made by hand since.
	Again
	// Anyway undoes also such changes.
	Anyway
)

// Change is what becomes of one limit. Before is zero of one that is not there yet. One that
// is in the catalogue and not in the file any more is retired. After is zero of one that is removed.
type Change struct{ Before, After Definition }

// String is one line for people.
func (c Change) String() string {
	switch {
	case c.After.IsZero():
		return fmt.Sprintf("- %s = %s", c.Before.Name(), describe(&c.Before))
	case c.Before.IsZero():
		return fmt.Sprintf("+ %s = %s", c.After.Name(), describe(&c.After))
	case c.After.Retired && !c.Before.Retired:
		return fmt.Sprintf("- %s = %s   (retired: it decides until it is removed)", c.Before.Name(),
			describe(&c.Before))
	}
	was := describe(&c.Before)
	if c.After.Origin == fromFile && c.Before.Origin == "" {
		was += "; set by hand"
	}
	return fmt.Sprintf("~ %s = %s   (was %s)", c.After.Name(), describe(&c.After), was)
}

func describe(d *Definition) string {
	text := d.String()
	if d.Description != "" {
		text += fmt.Sprintf("; %q", d.Description)
	}
	if d.Retired {
		text += "; retired"
	}
	return text
}

// revised is what is written of the newest file where nothing changes but its revision.
func (d *Difference) revised(now *snapshot) []store.Item {
	before := now.items[d.file.ID()]
	if after := d.file; revisionOf(&after) > revisionOf(&before) {
		return []store.Item{after}
	}
	return nil
}

// Compare says what Apply would change.
func (c *Catalog) Compare(ctx context.Context, f File) (Difference, error) {
	if err := c.Refresh(ctx); err != nil {
		return Difference{}, err
	}
	now := c.now.Load()
	d, err := now.compare(&f)
	if err == nil && (d.Known == New || d.Known == Lost) {
		err = c.fitting(ctx, now, d.items())
	}
	return d, err
}

// items is what is written to make the changes.
func (d *Difference) items() []store.Item {
	items := []store.Item{d.file}
	for _, change := range d.Changes {
		items = append(items, change.After.item())
	}
	for _, change := range d.Plans {
		items = append(items, change.After)
	}
	return items
}

func (s *snapshot) compare(f *File) (d Difference, err error) {
	seen := map[string]bool{}
	for i := range f.Limits {
		want := f.Limits[i]
		if err := definable(&want); err != nil {
			return d, err
		}
		if seen[want.Name()] {
			return d, headgate.Invalid("limits."+want.Name(), "is there twice")
		}
		seen[want.Name()] = true
		want.Origin, want.Retired = fromFile, false
		if s.items[store.Item{Kind: store.KindLimit, Name: want.Name()}] != want.item() {
			d.Changes = append(d.Changes, Change{s.limits[want.Name()], want})
		}
	}
	for name, have := range s.limits {
		if have.Origin == fromFile && !have.Retired && !seen[name] {
			retired := have
			retired.Retired = true
			d.Changes = append(d.Changes, Change{have, retired})
		}
	}
	slices.SortFunc(d.Changes, func(a, b Change) int { return cmp.Compare(a.After.Name(), b.After.Name()) })
	if d.Plans, err = s.comparePlans(f); err != nil {
		return d, err
	}
	hash, err := f.hash()
	if err != nil {
		return d, err
	}
	s.known(&d, f, hash)
	return d, nil
}

// known says whether a file was applied before, and sets the item that says that it is.
func (s *snapshot) known(d *Difference, f *File, hash string) {
	newest := s.newestFile()
	d.file = store.Item{Kind: store.KindFile, Name: hash, Note: shortened(f.Path)}
	if f.Revision > 0 {
		d.file.Text = strconv.FormatInt(f.Revision, 10)
	}
	applied, there := s.items[d.file.ID()]
	switch d.Order = max(applied.Until, f.Order); {
	case d.Order > newest.Until:
		d.Known = Lost
	case d.Order == 0:
		d.Known = New
	case there && d.Order == newest.Until:
		d.Known = Newest
	default:
		d.Known = Older
	}
	switch revision := revisionOf(&newest); {
	case f.Revision == 0 || revision == 0 || d.Known == Newest || d.Known == Lost:
	case f.Revision > revision:
		d.Known = New
	case f.Revision < revision:
		d.Known = Older
	}
	if d.Known == New || d.Known == Older { // if it is applied now
		d.Order = max(newest.Until+1, s.clock())
	}
	d.file.Until = d.Order
	if d.Known == Older {
		d.Order = max(applied.Until, f.Order)
	}
}

// revisionOf is the revision of a file that was applied; 0: it has none.
func revisionOf(i *store.Item) int64 {
	n, _ := strconv.ParseInt(i.Text, 10, 64)
	return n
}

// comparePlans says what becomes of the limits of plans.
func (s *snapshot) comparePlans(f *File) (list []store.Change, err error) {
	limits := map[string]headgate.Limit{}
	for _, d := range f.Limits {
		limits[d.Name()] = d.Limit
	}
	seen := map[string]bool{}
	change := func(after store.Item) {
		before, ok := s.items[after.ID()]
		if !ok {
			before = after.ID()
			before.Removed = true
		}
		list = append(list, store.Change{Before: before, After: after})
	}
	for _, p := range f.Plans {
		if seen[p.Name] {
			return nil, headgate.Invalid("plans."+p.Name, "is there twice")
		}
		seen[p.Name] = true
		if err := s.definablePlan(&p, limits); err != nil {
			return nil, err
		}
		p.Origin, p.Retired = fromFile, false
		for _, after := range s.planChanges(&p) {
			change(after)
		}
	}
	for _, i := range s.of(store.KindPlan) {
		if i.Origin == fromFile && !i.Retired && !seen[i.Name] {
			i.Retired = true
			change(i)
		}
	}
	slices.SortStableFunc(list, func(a, b store.Change) int {
		return cmp.Or(cmp.Compare(a.After.Name, b.After.Name), cmp.Compare(a.After.Key, b.After.Key))
	})
	return list, nil
}

// newestFile is the file that was applied last. Files are ordered by the store's time at which they were applied, which
// is kept where that of other items ends. So a file that is applied after the store has lost its catalogue comes after
// all that servers remember.
func (s *snapshot) newestFile() (newest store.Item) {
	for id, item := range s.items {
		if id.Kind == store.KindFile && item.Until > newest.Until {
			newest = item
		}
	}
	return newest
}

// shortened keeps the end of a path, as much as a note may have.
func shortened(path string) string {
	if len(path) > store.MaxNote {
		path = path[len(path)-store.MaxNote:]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(path, "\x00", ""), "")
}

// Status says how what a file defines stands to the catalogue as it was read last.
func (c *Catalog) Status(f File) (Difference, error) {
	s := c.now.Load()
	if s == nil {
		return Difference{}, fmt.Errorf("%w: the catalogue of limits was not read yet", store.ErrUnavailable)
	}
	return s.compare(&f)
}

// Apply makes the catalogue's limits and plans those of a file: it defines what the file says, and
// retires what a file has defined and this one has not. What somebody has defined otherwise
// stays. A limit that the store cannot use is headgate.ErrInvalid, and nothing is changed then; so
// is one that would be acquired where a plan or an override in its place is taken, or the other way round.
//
// how says what becomes of a file that was applied before: Difference.Known tells whether it was.
func (c *Catalog) Apply(ctx context.Context, by By, f File, how Applying) (done Difference, version int64, err error) {
	version, err = c.write(ctx, by, func(now *snapshot) ([]store.Item, error) {
		if done, err = now.compare(&f); err != nil {
			return nil, err
		}
		switch done.Known {
		case New, Lost:
		case Older:
			if how == Once {
				return nil, nil
			}
		case Newest:
			if how != Anyway || done.Empty() {
				return done.revised(now), nil
			}
		}
		done.Order = done.file.Until
		return done.items(), nil
	})
	known := done.Known
	if known == Lost || known == Older && how != Once {
		known = New // it is in force again
	}
	c.tell.applied(Application{Path: f.Path, Known: known, Version: version, Err: err})
	return done, version, err
}
