package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
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

// items returns what a file means, but for its comments and its order.
func (f *File) items() []store.Item {
	items := []store.Item{}
	for _, d := range f.Limits {
		d.Origin, d.Retired = fromFile, false
		items = append(items, d.item())
	}
	for _, p := range f.Plans {
		p.Origin, p.Retired = fromFile, false
		items = append(items, p.items()...)
	}
	slices.SortFunc(items, compareIDs)
	return items
}

// hash says whether two files mean the same.
func (f *File) hash() (string, error) {
	text, err := json.Marshal(f.items())
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
	Changes []store.Change // of limits, ordered by name, and then of plans; Describe says what they are
	Known   Known          // whether these limits and plans were applied before
	Order   int64          // of the file among those that were applied, or as it will be: the newest has the greatest
	file    store.Item
}

// Lines describes each change in a line.
func (d *Difference) Lines() []string {
	var lines []string
	for _, c := range d.Changes {
		lines = append(lines, Describe(c))
	}
	return lines
}

// Empty reports whether there is nothing to change.
func (d *Difference) Empty() bool { return len(d.Changes) == 0 }

// Known says whether a file was applied before.
type Known int

// A file is New, or the Newest that was applied, or Older than that. It is Lost if the catalog does not know it any
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
	// Once leaves the catalog as it is, so that a server that starts with an old file does not undo what a newer one
	// of another server says.
	Once Applying = iota
	// Again applies a file also if another one was applied since: somebody has changed it back. The newest file stays
	// as it is, with the changes that were made by hand since.
	Again
	// Anyway undoes also such changes.
	Anyway
)

// revised returns what is written of the newest file where nothing changes but its revision.
func (d *Difference) revised(now *snapshot) []store.Item {
	before := now.items[d.file.ID()]
	if after := d.file; revisionOf(&after) > revisionOf(&before) {
		return []store.Item{after}
	}
	return nil
}

// Compare returns what Apply would change.
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

// items returns what is written to make the changes.
func (d *Difference) items() []store.Item {
	items := []store.Item{d.file}
	for _, change := range d.Changes {
		items = append(items, change.After)
	}
	return items
}

func (s *snapshot) compare(f *File) (d Difference, err error) {
	items, err := s.wanted(f)
	if err != nil {
		return d, err
	}
	d.Changes = (&store.Edit{Items: items}).Changes(slices.Collect(maps.Values(s.items)))
	sortChanges(d.Changes)
	hash, err := f.hash()
	if err == nil {
		s.known(&d, f, hash)
	}
	return d, err
}

// wanted returns what a file defines, and what becomes of what a file has defined and this one does not.
func (s *snapshot) wanted(f *File) ([]store.Item, error) {
	limits, plans := map[string]headgate.Limit{}, map[string]bool{}
	for i := range f.Limits {
		d := &f.Limits[i]
		if err := definable(d); err != nil {
			return nil, err
		}
		if _, twice := limits[d.Name()]; twice {
			return nil, headgate.Invalid("limits."+d.Name(), "is there twice")
		}
		limits[d.Name()] = d.Limit
	}
	items := f.items()
	for i := range f.Plans {
		p := &f.Plans[i]
		if plans[p.Name] {
			return nil, headgate.Invalid("plans."+p.Name, "is there twice")
		}
		plans[p.Name] = true
		if err := s.definablePlan(p, limits); err != nil {
			return nil, err
		}
		items = append(items, s.gone(p)...)
	}
	for _, i := range s.items {
		_, defined := limits[i.Name]
		_, readable := s.limits[i.Name]
		old := i.Kind == store.KindLimit && !defined && readable || i.Kind == store.KindPlan && !plans[i.Name]
		if old && i.Origin == fromFile && !i.Retired {
			i.Retired = true
			items = append(items, i)
		}
	}
	return items, nil
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

// revisionOf returns the revision of a file that was applied; 0: it has none.
func revisionOf(i *store.Item) int64 {
	n, _ := strconv.ParseInt(i.Text, 10, 64)
	return n
}

// newestFile returns the file that was applied last. Files are ordered by the store's time at which they were applied,
// which is kept where that of other items ends. So a file that is applied after the store has lost its catalog comes
// after all that servers remember.
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

// Status returns how what a file defines stands to the catalog as it was read last.
func (c *Catalog) Status(f File) (Difference, error) {
	s := c.now.Load()
	if s == nil {
		return Difference{}, errUnread
	}
	return s.compare(&f)
}

// Apply makes the catalog's limits and plans those of a file: it defines what the file says, and
// retires what a file has defined and this one has not. What somebody has defined otherwise
// stays. A limit that the store cannot use is headgate.ErrInvalid, and nothing is changed then; so
// is one that would be acquired where a plan or an override in its place is taken, or the other way round.
//
// how says what becomes of a file that was applied before: Difference.Known reports whether it was.
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
	c.tell.Applied(Application{Path: f.Path, Known: known, Version: version, Err: err})
	return done, version, err
}
